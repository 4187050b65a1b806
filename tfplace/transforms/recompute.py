"""Rematerialization: forward ops are copied, and the backward pass reads the copies (T. Chen et al., 2016).

Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174, section 4. What is not
copied is kept, and the copies compute the rest from it. A runtime that runs what is ready would run the copies at once
and save nothing, so copies wait for the gradient that comes to their segment; and for the readers of the segment
before, so that not two of them are in memory at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.control_flow import control_flow
from tfplace.core.graph import OpGraph, UnknownShape
from tfplace.core.passes import late_ops
from tfplace.core.slices import Slices
from tfplace.errors import GraphError
from tfplace.transforms.late_order import late_order, whole_loops
from tfplace.transforms.recomputable import recomputable_ops

IndexArray = NDArray[np.signedinteger]

SUFFIX = "/recomputed"
"""How names of copies end."""


@dataclass(frozen=True)
class Recomputation:
    """Ops that are computed again together.

    Attributes:
      ops: that are copied, ascending.
      readers: late ops that read them, and read the copies instead.
      waits: late ops that the copies wait for.
    """

    ops: tuple[int, ...]
    readers: tuple[int, ...]
    waits: tuple[int, ...]


def recompute(graph: OpGraph, segments: Sequence[Iterable[int]]) -> OpGraph:
    """The same step in which the results of some forward ops are computed again for the backward pass.

    Args:
      graph: a training step.
      segments: ops whose results are not kept for the backward pass, by index. What one segment has for another is
        kept. Parts of a segment between which nothing is read wait for gradients of their own; if none comes to a
        part, its results are kept.

    Returns:
      The graph, without origin. Without anything to compute again it is the graph that was given.

    Raises:
      GraphError: an op of two segments, one that cannot be computed again with the same result, or a graph in which
        something is computed again already.
    """
    recomputations = _acyclic(graph, recomputations_of(graph, _checked(graph, segments)))
    return _written(graph, recomputations) if recomputations else graph


def _checked(graph: OpGraph, segments: Sequence[Iterable[int]]) -> IntArray:
    """[V] the segment of each op, or -1."""
    if graph.recomputes is not None:
        raise GraphError(f"{graph.name!r}, which recomputes ops already", "a graph without recomputation")
    segment = np.full(graph.num_ops, -1, np.int32)
    possible = recomputable_ops(graph)
    for i, ops in enumerate(segments):
        for v in ops:
            if segment[v] not in (-1, i):
                raise GraphError(f"{graph.op_names[v]!r} in two segments", "every op in at most one segment")
            if not possible[v]:
                raise GraphError(
                    f"{graph.op_names[v]!r} ({graph.op_types[v]}) as an op to recompute",
                    "forward ops whose results depend on their inputs alone, outside of loops and branches",
                    "Leave it out: its results are kept.",
                )
            segment[v] = i
    return segment


def recomputations_of(graph: OpGraph, segment: IntArray) -> list[Recomputation]:
    """What is copied and what it waits for, in the order in which the backward pass needs it.

    Args:
      graph: [V] ops.
      segment: [V] segment of each op whose results are not kept, or -1.
    """
    late = late_ops(graph)
    data = (graph.edge_tensor >= 0) & ~graph.edge_back
    src, dst = graph.edge_src[data], graph.edge_dst[data]
    dropped = segment >= 0
    dropped[src[dropped[src] & dropped[dst] & (segment[src] != segment[dst])]] = False
    readers: dict[int, list[int]] = {}
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        if dropped[u] and late[v]:
            readers.setdefault(u, []).append(v)
    copied = np.zeros(graph.num_ops, np.bool_)
    copied[list(readers)] = True
    inner = dropped[src] & dropped[dst]
    for u, v in sorted(zip(src[inner].tolist(), dst[inner].tolist(), strict=True), key=lambda edge: -edge[1]):
        copied[u] |= copied[v]
    order = late_order(graph)
    parts = []
    for ops in _parts(graph.num_ops, copied, src[inner], dst[inner]):
        of_part = tuple(dict.fromkeys(v for u in ops for v in readers.get(u, ())))
        parts.append((order.needed(of_part), ops, of_part))
    out: list[Recomputation] = []
    before: dict[int, tuple[int, ...]] = {}
    for _, ops, of_part in sorted(parts):
        if not (triggers := order.triggers(of_part)):
            continue
        k = -1 if graph.slices is None else int(graph.slices.slice_of[ops[0]])
        waits = order.last([*triggers, *order.apart(before.get(k, ()), of_part)])
        out.append(Recomputation(ops, of_part, tuple(waits)))
        before[k] = of_part
    return out


def _parts(size: int, copied: BoolArray, src: IntArray, dst: IntArray) -> list[tuple[int, ...]]:
    """Copied ops that are connected."""
    joined = copied[src] & copied[dst]
    links = coo_array((np.ones(int(joined.sum()), np.int8), (src[joined], dst[joined])), shape=(size, size))
    label = connected_components(links.tocsr(), directed=False)[1]
    out: dict[int, list[int]] = {}
    for v in np.flatnonzero(copied).tolist():
        out.setdefault(int(label[v]), []).append(v)
    return [tuple(ops) for ops in out.values()]


def _acyclic(graph: OpGraph, recomputations: list[Recomputation]) -> list[Recomputation]:
    """Those among which none waits for itself by way of others: of each circle, the last one keeps its results."""
    vertex = whole_loops(graph, control_flow(graph))
    size = int(vertex.max()) + 1
    src, dst = vertex[graph.edge_src], vertex[graph.edge_dst]
    apart = src != dst
    out = list(recomputations)
    while out:
        rows = [(int(vertex[u]), size + i) for i, one in enumerate(out) for u in (*one.waits, *one.ops)]
        rows += [(size + i, int(vertex[v])) for i, one in enumerate(out) for v in one.readers]
        added = np.array(rows, np.int32)
        ends = np.concatenate([src[apart], added[:, 0]]), np.concatenate([dst[apart], added[:, 1]])
        links = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(size + len(out),) * 2)
        label = connected_components(links.tocsr(), connection="strong")[1]
        alone = np.bincount(label)[label] == 1
        if alone[size:].all():
            break
        out.pop(int(np.flatnonzero(~alone[size:])[-1]))
    return out


# ---- the graph that is written ---------------------------------------------------------------------------------------


class _Edges(NamedTuple):
    """Arrays as of an OpGraph, but that tensors are told by their op and slot."""

    src: IntArray
    dst: IntArray
    slot: IntArray
    position: IntArray
    back: BoolArray

    def sorted(self, order: IndexArray) -> _Edges:
        """The same edges in another order."""
        return _Edges(self.src[order], self.dst[order], self.slot[order], self.position[order], self.back[order])


def _written(graph: OpGraph, recomputations: Sequence[Recomputation]) -> OpGraph:
    copies = [v for one in recomputations for v in one.ops]
    of = np.concatenate([np.arange(graph.num_ops), copies]).astype(np.int32)
    edges = _edges(graph, recomputations)
    order = _order(graph, of, edges, recomputations)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    of = of[order]
    counts = np.diff(graph.op_tensors)[of]
    first = np.concatenate([[0], np.cumsum(counts)])
    slot = np.arange(first[-1]) - np.repeat(first[:-1], counts)
    tensors = np.repeat(graph.op_tensors[of], counts) + slot
    by_reader = np.lexsort((edges.position, edges.position < 0, place[edges.dst]))
    edges = edges.sorted(by_reader)
    tensor = np.where(edges.slot >= 0, first[place[edges.src]] + edges.slot, -1)
    copied = order >= graph.num_ops
    names = _names(graph, of, copied)
    at = place[: graph.num_ops].tolist()
    return replace(
        graph,
        op_names=names,
        op_types=tuple(graph.op_types[v] for v in of.tolist()),
        op_attrs=tuple(graph.op_attrs[v] for v in of.tolist()),
        tensor_op=np.repeat(np.arange(len(of)), counts).astype(np.int32),
        tensor_slot=slot.astype(np.int32),
        tensor_dtype=tuple(graph.tensor_dtype[t] for t in tensors.tolist()),
        tensor_shape=tuple(graph.tensor_shape[t] for t in tensors.tolist()),
        tensor_bytes=graph.tensor_bytes[tensors],
        edge_src=place[edges.src],
        edge_dst=place[edges.dst],
        edge_tensor=tensor.astype(np.int32),
        edge_slot=edges.position,
        edge_back=edges.back,
        trips=graph.trips[of],
        colocation=_colocation(graph, copies)[of],
        resource=graph.resource[of],
        has_kernel=graph.has_kernel[of],
        host_memory=graph.host_memory[of],
        replicable=graph.replicable[of],
        variables=tuple(replace(variable, op=at[variable.op]) for variable in graph.variables),
        unknown=_unknown(graph, tensors, np.repeat(np.arange(len(of)), counts), names),
        bodies=tuple(replace(body, op=at[body.op]) for body in graph.bodies),
        slices=_slices(graph.slices, of),
        recomputes=np.where(copied, place[of], -1).astype(np.int32),
        origin=None,
    )


def _edges(graph: OpGraph, recomputations: Sequence[Recomputation]) -> _Edges:
    """Edges between ops and copies, which are numbered from V on in the order of the recomputations."""
    data = graph.edge_tensor >= 0
    slot = np.where(data, graph.tensor_slot[graph.edge_tensor], -1)
    rows = np.stack([graph.edge_src, graph.edge_dst, slot, graph.edge_slot, graph.edge_back], axis=1)
    into: dict[int, list[int]] = {}
    for e in np.flatnonzero(data & ~graph.edge_back).tolist():
        into.setdefault(int(graph.edge_dst[e]), []).append(e)
    more: list[tuple[int, int, int, int, bool]] = []
    count = graph.num_ops
    for one in recomputations:
        copy = {v: count + i for i, v in enumerate(one.ops)}
        count += len(copy)
        for v in one.readers:
            for e in into[v]:
                rows[e, 0] = copy.get(int(graph.edge_src[e]), rows[e, 0])
        for v, c in copy.items():
            inputs = [(int(graph.edge_src[e]), int(slot[e]), int(graph.edge_slot[e])) for e in into.get(v, ())]
            more += [(copy.get(u, u), c, s, position, False) for u, s, position in inputs]
            if not any(u in copy for u, _, _ in inputs):
                more += [(u, c, -1, -1, False) for u in one.waits]
    table = np.concatenate([rows, np.array(more, np.int64).reshape(-1, 5)])
    src, dst, slots, position = (table[:, i].astype(np.int32) for i in range(4))
    return _Edges(src, dst, slots, position, table[:, 4].astype(np.bool_))


def _order(graph: OpGraph, of: IntArray, edges: _Edges, recomputations: Sequence[Recomputation]) -> IntArray:
    """Ops and copies in topological order: ops as they were where that can be, copies just before their readers."""
    rank = of.tolist()
    count = graph.num_ops
    for one in recomputations:
        rank[count : count + len(one.ops)] = [min(one.readers)] * len(one.ops)
        count += len(one.ops)
    missing = np.bincount(edges.dst[~edges.back], minlength=len(of)).tolist()
    after: list[list[int]] = [[] for _ in rank]
    for u, v in zip(edges.src[~edges.back].tolist(), edges.dst[~edges.back].tolist(), strict=True):
        after[u].append(v)
    ready = [(rank[v], v < graph.num_ops, v) for v, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    out = []
    while ready:
        *_, u = heapq.heappop(ready)
        out.append(u)
        for v in after[u]:
            missing[v] -= 1
            if not missing[v]:
                heapq.heappush(ready, (rank[v], v < graph.num_ops, v))
    return np.array(out, np.int32)


def _names(graph: OpGraph, of: IntArray, copied: BoolArray) -> tuple[str, ...]:
    taken = set(graph.op_names)
    out = []
    for v, is_copy in zip(of.tolist(), copied.tolist(), strict=True):
        name = graph.op_names[v] + (SUFFIX if is_copy else "")
        while is_copy and name in taken:
            name += "_"
        taken.add(name)
        out.append(name)
    return tuple(out)


def _colocation(graph: OpGraph, copies: Sequence[int]) -> IntArray:
    """[V] colocation groups in which every op that is copied has one, which is its copy's as well."""
    out = graph.colocation.copy()
    alone = [v for v in copies if out[v] < 0]
    out[alone] = int(out.max(initial=-1)) + 1 + np.arange(len(alone))
    return out


def _unknown(graph: OpGraph, tensors: IntArray, makers: IntArray, names: Sequence[str]) -> tuple[UnknownShape, ...]:
    guessed = {shape.tensor: shape for shape in graph.unknown}
    return tuple(
        replace(guessed[t], tensor=i, op=names[makers[i]]) for i, t in enumerate(tensors.tolist()) if t in guessed
    )


def _slices(slices: Slices | None, of: IntArray) -> Slices | None:
    if slices is None:
        return None
    return replace(slices, slice_of=slices.slice_of[of], original=tuple(slices.original[v] for v in of.tolist()))
