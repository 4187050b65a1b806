"""METIS: groups as the parts of a k-way partition."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.limits import check_count, finish
from tfplace.group.unit_graph import UnitGraph, adjacency, unit_graph

_SCALE = 1_000_000_000
_SEED = 1
_LEAST = 0.01
"""All units together weigh this in addition, all alike, relative to what they weigh otherwise."""

_FULL = 0.1
"""Variables matter to the balance from this part of the memory on."""

_HEAVIEST = 0.5
"""No unit counts as heavier than this part of a part: METIS complains on stdout about parts that stay empty."""


def metis(problem: Problem, count: int) -> IntArray:
    """[U] parts of about equal weight with little between them, numbered by first unit.

    G. Karypis, V. Kumar: Multilevel k-way Partitioning Scheme for Irregular Graphs. Journal of Parallel and Distributed
    Computing 48(1), 1998. Each kind of units is partitioned by itself, into as many parts as its share of the weight
    asks for. A unit's weight is its seconds. Where the variables take more than a tenth of the memory, their bytes
    count as much as the seconds, in one sum: pymetis has no second constraint. A unit of more than half a part's weight
    counts as half a part.

    Args:
      problem: what is placed.
      count: at most so many groups, but for what `tfplace.group.limits.finish` says.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    graph = unit_graph(problem)
    weight = balance_weight(problem, graph)
    kinds = len(graph.room_bytes)
    share = np.bincount(graph.kind, weight, kinds)
    parts = np.maximum(np.floor(share / max(float(share.sum()), 1e-300) * count).astype(int), 1)
    parts[graph.decided] = 1
    label = np.zeros(problem.num_units, np.int32)
    begin = 0
    for kind in range(kinds):
        units = np.flatnonzero(graph.kind == kind).astype(np.int32)
        part = partition(_inner(graph, units), weight[units], int(parts[kind]))
        label[units] = begin + part
        begin += int(parts[kind])
    return finish(problem, label, count, graph)


def balance_weight(problem: Problem, graph: UnitGraph) -> FloatArray:
    """[U] each unit's part of all seconds, and of all variables if they are large, and a little that all have alike."""
    weight = graph.seconds / max(float(graph.seconds.sum()), 1e-300) + _LEAST / max(len(graph.kind), 1)
    total = float(graph.size_bytes.sum())
    if total > _FULL * problem.num_devices * float(problem.memory_limit.min()):  # a host has far more than the others
        weight = weight + graph.size_bytes / total
    return weight


def partition(
    edges: tuple[IntArray, IntArray, FloatArray],
    weight: FloatArray,
    parts: int,
    *,
    shares: FloatArray | None = None,
    tolerance: float = 0.03,
) -> IntArray:
    """[N] part of each node.

    Args:
      edges: lower ends, higher ends and weights [P].
      weight: [N] of the nodes.
      parts: how many; if there are not twice as many nodes as that, pairs of nodes in order are the parts.
      shares: [parts] fraction of the weight each is to have; by default equal.
      tolerance: by how much a part may be heavier than its share.
    """
    count = len(weight)
    if parts <= 1 or count < 2 * parts:
        return (np.arange(count) * min(max(parts, 1), count) // max(count, 1)).astype(np.int32)
    import pymetis

    low, high, cost = edges
    rows = adjacency(low, high, count)
    shares = np.full(parts, 1 / parts) if shares is None else shares / shares.sum()
    weight = np.minimum(weight, _HEAVIEST * float(shares.min() * weight.sum()))
    options = pymetis.Options(seed=_SEED, ufactor=max(round(1000 * tolerance), 1))
    with _without_output():
        found = pymetis.part_graph(
            parts,
            pymetis.CSRAdjacency(rows.offset, rows.other),
            vweights=whole(weight) + 1,
            eweights=(whole(cost) + 1)[rows.edge],
            tpwgts=shares.tolist(),
            options=options,
        )
    return np.asarray(found.vertex_part, np.int32)


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """METIS prints on the C library's stdout, which is for results, when few large nodes make some parts empty."""
    libc = ctypes.CDLL(None) if os.name == "posix" else ctypes.cdll.msvcrt
    libc.fflush(None)
    try:
        kept = os.dup(1)
    except OSError:  # there is no stdout
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def whole(values: FloatArray) -> LongArray:
    """Integers in proportion to `values`, a thousand million in all."""
    return np.rint(values / max(float(values.sum()), 1e-300) * _SCALE).astype(np.int64)


def _inner(graph: UnitGraph, units: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """The edges among `units`, numbered by their position there."""
    place = np.full(len(graph.kind), -1, np.int32)
    place[units] = np.arange(len(units), dtype=np.int32)
    rows = (place[graph.low] >= 0) & (place[graph.high] >= 0)
    return place[graph.low[rows]], place[graph.high[rows]], graph.weight[rows]
