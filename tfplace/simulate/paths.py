"""Longest paths by device: the least time before an op on each device can start, and after it has finished.

Whatever the placement, the order and the options, an op starts after all it reads has been made and, from another
device, sent. So with `h[v, d]` for the earliest start of v on d and `s` for seconds,

    h[v, d] >= max over inputs u of min over the devices e of u of  h[u, e] + s[u, e] + sent(u, e, d)

where `sent` is 0 for e = d, else the latency, the wire and the work at both ends, without any wait. Ops of one unit are
on one device, which leaves only e = d. By induction over the ops in their order, any h that satisfies this with
equality is a lower bound. From the end backwards it is the same. What is meant by "at least" holds up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.simulate.memory import HELD_BY_VARIABLE
from tfplace.simulate.options import Options


class _Edges(NamedTuple):
    """[E] edges that count, in an order in which all edges into `src` come before those out of it."""

    src: IntArray
    dst: IntArray
    trips: FloatArray
    volume: FloatArray
    same_unit: BoolArray


def allowed_seconds(problem: Problem) -> FloatArray:
    """[V, D] op seconds, infinite where the op may not be, 0 for replicable constants."""
    seconds = any_seconds(problem)
    inside = problem.grouping.unit_of >= 0
    seconds[inside] = np.where(problem.allowed[problem.grouping.unit_of[inside]], seconds[inside], np.inf)
    return seconds


def any_seconds(problem: Problem) -> FloatArray:
    """[V, D] op seconds as if every op were allowed everywhere, 0 for replicable constants."""
    return np.where(problem.graph.replicable[:, None], 0.0, problem.costs.compute_s)


def before_s(problem: Problem, seconds: FloatArray, options: Options) -> FloatArray:
    """[V, D] seconds that pass at least before op v can start on device d, given [V, D] op seconds."""
    out = np.zeros_like(seconds)
    _longest(out, seconds, _edges(problem), *_sending(problem, options))
    return out


def after_s(problem: Problem, seconds: FloatArray, options: Options) -> FloatArray:
    """[V, D] seconds that pass at least after op v has finished on device d, given [V, D] op seconds."""
    edges = _edges(problem)
    back = np.argsort(-edges.src, kind="stable")
    out = np.zeros_like(seconds)
    turned = _Edges(edges.dst[back], edges.src[back], edges.trips[back], edges.volume[back], edges.same_unit[back])
    _longest(out, seconds, turned, *(np.ascontiguousarray(each.T) for each in _sending(problem, options)))
    return out


def _edges(problem: Problem) -> _Edges:
    graph = problem.graph
    kept = np.flatnonzero(~graph.edge_back & ~graph.replicable[graph.edge_src] & ~graph.replicable[graph.edge_dst])
    kept = kept[np.argsort(graph.edge_dst[kept], kind="stable")]
    src, dst, tensor = graph.edge_src[kept], graph.edge_dst[kept], graph.edge_tensor[kept]
    held_by_variable = np.array([kind in HELD_BY_VARIABLE for kind in graph.op_types], np.bool_)
    size = np.where((tensor >= 0) & ~held_by_variable[src], np.append(graph.tensor_bytes, 0)[tensor], 0)
    unit = problem.grouping.unit_of
    return _Edges(src, dst, graph.trips[src], graph.trips[src] * size, unit[src] == unit[dst])


def _sending(problem: Problem, options: Options) -> tuple[FloatArray, FloatArray]:
    """[D, D] seconds of a transfer, and of each of its bytes; 0 on the diagonal."""
    topology = problem.topology
    per_transfer, per_byte = topology.latency_s.copy(), 1.0 / topology.bandwidth
    if options.overheads:
        send_s, send_s_per_byte, receive_s, receive_s_per_byte = topology.link_overheads
        per_transfer += send_s + receive_s
        per_byte += send_s_per_byte + receive_s_per_byte
    return per_transfer, per_byte


@nb.njit(cache=True, error_model="numpy")
def _longest(
    out: FloatArray, seconds: FloatArray, edges: _Edges, per_transfer: FloatArray, per_byte: FloatArray
) -> None:
    devices = seconds.shape[1]
    for e in range(len(edges.src)):
        u, v = edges.src[e], edges.dst[e]
        for d in range(devices):
            soonest = out[u, d] + seconds[u, d]
            if not edges.same_unit[e]:
                for a in range(devices):
                    sent = edges.trips[e] * per_transfer[a, d] + edges.volume[e] * per_byte[a, d]
                    soonest = min(soonest, out[u, a] + seconds[u, a] + sent)
            out[v, d] = max(out[v, d], soonest)
