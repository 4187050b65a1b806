"""Which ops of a placed step can be compiled together, by their indices; on flat arrays, as searches ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray, freeze
from tfplace.core.control_flow import control_flow
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.xla_ops import COMPILABLE, COMPILE_TIME, DRAWS, LISTS
from tfplace.execution.blocks import changes, merged, topological
from tfplace.execution.dependencies import GIVEN, Dependencies, copied
from tfplace.execution.static import static_tensors
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.execution.while_loops import LOOP_OPS, WhileLoop, loops_of, while_loop

FEWEST_OPS = 4
"""Clusters with fewer ops that do something run op by op: to start one costs as much as a few ops."""

_REFERENCES = frozenset({"Variable", "VariableV2"})

_FREE = frozenset({"Const", "Identity", "NoOp", "PreventGradient", "ReadVariableOp", "StopGradient"})
"""Ops that do not count as work of a cluster."""

_ALSO_OF_LISTS = frozenset({"AddN", "Identity", "ZerosLike"})
"""Ops that XLA compiles for lists of tensors as well."""


class ClusterOps(NamedTuple):
    """Clusters by the indices of their ops.

    Attributes:
      ops: [N] the ops of each cluster, in topological order.
      loops: those that can be compiled, by their numbers in `control_flow`.
      left_out: see `Clusters`.
    """

    ops: Sequence[IntArray]
    loops: Mapping[int, WhileLoop]
    left_out: Mapping[str, str]


def find_cluster_ops(
    graph: OpGraph,
    op_device: IntArray,
    devices: Sequence[str],
    *,
    phases: IntArray | None = None,
    waits: Waits = NO_WAITS,
    without: Mapping[str, str] | None = None,
) -> ClusterOps:
    """What `find_clusters` does, with its arguments, but for the names."""
    loop = control_flow(graph).loop
    facts = _facts(graph)
    why = {**facts.why_not, **(without or {})}
    loops = _loops(graph, loop, op_device, why)
    out = facts.out.copy()
    if len(why) > len(facts.why_not):
        out |= np.array([name in why for name in graph.op_names])
    known = Dependencies.of(graph, waits)
    order = topological(known.first, known.before)
    while True:
        blocks = _blocks(graph, known, order, _labels(graph, op_device, devices, phases, out))
        if not (parted := _parted_lists(graph, blocks)):
            break
        for v in parted:
            found = loops.pop(int(loop[v]), None)
            ops = [v] if found is None else [graph.index[name] for name in found.ops]
            out[ops] = True
            why |= dict.fromkeys((graph.op_names[u] for u in ops), "with lists that are read elsewhere")
    for v in _shared_reads(graph, known, blocks):
        blocks[v] = -1
        why[graph.op_names[v]] = "reads a variable for several clusters"
    parts = []
    for part in _members(known, order, blocks):
        drawn = facts.draws[part].any()  # by themselves they would draw other numbers than XLA's
        if drawn or np.count_nonzero(facts.works[part]) >= FEWEST_OPS:
            parts.append(part)
        else:
            why |= {graph.op_names[v]: f"fewer than {FEWEST_OPS} ops together" for v in part.tolist()}
    return ClusterOps(parts, loops, why)


def _blocks(graph: OpGraph, known: Dependencies, order: IntArray, labels: IntArray) -> IntArray:
    """[V] ops of one number can be compiled together; -1 for those that cannot be compiled."""
    label: IntArray = np.append(labels, np.full(known.count - len(labels), -1, np.int32)).astype(np.int32)
    levels = changes(known.first, known.before, order, label)
    _bring_lists(graph, known, label, levels)
    block = merged(known.first, known.before, label, levels)
    return np.where(labels >= 0, block[known.vertex], -1)


def _members(known: Dependencies, order: IntArray, blocks: IntArray) -> list[IntArray]:
    """The ops of each block, in topological order, those of a loop together; the blocks in the order of their first."""
    place = np.empty(known.count, np.int32)
    place[order] = np.arange(known.count, dtype=np.int32)
    ops: IntArray = np.flatnonzero(blocks >= 0).astype(np.int32)
    ops = ops[np.lexsort((ops, place[known.vertex[ops]], blocks[ops]))]
    parts = np.split(ops, np.flatnonzero(np.diff(blocks[ops])) + 1) if len(ops) else []
    return sorted(parts, key=lambda part: int(place[known.vertex[part[0]]]))


class _Facts(NamedTuple):
    """What is known of the ops of a graph wherever they are.

    Attributes:
      why_not: op -> why it cannot be part of a cluster, loops left out.
      out: [V] those, and what runs nowhere, or wherever it is read.
      draws: [V] whether they draw random numbers.
      works: [V] whether they count as work of a cluster.
    """

    why_not: Mapping[str, str]
    out: BoolArray
    draws: BoolArray
    works: BoolArray


@kept
def _facts(graph: OpGraph) -> _Facts:
    why, kinds = _why_not(graph), graph.op_types
    out = _alone(graph) | np.array([name in why for name in graph.op_names], bool)
    draws, free = (np.array([kind in some for kind in kinds], bool) for some in (DRAWS, _FREE))
    return _Facts(why, freeze(out), freeze(draws), freeze(~free))


@kept
def _alone(graph: OpGraph) -> BoolArray:
    """[V] what runs nowhere, or wherever it is read."""
    return freeze(copied(graph) | np.array([kind in GIVEN for kind in graph.op_types], bool))


def _why_not(graph: OpGraph) -> Mapping[str, str]:
    """Op -> why it cannot be part of a cluster, loops left out."""
    alone, flow = _alone(graph), control_flow(graph)
    kept, static = {body.op for body in graph.bodies}, static_tensors(graph)
    in_loop = flow.loop >= 0
    references = np.array([kind in _REFERENCES for kind in graph.op_types], bool)
    why: dict[str, str] = {}
    for v, (name, kind) in enumerate(zip(graph.op_names, graph.op_types, strict=True)):
        if alone[v] or (kind in LOOP_OPS and in_loop[v]):
            continue
        tensors = [*graph.inputs[v], *range(graph.op_tensors[v], graph.op_tensors[v + 1])]
        types = {graph.tensor_dtype[t] for t in tensors}
        if v in kept or kind not in COMPILABLE | LISTS:
            why[name] = f"{kind} cannot be compiled"
        elif "string" in types or ("variant" in types and kind not in LISTS | _ALSO_OF_LISTS):
            why[name] = "texts and variants cannot be compiled"
        elif any(graph.tensor_shape[t] is None for t in tensors):
            why[name] = "tensors of unknown rank"
        elif not (flow.always_ends[v] or in_loop[v]):
            why[name] = "in a branch"
        elif references[graph.tensor_op[list(graph.inputs[v])]].any():
            why[name] = "reads a reference variable"  # the memory itself, and so what is written there later
        elif not all(static[t] for i in COMPILE_TIME.get(kind, ()) for t in _input(graph, v, i)):
            why[name] = "of a size that depends on data"
    return MappingProxyType(why)


def _input(graph: OpGraph, v: int, position: int) -> tuple[int, ...]:
    """The tensor at a position of an op's inputs; none in a graph made by hand whose op has fewer."""
    row = graph.inputs[v]
    return (row[position],) if -len(row) <= position < len(row) else ()


