"""A Problem from plain arrays: no model, no TensorFlow."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import AttrValue, OpGraph, Variable
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.errors import ConstraintError, GraphError
from tfplace.group.problem import formulate


def problem_from_arrays(
    compute_s: ArrayLike,
    edges: ArrayLike,
    topology: Topology | str,
    *,
    edge_bytes: ArrayLike = 0,
    edge_output: ArrayLike = 0,
    memory_bytes: ArrayLike = 0,
    allowed: ArrayLike | None = None,
    groups: ArrayLike = -1,
    trips: ArrayLike = 1.0,
    op_names: Sequence[str] | None = None,
    op_attrs: Sequence[Mapping[str, AttrValue]] | None = None,
    constraints: Constraints | None = None,
    name: str = "arrays",
) -> Problem:
    """A problem whose ops, costs and edges are given as numbers.

    Ops keep the order in which they are given if that is topological. Else they are put in one that is, the earliest
    given first where there is a choice; `problem.graph.op_names` tells which. Edges that carry the same output of an op
    carry one tensor, which is sent to a device once however many ops read it there.

    Args:
      compute_s: [V, D] seconds each op takes on each device; infinite where it may not be.
      edges: [E, 2] producing and consuming op.
      topology: the devices, in the order of the columns, and the links; or a preset's name.
      edge_bytes: [E] bytes of the tensor that each edge carries, or one number for all.
      edge_output: [E] which output of its producer an edge carries, from 0, or one number for all.
      memory_bytes: [V] bytes that an op holds on its device all the time, as variables do, or one number for all.
      allowed: [V, D] where each op may be; by default wherever `compute_s` is finite.
      groups: [V] ops of the same number are placed together; -1 is no group.
      trips: [V] times each op runs in a step, and its outputs are sent; `compute_s` is of all of them together.
      op_names: [V] by default "op0", "op1" and so on.
      op_attrs: [V] plain attributes.
      constraints: pin, forbid, colocate and memory limits, by op name.
      name: of the graph, in reports.

    Raises:
      GraphError: arrays of wrong shapes or with wrong numbers, a cycle, or edges that carry one output with different
        bytes.
      ConstraintError: an op or group that may be nowhere, or as for `tfplace.formulate`.

    >>> problem_from_arrays([[1, 2, 2], [3, 1, 1]], [[0, 1]], "2xP100", edge_bytes=8)
    Problem('arrays', 2 units, 3 devices of '2xP100')
    """
    topology = Topology.load(topology)
    seconds = numbers(compute_s, "compute_s").astype(np.float64)
    if seconds.ndim != 2 or seconds.shape[1] != len(topology.devices):
        expected = f"[V, {len(topology.devices)}], a column for each device of {topology.name!r}"
        raise GraphError(f"compute_s of shape {seconds.shape}", expected)
    count = len(seconds)
    pairs = _pairs(edges, count)
    order = topological_order(count, pairs)
    sizes = each(edge_bytes, len(pairs), "edge_bytes", np.int64)
    tensors = _tensors(order, pairs, sizes, each(edge_output, len(pairs), "edge_output", np.int32))
    names = [f"op{v}" for v in range(count)] if op_names is None else list(op_names)
    attrs: Sequence[Mapping[str, AttrValue]] = [{}] * count if op_attrs is None else op_attrs
    if len(names) != count or len(attrs) != count:
        raise GraphError(f"{len(names)} op names, {len(attrs)} op attributes", f"one for each of {count} ops")
    graph = _graph(
        name,
        topology,
        tensors,
        names=[names[v] for v in order],
        attrs=[attrs[v] for v in order],
        held=each(memory_bytes, count, "memory_bytes", np.int64)[order],
        groups=each(groups, count, "groups", np.int32)[order],
        trips=each(trips, count, "trips", np.float64)[order],
    )
    may = np.isfinite(seconds) if allowed is None else np.isfinite(seconds) & _same_shape(allowed, seconds)
    costs = CostTable(_finite(seconds)[order], ("given",) * count)
    return _restrict(formulate(graph, topology, costs, constraints or Constraints()), may[order])


def topological_order(count: int, pairs: NDArray[np.int64]) -> list[int]:
    """[V] ops before those that read them; of several that could come next the one with the lowest number.

    Raises:
      GraphError: a cycle.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waiting = np.bincount(pairs[:, 1], minlength=count).tolist()
    for src, dst in pairs.tolist():
        after[src].append(dst)
    ready = [v for v in range(count) if not waiting[v]]
    order: list[int] = []
    while ready:
        v = heapq.heappop(ready)
        order.append(v)
        for w in after[v]:
            waiting[w] -= 1
            if not waiting[w]:
                heapq.heappush(ready, w)
    if len(order) != count:
        stuck = [v for v in range(count) if waiting[v]]
        raise GraphError(f"a cycle through some of the ops {stuck[:10]}", "edges without a cycle")
    return order


def each(values: ArrayLike, count: int, what: str, dtype: type[Any]) -> NDArray[Any]:
    """[count] the values, or one value for all.

    Raises:
      GraphError: another number of values, or values that are not of the type.
    """
    given = numbers(values, what)
    if given.shape not in ((), (count,)):
        raise GraphError(f"{what} of shape {given.shape}", f"one number, or {count} of them")
    with np.errstate(invalid="ignore"):  # what does not survive is said to be wrong below
        out = given.astype(dtype)
    if not np.array_equal(out, given):
        kind = "finite numbers" if np.dtype(dtype).kind == "f" else f"whole numbers of type {np.dtype(dtype).name}"
        raise GraphError(f"{what} that are not all {kind}", kind)
    return np.broadcast_to(out, (count,)).copy()


