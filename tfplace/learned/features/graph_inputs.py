"""What policies that carry over see: a graph and its devices as plain arrays, whatever their number and speed."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.group.flow import flow
from tfplace.group.unit_graph import variable_bytes
from tfplace.learned.features.prior import prior_logits
from tfplace.learned.features.unit_features import DIMENSIONS, OUTPUTS, Float32, mean_over_units, shape_rows, unit_edges
from tfplace.local_search.devices import compute_devices
from tfplace.schedule.list_scheduling.ranks import downward_rank, upward_rank
from tfplace.schedule.list_scheduling.tasks import Tasks, make_tasks

TYPE_BUCKETS = 32
"""Op types are known by a hash, so that a type never seen has features too."""

WAVES = 4
"""Of the place of a device among those that compute: equal devices differ in nothing else."""

_LEAST, _NEGLIGIBLE = 1e-4, 1e-3


UNIT_FEATURES = TYPE_BUCKETS + OUTPUTS * DIMENSIONS + 10
"""F, of every problem's `GraphInputs`."""

DEVICE_FEATURES = WAVES + 8
"""K."""

GRAPH_FEATURES = 5
"""G."""


class GraphInputs(NamedTuple):
    """A problem as a network sees it. Units are in topological order: by when they could start, then by what follows.

    Attributes:
      order: [U] which unit of the problem each row is.
      units: [U, F] what each unit is and takes, relative to the graph.
      src: [P] producing row of each pair of units between which something flows.
      dst: [P] consuming row.
      devices: [D, K] what each device is, relative to the graph and the others.
      pairs: [U, D] log of the seconds of a unit on a device over those on its quickest one; 0 where it may not be.
      graph: [G] of the whole.
      prior: [U, D] `prior_logits`.
      weight: [U] part of the seconds of all units, of which the sum is 1.
    """

    order: IntArray
    units: Float32
    src: IntArray
    dst: IntArray
    devices: Float32
    pairs: Float32
    graph: Float32
    prior: Float32
    weight: Float32

    def rows_of(self, unit_device: IntArray) -> IntArray:
        """[..., U] devices of the problem's units, in the order of the rows."""
        return unit_device[..., self.order]

    def units_of(self, row_device: IntArray) -> IntArray:
        """[..., U] devices of rows, in the order of the problem's units."""
        devices = np.empty_like(row_device)
        devices[..., self.order] = row_device
        return devices


def graph_inputs(problem: Problem, start: IntArray | None = None, lean: float = 0.0) -> GraphInputs:
    """The inputs of a policy that carries over.

    Features of GDP (Zhou et al. 2019, section 3.1) are op type, output shape and adjacent ops; of Placeto (Addanki et
    al. 2019, section 3.1) seconds and bytes. Here also the seconds before and after a unit on the longest path, which
    no network of a few layers could sum up. All but shapes are relative to the graph and the devices, in logarithms.

    Args:
      problem: what is placed; it has units.
      start: of `prior_logits`.
      lean: of `prior_logits`.
    """
    fastest, tasks = problem.unit_seconds.min(axis=1), make_tasks(problem)
    mean_s = max(float(fastest.mean()), 1e-12)
    before, after = _ranks(problem, tasks)
    order = np.lexsort((np.arange(problem.num_units), -after, before)).astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.int32)
    src, dst = unit_edges(problem)
    sent_s, sent_bytes = _sent(problem, tasks)
    persistent = variable_bytes(problem)
    needed = max(float(sent_bytes.sum() + persistent.sum()), 1.0)
    longest = max(float((before + after).max()), 1e-12)
    rows = np.column_stack(
        [
            mean_over_units(problem, _type_rows(problem)),
            mean_over_units(problem, shape_rows(problem.graph)) / 5.0,
            _log(fastest / mean_s),
            _log(sent_s / mean_s),
            _log(persistent / needed * len(order)),
            _log(sent_bytes / needed * len(order)),
            before / longest,
            after / longest,
            (before + after) / longest,
            np.log1p(np.bincount(src, minlength=len(order))),
            np.log1p(np.bincount(dst, minlength=len(order))),
            place / len(order),
        ]
    )
    limit = problem.memory_limit[compute_devices(problem)]
    whole = np.array(
        [
            np.log(len(limit)),
            np.log10(len(order)) - 3,
            _log(np.array(longest / max(float(fastest.sum()), 1e-12))),
            _log(np.array(sent_s.sum() / max(float(fastest.sum()), 1e-12))),
            _log(np.array(needed / max(float(limit.sum()), 1.0))),
        ]
    )
    return GraphInputs(
        order=order,
        units=rows[order].astype(np.float32),
        src=place[src],
        dst=place[dst],
        devices=_devices(problem, mean_s, needed),
        pairs=_pairs(problem, fastest, mean_s)[order],
        graph=whole.astype(np.float32),
        prior=prior_logits(problem, start, lean)[order].astype(np.float32),
        weight=(fastest / max(float(fastest.sum()), 1e-12))[order].astype(np.float32),
    )