def _loops(graph: OpGraph, loop: IntArray, op_device: IntArray, why: dict[str, str]) -> dict[int, WhileLoop]:
    """The outermost loops that can be compiled; the ops of the others are added to `why`."""
    out = {}
    for one, ops in loops_of(graph, loop).items():
        names = [graph.op_names[v] for v in ops]
        found = while_loop(graph, ops)
        if len({*op_device[ops].tolist()}) > 1:
            found = "in a loop on several devices"
        elif any(name in why for name in names):
            found = "in a loop with others that cannot be compiled"
        if isinstance(found, str):
            why |= dict.fromkeys(names, found) | {name: why[name] for name in names if name in why}
        else:
            out[one] = found
    return out


def _bring_lists(graph: OpGraph, known: Dependencies, label: IntArray, levels: IntArray) -> None:
    """Raises the levels of ops that make lists to those of their first readers, as lists cannot leave a cluster."""
    makers = np.unique(_list_edges(graph)[:, 0])
    alone = np.bincount(known.vertex, minlength=known.count)[known.vertex[makers]] == 1
    makers = makers[alone & (label[makers] >= 0)]
    pairs = known.pairs[np.argsort(known.before, kind="stable")]
    starts, ends = (np.searchsorted(pairs[:, 0], makers, side) for side in ("left", "right"))
    for u, start, end in reversed([*zip(makers.tolist(), starts.tolist(), ends.tolist(), strict=True)]):
        readers = pairs[start:end, 1]  # their levels are raised by now, as they come later
        if len(readers):
            levels[u] = max(levels[u], (levels[readers] - (label[readers] != label[u])).min())


