"""What a compiled step costs: a cluster starts when all it reads is there, and nothing leaves it before its end.

The simulator lets each op of a compiled step start by itself, with the seconds that it takes compiled: quick enough for
a search, but on several devices too fast, as a device sends a gradient before its cluster has ended. Here the ops of
each cluster are one op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, freeze
from tfplace.core.compilation import NONE
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.kept import kept
from tfplace.core.placement import FREE
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.timeline import Timeline
from tfplace.execution.blocks import topological
from tfplace.execution.cluster_ops import find_cluster_ops
from tfplace.execution.dependencies import Dependencies, awaited, copied
from tfplace.execution.phases import phase_waits
from tfplace.simulation.evaluate import Simulator, timeline_in_phases
from tfplace.simulation.options import DEFAULT, Options

CALL = "StatefulPartitionedCall"
"""Type of the op that runs a cluster."""


@dataclass(frozen=True, eq=False)
class ClusteredStep:
    """A compiled step whose clusters are single ops.

    Attributes:
      problem: of [N] clusters and ops that are in none.
      op_device: [N].
      vertex: [V] the cluster of each op of the step, or itself.
      simulator: simulates it, with its phases.
    """

    problem: Problem
    op_device: IntArray
    vertex: IntArray
    simulator: Simulator


def clustered_step(problem: Problem, op_device: IntArray, phases: IntArray | None, options: Options) -> ClusteredStep:
    """The step as it runs.

    Args:
      problem: with the costs of a compiled step.
      op_device: [V] device of each op.
      phases: [V] as in `Placement.phases`; None for none.
      options: of the simulation; its orders of phases do not count.

    Raises:
      ApplyError: by the phases an op would wait for itself.
    """
    graph, devices = problem.graph, problem.topology.device_names
    waits = phase_waits(graph, op_device, phases, devices)
    vertex = _vertices(graph, find_cluster_ops(graph, op_device, devices, phases=phases, waits=waits).ops)
    first = np.full(int(vertex.max()) + 1, -1, np.int32)
    first[vertex[::-1]] = np.arange(graph.num_ops, dtype=np.int32)[::-1]
    whole = _as_clusters(problem, vertex, first)
    own = None if phases is None else phases[first]
    return ClusteredStep(whole, op_device[first], vertex, Simulator(whole, _without_orders(options), phases=own))


def clustered_cost(problem: Problem, op_device: IntArray, phases: IntArray | None, options: Options) -> StepCost:
    """The cost of a compiled step. Memory is that of its ops by themselves: XLA needs no more, for it frees as they do.

    Args:
      problem: see `clustered_step`.
      op_device: see there.
      phases: see there.
      options: see there.

    Raises:
      ApplyError: see there.
    """
    by_ops = Simulator(problem, _without_orders(options), phases=phases).devices(op_device)
    if is_on_one_device(problem, op_device):
        return by_ops
    step = clustered_step(problem, op_device, phases, options)
    return replace(step.simulator.devices(step.op_device), peak_bytes=by_ops.peak_bytes)


def is_on_one_device(problem: Problem, op_device: IntArray) -> bool:
    """Whether a step computes without a pause, so that it is the same by clusters and by ops."""
    return len(np.unique(op_device[~problem.graph.replicable])) < 2


def timeline_as_run(problem: Problem, op_device: IntArray, phases: IntArray | None) -> Timeline:
    """When everything happens in a step with its phases; in a compiled one, a cluster's ops follow one another.

    Args:
      problem: what is placed.
      op_device: [V].
      phases: see `clustered_step`.
    """
    by_ops = timeline_in_phases(problem, op_device, phases)
    if problem.compile == NONE or is_on_one_device(problem, op_device):
        return by_ops
    step = clustered_step(problem, op_device, phases, DEFAULT)
    by_clusters = step.simulator.timeline(step.op_device)
    seconds = problem.costs.compute_s[np.arange(len(op_device)), op_device]
    order = np.argsort(step.vertex, kind="stable")
    done = np.cumsum(seconds[order])
    before = done - seconds[order]
    own, begins = step.vertex[order], np.empty(len(order))
    first = np.searchsorted(own, own)
    begins[order] = by_clusters.start_s[own] + before - before[first]
    moved = {name: getattr(by_clusters, name) for name in _MOVED}
    return replace(by_ops, start_s=begins, finish_s=begins + seconds, **moved)


_MOVED = ("moved", "moved_bytes", "moved_src", "moved_dst", "moved_start_s", "moved_finish_s")


def _without_orders(options: Options) -> Options:
    return replace(options, phase_orders=(FREE,))


def _vertices(graph: OpGraph, clusters: Sequence[IntArray]) -> IntArray:
    """[V] the vertex of each op, one for each cluster and each op that is in none, numbered in a topological order."""
    of = np.arange(graph.num_ops, dtype=np.int32)
    for ops in clusters:
        of[ops] = ops.min()
    src, dst, *_, back = _edges(graph)
    pairs = np.stack([of[src[~back]], of[dst[~back]]], axis=1).astype(np.int64)
    known = Dependencies.made(of, graph.num_ops, [pairs])
    order = topological(known.first, known.before)
    order = order[of[order] == order]
    number = np.empty(graph.num_ops, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number[of]


@kept
def _edges(graph: OpGraph) -> tuple[IntArray, IntArray, IntArray, IntArray, BoolArray]:
    """[E] the graph's edges; but what waits for a constant, which has copies, waits for what that waits for."""
    is_copied = copied(graph)
    own = ~is_copied[graph.edge_dst]
    reads = np.unique(graph.edge_dst[is_copied[graph.edge_src]]).tolist()
    before = awaited(graph) if len(reads) else []
    added = np.array([(u, v) for v in reads if not is_copied[v] for u in before[v]], np.int32).reshape(-1, 2)
    none: IntArray = np.full(len(added), -1, np.int32)
    found = (
        np.concatenate([graph.edge_src[own], added[:, 0]]),
        np.concatenate([graph.edge_dst[own], added[:, 1]]),
        np.concatenate([graph.edge_tensor[own], none]),
        np.concatenate([graph.edge_slot[own], none]),
        np.concatenate([graph.edge_back[own], np.zeros(len(added), bool)]),
    )
    for array in found:
        freeze(array)
    return found


