"""Least times by device: before an op on each device can start, and after it has finished.

Whatever the placement, the order and the options, an op starts after all it reads has been made and, from another
device, sent. So with `h[v, d]` for the earliest start of v on d and `s` for seconds,

    h[v, d] >= max over inputs u of min over the devices e of u of  h[u, e] + s[u, e] + sent(u, e, d)

where `sent` is 0 for e = d, else the latency, the wire and the work at both ends, without any wait. Ops of one unit are
on one device, which leaves only e = d. By induction over the ops in their order, any h that satisfies this with
equality is a lower bound. `tfplace.simulation.joint` adds what several inputs say together. From the end backwards it
is the same. What is meant by "at least" holds up to rounding.
"""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.core.buffers import HELD_BY_VARIABLE
from tfplace.core.problem import Problem
from tfplace.simulation.joint import Incoming, Sending, heads
from tfplace.simulation.options import Options


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
    return heads(_incoming(problem), seconds, _sending(problem, options))


def after_s(problem: Problem, seconds: FloatArray, options: Options) -> FloatArray:
    """[V, D] seconds that pass at least after op v has finished on device d, given [V, D] op seconds."""
    sending = _sending(problem, options)
    turned = Sending(np.ascontiguousarray(sending.per_transfer.T), np.ascontiguousarray(sending.per_byte.T))
    return heads(_incoming(problem, turned=True), seconds[::-1], turned)[::-1]


def _incoming(problem: Problem, turned: bool = False) -> Incoming:
    """The edges that count; `turned` has the ops numbered from the last to the first, and all edges the other way."""
    graph = problem.graph
    kept = ~graph.edge_back & ~graph.replicable[graph.edge_src] & ~graph.replicable[graph.edge_dst]
    src, dst, tensor = graph.edge_src[kept], graph.edge_dst[kept], graph.edge_tensor[kept]
    held_by_variable = np.array([kind in HELD_BY_VARIABLE for kind in graph.op_types], np.bool_)
    size = np.where((tensor >= 0) & ~held_by_variable[src], np.append(graph.tensor_bytes, 0)[tensor], 0)
    unit, trips = problem.grouping.unit_of, graph.trips[src]
    same_unit = unit[src] == unit[dst]
    if turned:
        src, dst = graph.num_ops - 1 - dst, graph.num_ops - 1 - src
    order = np.argsort(dst, kind="stable")
    first = np.searchsorted(dst[order], np.arange(graph.num_ops + 1))
    return Incoming(first, src[order], trips[order], (trips * size)[order], same_unit[order])


def _sending(problem: Problem, options: Options) -> Sending:
    topology = problem.topology
    per_transfer, per_byte = topology.latency_s.copy(), 1.0 / topology.bandwidth
    if options.overheads:
        send_s, send_s_per_byte, receive_s, receive_s_per_byte = topology.link_overheads
        per_transfer += send_s + receive_s
        per_byte += send_s_per_byte + receive_s_per_byte
    return Sending(np.ascontiguousarray(per_transfer), np.ascontiguousarray(per_byte))
