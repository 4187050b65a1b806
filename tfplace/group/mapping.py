"""Static mapping by Scotch: the graph of units onto the graph of devices. Needs `pip install 'tfplace[scotch]'`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from ctypes import byref
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.errors import MissingExtraError
from tfplace.group.parts import device_shares, link_slowness
from tfplace.group.unit_graph import UnitGraph, adjacency

_LOAD, _SPEED, _DISTANCE = 1_000_000_000, 1_000, 10
"""Scotch counts in integers: what all work, all exchange and all speeds sum to, and the mean distance."""

_SEED = 1


def static_mapping(problem: Problem, graph: UnitGraph, devices: IntArray, tolerance: float) -> IntArray:
    """[U] device of each unit by Scotch; -1 for units that may be on none of `devices`.

    F. Pellegrini, J. Roman: Scotch: A Software Package for Static Mapping by Dual Recursive Bipartitioning of Process
    and Architecture Graphs. HPCN Europe 1996. Scotch makes small the sum over all edges of what is sent, times the
    distance of the two devices, while no device has more work than its speed's share.

    Args:
      problem: what is placed.
      graph: of it; vertices weigh seconds, edges seconds of transfers.
      devices: [K] the target architecture: their speeds, and as distances how slow their links are.
      tolerance: by how much a device may have more than its share.

    Raises:
      InputError: pyscotch is not installed.
    """
    pyscotch = load_pyscotch()
    usable = problem.allowed[:, devices]
    units = np.flatnonzero(usable.any(axis=1)).astype(np.int32)
    out = np.full(problem.num_units, -1, np.int32)
    if len(devices) == 1 or len(units) < 2:
        out[units] = devices[usable[units].argmax(axis=1)]
        return out
    first = usable[units].argmax(axis=1)
    fixed = np.where(usable[units].sum(axis=1) == 1, first, -1)
    with (
        _source(pyscotch, graph, units) as source,
        _alone(pyscotch, source) as bound,
        _target(pyscotch, problem, devices) as target,
    ):
        found = _map(pyscotch, bound, target, fixed, tolerance)
    # Of graphs of a few vertices Scotch moves some that are fixed, and leaves some out.
    found = np.where(fixed >= 0, fixed, np.where(found >= 0, found, first))
    out[units] = devices[found]
    return out


def load_pyscotch() -> Any:
    """The module, which reports on stderr what it loads; that is left out.

    Raises:
      MissingExtraError: it is not installed.
    """
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            import pyscotch
            import pyscotch.libscotch
    except ImportError as error:
        raise MissingExtraError(
            "a placer by Scotch without pyscotch", "pyscotch", "pip install 'tfplace[scotch]'"
        ) from error
    return pyscotch


@contextlib.contextmanager
def _source(pyscotch: Any, graph: UnitGraph, units: IntArray) -> Iterator[Any]:
    """Scotch's graph of some units."""
    place = np.full(len(graph.kind), -1, np.int32)
    place[units] = np.arange(len(units), dtype=np.int32)
    rows = (place[graph.low] >= 0) & (place[graph.high] >= 0)
    near = adjacency(place[graph.low[rows]], place[graph.high[rows]], len(units))
    with pyscotch.Graph() as built:
        built.build(near.offset, near.other, _whole(graph.seconds[units]), _whole(graph.weight[rows])[near.edge])
        yield built


@contextlib.contextmanager
def _alone(pyscotch: Any, graph: Any) -> Iterator[Any]:
    """The graph in a context with one thread and a random state of its own: what several threads find is chance."""
    lib = pyscotch.libscotch
    with pyscotch.Context() as context:
        if failed := lib.SCOTCH_contextThreadSpawn(byref(context._ctx), 1, None):  # pyscotch binds no method to it
            raise lib.scotch_error("SCOTCH_contextThreadSpawn failed", failed)
        context.random_seed(_SEED)
        context.random_reset()
        with context.bind_graph(graph) as bound:
            yield bound


@contextlib.contextmanager
def _target(pyscotch: Any, problem: Problem, devices: IntArray) -> Iterator[Any]:
    """The target architecture: decomposition-defined where links differ, else a weighted complete graph."""
    speed = np.maximum(np.rint(_SPEED * device_shares(problem, devices)), 1).astype(np.int64)
    count = len(devices)
    slow = link_slowness(problem)[np.ix_(devices, devices)]
    low, high = np.triu_indices(count, 1)
    distance = np.maximum(np.rint(_DISTANCE * slow[low, high]), 1).astype(np.int64)
    with pyscotch.Architecture() as architecture:
        if np.all(distance == distance[0]):
            architecture.complete_weighted(count, speed)
            yield architecture
            return
        near = adjacency(low.astype(np.int32), high.astype(np.int32), count)
        with pyscotch.Graph() as built:
            built.build(near.offset, near.other, speed, distance[near.edge])
            with _alone(pyscotch, built) as bound:
                _decompose(pyscotch, architecture, bound, count)
            yield architecture


def _decompose(pyscotch: Any, architecture: Any, graph: Any, count: int) -> None:
    """SCOTCH_archBuild, which pyscotch binds but gives no method to."""
    lib = pyscotch.libscotch
    with pyscotch.Strategy()._materialized_mapping(count) as strategy:
        failed = lib.SCOTCH_archBuild(
            byref(architecture._arch), byref(graph._graph), lib.SCOTCH_Num(count), None, byref(strategy)
        )
    if failed:
        raise lib.scotch_error("SCOTCH_archBuild failed", failed)


def _map(pyscotch: Any, graph: Any, architecture: Any, fixed: LongArray, tolerance: float) -> LongArray:
    """[N] terminal of each vertex, by SCOTCH_graphMapFixed; those in `fixed` that are not -1 stay as they are."""
    lib = pyscotch.libscotch
    request = pyscotch.Strategy()
    request.request_mapping(pyscotch.StrategyFlags.DEFAULT, balance=tolerance)
    terminal, pointer = lib.to_scotch_array(fixed, copy=True)
    with request._materialized_mapping(architecture.size()) as strategy:
        failed = lib.SCOTCH_graphMapFixed(byref(graph._graph), byref(architecture._arch), byref(strategy), pointer)
    if failed:
        raise lib.scotch_error("SCOTCH_graphMapFixed failed", failed)
    found: LongArray = np.asarray(terminal, np.int64)
    return found


def _whole(values: FloatArray) -> LongArray:
    """Integers of at least 1, otherwise in proportion to `values`."""
    return np.rint(values / max(float(values.sum()), 1e-300) * _LOAD).astype(np.int64) + 1