def _as_clusters(problem: Problem, vertex: IntArray, first: IntArray) -> Problem:
    """The problem in which ops of one vertex are one op, which is a unit of its own.

    Args:
      problem: [V] ops.
      vertex: [V] of each op.
      first: [N] the first op of each vertex.
    """
    graph = problem.graph
    count, is_cluster = len(first), np.bincount(vertex) > 1
    whole = _contracted(graph, vertex, first, is_cluster)
    seconds: FloatArray = np.zeros((count, problem.num_devices))
    np.add.at(seconds, vertex, np.where(graph.replicable[:, None], 0.0, problem.costs.compute_s))
    units = np.where(whole.replicable, -1, np.cumsum(~whole.replicable) - 1).astype(np.int32)
    num_units = int(units.max(initial=-1)) + 1
    return Problem(
        graph=whole,
        topology=problem.topology,
        costs=CostTable(seconds, tuple(problem.costs.provenance[v] for v in first.tolist())),
        constraints=problem.constraints,
        grouping=Grouping(units, num_units),
        allowed=np.ones((num_units, problem.num_devices), bool),
        memory_limit=problem.memory_limit,
        follows=vertex[problem.follows[first]],
        compile=problem.compile,
    )


def _contracted(graph: OpGraph, vertex: IntArray, first: IntArray, is_cluster: BoolArray) -> OpGraph:
    """[N] ops, of which those that are clusters have the results that others read."""
    src, dst, tensor, slot, back = _edges(graph)
    outside = vertex[src] != vertex[dst]
    kept = ~is_cluster[vertex[graph.tensor_op]]
    kept[tensor[outside & (tensor >= 0)]] = True
    tensors = np.flatnonzero(kept)
    tensors = tensors[np.argsort(vertex[graph.tensor_op[tensors]], kind="stable")]
    number = np.full(graph.num_tensors + 1, -1, np.int32)  # the last is that of a control edge
    number[tensors] = np.arange(len(tensors), dtype=np.int32)
    maker = vertex[graph.tensor_op[tensors]]
    edges = outside | ~is_cluster[vertex[src]]
    src, dst, tensor, slot, back = (
        vertex[src[edges]],
        vertex[dst[edges]],
        number[tensor[edges]],
        slot[edges],
        back[edges],
    )
    slot[is_cluster[dst] & (tensor >= 0)] = 0
    order = np.lexsort((back, slot, tensor, dst, src))
    rows = np.stack([src, dst, tensor, slot, back])[:, order]
    rows = rows[:, np.append(True, (np.diff(rows) != 0).any(axis=0))[: rows.shape[1]]]  # read twice, it is sent once
    src, dst, tensor, slot, back = rows
    reads = np.flatnonzero(is_cluster[dst] & (tensor >= 0))
    reads = reads[np.argsort(dst[reads], kind="stable")]
    slot[reads] = np.arange(len(reads)) - np.searchsorted(dst[reads], dst[reads])

    return OpGraph(
        name=graph.name,
        op_names=tuple(graph.op_names[v] for v in first.tolist()),
        op_types=tuple(CALL if is_cluster[i] else graph.op_types[v] for i, v in enumerate(first.tolist())),
        op_attrs=tuple({} if is_cluster[i] else graph.op_attrs[v] for i, v in enumerate(first.tolist())),
        tensor_op=maker.astype(np.int32),
        tensor_slot=(np.arange(len(maker)) - np.searchsorted(maker, maker)).astype(np.int32),
        tensor_dtype=tuple(graph.tensor_dtype[t] for t in tensors.tolist()),
        tensor_shape=tuple(graph.tensor_shape[t] for t in tensors.tolist()),
        tensor_bytes=graph.tensor_bytes[tensors],
        edge_src=src.astype(np.int32),
        edge_dst=dst.astype(np.int32),
        edge_tensor=tensor.astype(np.int32),
        edge_slot=slot.astype(np.int32),
        edge_back=back.astype(bool),
        trips=np.where(is_cluster, 1.0, graph.trips[first]),
        colocation=np.full(len(first), -1, np.int32),
        resource=np.full(len(first), -1, np.int32),
        kernel_types=graph.kernel_types,
        has_kernel=graph.has_kernel[first],
        host_memory=graph.host_memory[first] & ~is_cluster,
        replicable=graph.replicable[first] & ~is_cluster,
        variables=tuple(replace(variable, op=int(vertex[variable.op])) for variable in graph.variables),
        fetches=tuple(name for name in graph.fetches if not is_cluster[vertex[graph.index[name]]]),
    )