def _log(values: FloatArray) -> FloatArray:
    """Log to base 10, from 0 at a ten-thousandth up to 2 at ten thousand times."""
    return np.log10(np.maximum(values, 0) + _LEAST) / 4 + 1


def _type_rows(problem: Problem) -> FloatArray:
    """[V, TYPE_BUCKETS] one-hot."""
    bucket = {name: zlib.crc32(name.encode()) % TYPE_BUCKETS for name in set(problem.graph.op_types)}
    return np.eye(TYPE_BUCKETS)[[bucket[name] for name in problem.graph.op_types]]


def _ranks(problem: Problem, tasks: Tasks) -> tuple[FloatArray, FloatArray]:
    """[U] seconds before the first op of each unit, and from there to the end, along the longest paths."""
    unit_of = problem.grouping.unit_of
    inside = unit_of >= 0
    before, after = np.full(problem.num_units, np.inf), np.zeros(problem.num_units)
    np.minimum.at(before, unit_of[inside], downward_rank(tasks)[inside])
    np.maximum.at(after, unit_of[inside], upward_rank(tasks)[inside])
    return before, after


def _sent(problem: Problem, tasks: Tasks) -> tuple[FloatArray, FloatArray]:
    """[U] seconds and bytes of all that a unit makes for other units, each tensor once."""
    edges = flow(problem)
    unit_of = problem.grouping.unit_of
    apart = (unit_of[edges.src] != unit_of[edges.dst]) & (edges.tensor >= 0)
    tensors, first = np.unique(edges.tensor[apart], return_index=True)
    maker = unit_of[edges.src[apart][first]]
    size = edges.size_bytes[apart][first] * edges.trips[apart][first]
    compute = compute_devices(problem)
    between = ~np.eye(len(compute), dtype=bool)
    fixed, per_byte = (table[np.ix_(compute, compute)][between] for table in (tasks.fixed_s, tasks.byte_s))
    seconds = fixed.mean() + size * per_byte.mean() if len(fixed) else np.zeros(len(tensors))
    return (
        np.bincount(maker, seconds, problem.num_units).astype(np.float64),
        np.bincount(maker, size, problem.num_units).astype(np.float64),
    )


def _devices(problem: Problem, mean_s: float, needed: float) -> Float32:
    """[D, K] kind, speed, memory, links, and the place among the devices that compute, as waves."""
    topology, count = problem.topology, problem.num_devices
    compute = compute_devices(problem)
    place = np.full(count, -1.0)
    place[compute] = (np.arange(len(compute)) + 0.5) / len(compute)
    angle = np.pi * place[:, None] * np.arange(1, WAVES + 1)
    waves = np.where(place[:, None] >= 0, np.cos(angle), 0.0)
    total_s = problem.costs.compute_s.sum(axis=0)
    between = ~np.eye(count, dtype=bool)
    bandwidth = np.array([topology.bandwidth[d][between[d]].mean() if count > 1 else np.inf for d in range(count)])
    latency = np.array([topology.latency_s[d][between[d]].mean() if count > 1 else 0.0 for d in range(count)])
    rows = np.column_stack(
        [
            place >= 0,
            [d.type == "CPU" for d in topology.devices],
            waves,
            place == place[compute].min(),
            _log(total_s / max(float(total_s.min()), 1e-12)),
            _log(problem.memory_limit / needed),
            _log(latency / mean_s),
            _log(1e6 / bandwidth / mean_s),
            np.full(count, 1.0 / len(compute)),
        ]
    )
    return rows.astype(np.float32)


def _pairs(problem: Problem, fastest: FloatArray, mean_s: float) -> Float32:
    """[U, D] log of how many times as long a unit takes as on its quickest device, of what is not negligible."""
    seconds = np.where(problem.allowed, problem.unit_seconds, fastest[:, None])
    negligible = _NEGLIGIBLE * mean_s
    return np.log((seconds + negligible) / (fastest + negligible)[:, None]).astype(np.float32)
