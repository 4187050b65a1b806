"""Expert: contiguous blocks of layers, as a person would lay a model over several devices."""

from __future__ import annotations

import re

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.flow import flow, mean_transfer_s
from tfplace.placers.base import Study, compute_devices, settle, unit_persistent_bytes

_BACKWARD = re.compile(r"^(gradient_tape|gradients?)/")
_REWRITTEN = re.compile(r"^(ConstantFolding|ArithmeticOptimizer)/")
_MOST_LAYERS = 400
_FULL = 0.9


class Expert:
    """Layers in the order of the forward pass, cut into one block per accelerator so that the slowest is quickest.

    A layer is what a name scope says it is. Backward ops carry the scope of their layer inside their own; ops of
    variables and optimizers join the layer whose variable or gradient they touch. Where names tell nothing, layers are
    chunks of units in the order in which an unlimited machine would start them.

    A block's time is its compute and the transfers over its two borders, so cuts fall where little crosses.

    Papers leave their human experts' placements unspecified but for sketches; this is the common denominator: balanced
    compute, contiguous layers, gradients and variables beside their layer, and no block that overfills its device.
    """

    citation = (
        "The human expert's placement of A. Mirhoseini et al.: Device Placement Optimization with Reinforcement "
        "Learning. ICML 2017, section 4.2, generalised from its sketches."
    )

    def place(self, study: Study) -> IntArray:
        """Cuts once; needs no evaluation."""
        problem = study.problem
        devices = compute_devices(problem)
        layer = layers(problem, len(devices))
        seconds, size_bytes = _layer_seconds(problem, layer, devices), _layer_bytes(problem, layer)
        block = _cut(seconds, _crossing_seconds(problem, layer), size_bytes, problem.memory_limit[devices])
        return settle(problem, devices[block[layer]])


def layers(problem: Problem, at_least: int) -> IntArray:
    """[U] the layer of each unit, numbered in the order of the forward pass.

    Args:
      problem: what is placed.
      at_least: the scopes are looked at deep enough to tell this many layers apart.
    """
    src, dst, _ = _unit_edges(problem)
    start = _earliest_start(problem)
    label = _by_scope(problem, at_least)
    if label is None:
        return _chunks(problem, start)
    label = _join_neighbours(label, src, dst)
    return _in_order(problem, label, start)


def _by_scope(problem: Problem, at_least: int) -> IntArray | None:
    """[U] an id of the layer in its members' scopes, -1 where there is none; None if names tell nothing."""
    names = [_REWRITTEN.sub("", name) for name in problem.graph.op_names]
    backward = [_BACKWARD.match(name) is not None for name in names]
    parts = [_BACKWARD.sub("", name).split("/")[:-1] for name in names]
    deepest = max(map(len, parts))
    for depth in range(1, deepest + 1):
        scopes = ["/".join(p[:depth]) if len(p) >= depth else "" for p in parts]
        known = {s for s, b in zip(scopes, backward, strict=True) if not b and s}
        if any(backward):  # scopes without a gradient are no layers: optimizers, losses, metrics
            known &= {s for s, b in zip(scopes, backward, strict=True) if b}
        if len(known) >= max(at_least, 2):
            return _vote(problem, scopes, sorted(known))
    return None


def _vote(problem: Problem, scopes: list[str], known: list[str]) -> IntArray:
    """[U] for each unit the known scope in which it spends the most seconds; the first member's if none takes any."""
    ids = {scope: i for i, scope in enumerate(known)}
    seconds = problem.costs.compute_s.mean(axis=1)
    votes: dict[int, dict[int, float]] = {}
    for v, unit in enumerate(problem.grouping.unit_of.tolist()):
        if unit >= 0 and scopes[v] in ids:
            mine = votes.setdefault(unit, {})
            mine[ids[scopes[v]]] = mine.get(ids[scopes[v]], 0.0) + float(seconds[v])
    label = np.full(problem.num_units, -1, np.int32)
    for unit, counts in votes.items():
        label[unit] = max(counts, key=counts.__getitem__)
    return label


def _unit_edges(problem: Problem) -> tuple[IntArray, IntArray, FloatArray]:
    """Edges between different units and seconds a transfer along each takes, least first."""
    edges = flow(problem)
    src, dst = problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst]
    seconds = mean_transfer_s(problem, edges)
    order = np.argsort(seconds, kind="stable")
    order = order[src[order] != dst[order]]
    return src[order], dst[order], seconds[order]


def _join_neighbours(label: IntArray, src: IntArray, dst: IntArray) -> IntArray:
    """Gives units without a label that of the neighbour they share the heaviest edge with, as often as it takes.

    Args:
      label: [U], -1 for none.
      src: producing units, by weight of the edge, lightest first, so that the last assignment counts.
      dst: consuming units.
    """
    label = label.copy()
    while True:
        before = label.copy()
        for near, far in ((dst, src), (src, dst)):
            rows = (before[near] < 0) & (label[far] >= 0)
            label[near[rows]] = label[far[rows]]
        if np.array_equal(before, label):
            return label


def _earliest_start(problem: Problem) -> FloatArray:
    """[V] when each op could start with a device of its own and free transfers."""
    edges = flow(problem)
    seconds = problem.costs.compute_s[:, compute_devices(problem)].mean(axis=1)
    start = np.zeros(problem.graph.num_ops)
    order = np.argsort(edges.dst, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(edges.dst[order])) + 1):
        if len(rows):
            start[edges.dst[rows[0]]] = (start[edges.src[rows]] + seconds[edges.src[rows]]).max()
    return start


