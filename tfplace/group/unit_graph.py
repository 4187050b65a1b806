"""What groupers look at: units as nodes with seconds and bytes, and between them undirected edges with seconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.flow import flow, mean_transfer_s

ROOM = 0.25
"""A group's variables may take this part of the smallest device the group may be on, so that groups can be packed."""


class UnitGraph(NamedTuple):
    """The nodes and edges of a problem as partitioning sees them.

    Attributes:
      kind: [U] id of the set of allowed devices; units of one kind are interchangeable to the rules.
      seconds: [U] averaged over the allowed devices.
      size_bytes: [U] of variables.
      room_bytes: [K] of variables that a group of each kind may hold: `ROOM` of its smallest device.
      decided: [K] whether units of the kind have only one device to be on.
      low: [P] the lower unit of each pair that exchanges something.
      high: [P] the other one.
      weight: [P] mean seconds that all transfers between the two would take.
    """

    kind: IntArray
    seconds: FloatArray
    size_bytes: FloatArray
    room_bytes: FloatArray
    decided: BoolArray
    low: IntArray
    high: IntArray
    weight: FloatArray


def unit_graph(problem: Problem) -> UnitGraph:
    """The units of `problem` and what is between them."""
    kind, allowed = kinds(problem)
    limit = np.where(allowed, problem.memory_limit, np.iinfo(np.int64).max)
    edges = flow(problem)
    src, dst = problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst]
    low, high, weight = sum_parallel(src, dst, mean_transfer_s(problem, edges), problem.num_units)
    return UnitGraph(
        kind=kind,
        seconds=mean_seconds(problem),
        size_bytes=variable_bytes(problem),
        room_bytes=ROOM * limit.min(axis=1).astype(np.float64),
        decided=allowed.sum(axis=1) == 1,
        low=low,
        high=high,
        weight=weight,
    )


def kinds(problem: Problem) -> tuple[IntArray, BoolArray]:
    """[U] id of each unit's set of allowed devices, and [K, D] those sets."""
    allowed, kind = np.unique(problem.allowed, axis=0, return_inverse=True)
    return kind.ravel().astype(np.int32), allowed


def mean_seconds(problem: Problem) -> FloatArray:
    """[U] seconds of each unit, averaged over its allowed devices."""
    seconds = np.where(problem.allowed, problem.unit_seconds, 0.0)
    mean: FloatArray = seconds.sum(axis=1) / problem.allowed.sum(axis=1)
    return mean


def variable_bytes(problem: Problem) -> FloatArray:
    """[U] bytes of the variables of each unit."""
    unit_of = problem.grouping.unit_of
    inside = unit_of >= 0
    size = np.bincount(unit_of[inside], problem.graph.persistent_bytes[inside], problem.num_units)
    return size.astype(np.float64)


def sum_parallel(src: IntArray, dst: IntArray, weight: FloatArray, count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """One undirected edge per pair of different nodes, with the summed weight, sorted by the pair."""
    apart: BoolArray = src != dst
    low, high = np.minimum(src, dst)[apart].astype(np.int64), np.maximum(src, dst)[apart]
    pairs, index = np.unique(low * max(count, 1) + high, return_inverse=True)
    total: FloatArray = np.bincount(index.ravel(), weight[apart], len(pairs)).astype(np.float64)
    return (pairs // max(count, 1)).astype(np.int32), (pairs % max(count, 1)).astype(np.int32), total


class Adjacency(NamedTuple):
    """Neighbors of nodes in compressed rows: those of node n are at `offset[n]` to `offset[n + 1] - 1`.

    Attributes:
      offset: [N + 1].
      other: [2 P] neighbors.
      edge: [2 P] the edge to each.
    """

    offset: LongArray
    other: LongArray
    edge: LongArray


def adjacency(low: IntArray, high: IntArray, count: int) -> Adjacency:
    """Both directions of undirected edges, by node."""
    ends = np.concatenate([low, high])
    others = np.concatenate([high, low])
    order = np.lexsort((others, ends))
    offset = np.searchsorted(ends[order], np.arange(count + 1)).astype(np.int64)
    edge = order % max(len(low), 1)
    return Adjacency(offset, others[order].astype(np.int64), edge.astype(np.int64))