def numbers(values: ArrayLike, what: str) -> NDArray[Any]:
    """The values as an array.

    Raises:
      GraphError: they are no numbers, or rows of unequal lengths.
    """
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise GraphError(f"{what} with rows of unequal lengths ({error})", "an array of numbers") from error
    if given.dtype.kind not in "buif":
        raise GraphError(f"{what} of type {given.dtype}", "an array of numbers of at most 64 bits")
    return given


class _Tensors(NamedTuple):
    """[T] tensors by producer and output, and [E] the edges in the graph's numbering of ops."""

    op: IntArray
    slot: IntArray
    size: LongArray
    src: IntArray
    dst: IntArray
    of_edge: IntArray


def _tensors(order: Sequence[int], pairs: NDArray[np.int64], sizes: LongArray, outputs: IntArray) -> _Tensors:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ends = place[pairs]
    made, first, of_edge = np.unique(
        np.stack([ends[:, 0], outputs], axis=1), axis=0, return_index=True, return_inverse=True
    )
    of_edge = of_edge.ravel()
    wrong = np.flatnonzero(sizes[first][of_edge] != sizes)
    if len(wrong):
        src, output = pairs[wrong[0], 0], outputs[wrong[0]]
        raise GraphError(
            f"{sizes[first][of_edge][wrong[0]]} and {sizes[wrong[0]]} bytes for output {output} of op {src}",
            "the same bytes on all edges that carry one output",
            "Number the outputs of an op with edge_output.",
        )
    if made.size and made[:, 1].min() < 0:
        raise GraphError(f"edge_output {made[:, 1].min()}", "outputs numbered from 0")
    op, slot, src, dst, index = (a.astype(np.int32) for a in (*made.T, *ends.T, of_edge))
    return _Tensors(op, slot, sizes[first], src, dst, index)


def _graph(
    name: str,
    topology: Topology,
    tensors: _Tensors,
    *,
    names: Sequence[str],
    attrs: Sequence[Mapping[str, AttrValue]],
    held: LongArray,
    groups: IntArray,
    trips: FloatArray,
) -> OpGraph:
    count = len(names)
    kinds = tuple(dict.fromkeys(device.type for device in topology.devices))
    if np.any(held < 0) or np.any(groups < -1):
        raise GraphError("negative memory_bytes, or groups below -1", "bytes of at least 0; groups from 0, or -1")
    return OpGraph(
        name=name,
        op_names=tuple(names),
        op_types=("Op",) * count,
        op_attrs=tuple(attrs),
        tensor_op=tensors.op,
        tensor_slot=tensors.slot,
        tensor_dtype=("uint8",) * len(tensors.op),
        tensor_shape=tuple((size,) for size in tensors.size.tolist()),
        tensor_bytes=tensors.size,
        edge_src=tensors.src,
        edge_dst=tensors.dst,
        edge_tensor=tensors.of_edge,
        edge_slot=_input_positions(tensors.dst, count),
        edge_back=np.zeros(len(tensors.src), np.bool_),
        trips=trips,
        colocation=groups,
        resource=np.full(count, -1, np.int32),
        kernel_types=kinds,
        has_kernel=np.ones((count, len(kinds)), np.bool_),
        host_memory=np.zeros(count, np.bool_),
        replicable=np.zeros(count, np.bool_),
        variables=tuple(Variable(names[v], v, size) for v, size in enumerate(held.tolist()) if size),
    )


def _input_positions(dst: IntArray, count: int) -> IntArray:
    """[E] the edges into each op numbered from 0, in the order in which they are listed."""
    order = np.argsort(dst, kind="stable")
    first = np.searchsorted(dst[order], np.arange(count))
    out = np.empty(len(dst), np.int32)
    out[order] = np.arange(len(dst)) - first[dst[order]]
    return out


def _pairs(edges: ArrayLike, count: int) -> NDArray[np.int64]:
    given = numbers(edges, "edges")
    if given.size and given.shape != (len(given), 2):
        raise GraphError(f"edges of shape {given.shape}", "[E, 2]: producing and consuming op")
    pairs = given.reshape(-1, 2).astype(np.int64)
    if not np.array_equal(pairs, given.reshape(-1, 2)):
        raise GraphError("edges with ends that are not whole numbers", f"op indices 0 to {count - 1}")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= count):
        raise GraphError(f"edges between ops {pairs.min()} to {pairs.max()}", f"op indices 0 to {count - 1}")
    return pairs


def _same_shape(allowed: ArrayLike, seconds: FloatArray) -> BoolArray:
    may = np.asarray(allowed, np.bool_)
    if may.shape != seconds.shape:
        raise GraphError(f"allowed of shape {may.shape}", f"shape {seconds.shape}, like compute_s")
    return may


def _finite(seconds: FloatArray) -> FloatArray:
    """The seconds; where they are infinite, and nothing is ever run, the least of the op's, so that sums stay fair."""
    if np.any(np.isnan(seconds)) or np.any(seconds < 0):
        raise GraphError("compute_s with negative seconds or NaN", "compute_s of at least 0, or infinite")
    least = seconds.min(axis=1, keepdims=True)
    return np.where(np.isfinite(seconds), seconds, np.where(np.isfinite(least), least, 0.0))


def _restrict(problem: Problem, may: BoolArray) -> Problem:
    """The problem with ops only where they may be, [V, D].

    Raises:
      ConstraintError: an op, or a group, that may be nowhere then.
    """
    allowed = problem.allowed.copy()
    np.logical_and.at(allowed, problem.grouping.unit_of, may)
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck):
        ops = [problem.graph.op_names[v] for v in problem.grouping.members[stuck[0]][:3]]
        raise ConstraintError(
            f"{', '.join(ops)}, which may be on no device", "a device that all ops of a group, and the rules, allow"
        )
    return dataclasses.replace(problem, allowed=allowed)