@kept
def _list_edges(graph: OpGraph) -> LongArray:
    """[L, 2] producer and reader of each edge that carries a list that is not copied."""
    variant = np.array([*(dtype == "variant" for dtype in graph.tensor_dtype), False])
    chosen = variant[graph.edge_tensor] & ~copied(graph)[graph.edge_src]
    return freeze(np.stack([graph.edge_src[chosen], graph.edge_dst[chosen]], axis=1).astype(np.int64))


def _parted_lists(graph: OpGraph, blocks: IntArray) -> list[int]:
    """Ops of a block that share a list of tensors with one that is not in the block."""
    pairs = _list_edges(graph)
    parted = pairs[blocks[pairs[:, 0]] != blocks[pairs[:, 1]]]
    return [v for v in dict.fromkeys(parted.reshape(-1).tolist()) if blocks[v] >= 0]


def _shared_reads(graph: OpGraph, known: Dependencies, blocks: IntArray) -> list[int]:
    """Ops that read a variable at once for another block than their own: XLA would copy what they read out of it.

    By itself such an op takes no time. It waits for nothing, so that no block comes to wait for itself.
    """
    away = (blocks[graph.edge_src] != blocks[graph.edge_dst]) & (graph.edge_tensor >= 0)
    makers = np.unique(graph.edge_src[away & (blocks[graph.edge_src] >= 0)])
    waits = np.diff(known.first)[known.vertex[makers]] > 0
    return [v for v in makers[~waits].tolist() if graph.op_types[v] == "ReadVariableOp"]


def _labels(
    graph: OpGraph, op_device: IntArray, devices: Sequence[str], phases: IntArray | None, none: BoolArray
) -> IntArray:
    """[V] what may be compiled together: ops of one number, none of -1.

    In one cluster XLA would find an op and its copy that computes it again to be the same, and keep the result. Draws
    of random numbers begin as soon as the step does, so that with several clusters they would all be in the first one,
    and their results leave it. On a CPU such a cluster was seen to take several times as long as with the draws in one
    of their own.
    """
    again = np.zeros(graph.num_ops, np.int32) if graph.recomputes is None else graph.recomputes >= 0
    slice_of = np.full(graph.num_ops, -1) if graph.slices is None else graph.slices.slice_of
    phase = np.full(graph.num_ops, -1) if phases is None else phases
    key = op_device.astype(np.int64)
    for column in (slice_of, phase, again):
        key = key * (int(column.max(initial=-1)) + 2) + column + 1
    if len(np.unique(key[~none])) > 1:
        on_cpu = np.array(["CPU:" in device for device in devices])
        key = 2 * key + (_facts(graph).draws & on_cpu[op_device])
    label = np.full(graph.num_ops, -1, np.int32)
    label[~none] = np.unique(key[~none], return_inverse=True)[1].reshape(-1)
    return label