def _forward(problem: Problem) -> BoolArray:
    """[V] ops that neither compute gradients nor depend on any: updates of variables come late whatever their layer."""
    late = np.array([_is_backward(name) for name in problem.graph.op_names])
    edges = flow(problem)
    order = np.argsort(edges.dst, kind="stable")
    for src, dst in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        late[dst] |= late[src]
    return ~late


def _is_backward(name: str) -> bool:
    return _BACKWARD.match(_REWRITTEN.sub("", name)) is not None


def _in_order(problem: Problem, label: IntArray, start: FloatArray) -> IntArray:
    """Renumbers labels by the mean start of their forward ops, weighted by seconds; what has no label joins layer 0."""
    unit_of = problem.grouping.unit_of
    ops = np.flatnonzero((unit_of >= 0) & _forward(problem))
    ops = ops[label[unit_of[ops]] >= 0]
    weight = problem.costs.compute_s[ops].mean(axis=1) + 1e-12
    count = int(label.max()) + 1
    mine = label[unit_of[ops]]
    mean = np.bincount(mine, weight * start[ops], count) / np.maximum(np.bincount(mine, weight, count), 1e-30)
    place = np.empty(count, np.int32)
    place[np.argsort(mean, kind="stable")] = np.arange(count)
    return np.where(label >= 0, place[label], 0).astype(np.int32)


def _chunks(problem: Problem, start: FloatArray) -> IntArray:
    """[U] layers of about equally many units, in the order of their first op's start."""
    first = np.array([start[ops].min() for ops in problem.grouping.members])
    place = np.empty(problem.num_units, np.int32)
    place[np.argsort(first, kind="stable")] = np.arange(problem.num_units)
    return (place * min(_MOST_LAYERS, problem.num_units) // problem.num_units).astype(np.int32)


def _layer_seconds(problem: Problem, layer: IntArray, devices: IntArray) -> FloatArray:
    """[L, K] seconds of each layer on each device; units that cannot be there take nothing."""
    seconds = problem.unit_seconds[:, devices]
    out = np.zeros((int(layer.max()) + 1, len(devices)))
    np.add.at(out, layer, np.where(np.isfinite(seconds), seconds, 0.0))
    return out


def _crossing_seconds(problem: Problem, layer: IntArray) -> FloatArray:
    """[L + 1] seconds of the transfers between the layers before and from each border on, forward and backward."""
    src, dst, seconds = _unit_edges(problem)
    ends = np.sort(np.stack([layer[src], layer[dst]]), axis=0)
    steps = np.zeros(int(layer.max()) + 2)
    np.add.at(steps, ends[0] + 1, seconds)
    np.add.at(steps, ends[1] + 1, -seconds)
    crossing: FloatArray = np.maximum(np.cumsum(steps), 0.0)
    return crossing


def _layer_bytes(problem: Problem, layer: IntArray) -> FloatArray:
    """[L] bytes a layer is taken to need at once: its variables and every tensor that its backward pass reads."""
    graph, unit_of = problem.graph, problem.grouping.unit_of
    out: FloatArray = np.bincount(layer, unit_persistent_bytes(problem), int(layer.max()) + 1).astype(np.float64)
    is_backward = np.array([_is_backward(name) for name in graph.op_names])
    kept = np.zeros(graph.num_tensors, bool)
    edges = flow(problem)
    rows = (edges.tensor >= 0) & is_backward[edges.dst] & ~is_backward[edges.src]
    kept[edges.tensor[rows]] = True
    tensors = np.flatnonzero(kept)
    np.add.at(out, layer[unit_of[graph.tensor_op[tensors]]], graph.tensor_bytes[tensors])
    return out


def _cut(seconds: FloatArray, crossing: FloatArray, size_bytes: FloatArray, limit: LongArray) -> IntArray:
    """[L] the block of each layer: contiguous blocks whose largest time is least (dynamic programming).

    A block over 90 % of its device's memory counts as slower than any that fits, the more so the more it is over.

    Args:
      seconds: [L, K] of each layer on each device.
      crossing: [L + 1] seconds of the transfers over each border.
      size_bytes: [L].
      limit: [K] bytes.
    """
    count, blocks = seconds.shape
    time = np.concatenate([np.zeros((1, blocks)), np.cumsum(seconds, axis=0)])
    size = np.concatenate([[0.0], np.cumsum(size_bytes)])
    borders = crossing[None, :] + crossing[:, None]
    np.fill_diagonal(borders, 0.0)  # an empty block
    worst = float(seconds.sum()) + 1.0
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    cuts = np.zeros((blocks, count + 1), np.int64)
    for k in range(blocks):
        over = np.maximum((size[None, :] - size[:, None]) / (_FULL * limit[k]) - 1.0, 0.0)
        cost = time[None, :, k] - time[:, None, k] + borders + worst * over
        reach = np.maximum(best[:, None], cost)
        reach[np.tril_indices(count + 1, -1)] = np.inf
        cuts[k] = reach.argmin(axis=0)
        best = reach.min(axis=0)
    block = np.zeros(count, np.int32)
    end = count
    for k in reversed(range(blocks)):
        begin = int(cuts[k, end])
        block[begin:end] = k
        end = begin
    return block
