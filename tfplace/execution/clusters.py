"""Clusters: which ops of a placed step XLA compiles together, device by device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, freeze
from tfplace.core.control_flow import control_flow
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.xla_ops import COMPILABLE, COMPILE_TIME, DRAWS, LISTS
from tfplace.execution.dependencies import GIVEN, Dependencies, changes, copied, merged
from tfplace.execution.static import static_tensors
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.execution.while_loops import LOOP_OPS, WhileLoop, loops_of, while_loop

FEWEST_OPS = 4
"""Clusters with fewer ops that do something run op by op: to start one costs as much as a few ops."""

_REFERENCES = frozenset({"Variable", "VariableV2"})

_FREE = frozenset({"Const", "Identity", "NoOp", "PreventGradient", "ReadVariableOp", "StopGradient"})
"""Ops that do not count as work of a cluster."""

_CALLS = "Cluster"
"""How the names of calls begin."""

_ALSO_OF_LISTS = frozenset({"AddN", "Identity", "ZerosLike"})
"""Ops that XLA compiles for lists of tensors as well."""


@dataclass(frozen=True)
class Cluster:
    """Ops that XLA compiles to one program.

    Attributes:
      name: of the call that takes their place. It begins with a capital, since TensorFlow renames an op that is called
        like a result of its function, and those have none.
      device: TensorFlow device, of all of them.
      ops: names, in topological order; those of a loop stand together.
      loops: that are among them.
    """

    name: str
    device: str
    ops: tuple[str, ...]
    loops: tuple[WhileLoop, ...] = ()


@dataclass(frozen=True)
class Clusters:
    """What of a step is compiled, and what is not.

    Attributes:
      clusters: which may run in this order.
      left_out: op -> why it runs by itself. Arguments, variables and constants that are copied are in neither.
    """

    clusters: tuple[Cluster, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, int]:
        """Why ops were left out -> how many, most first."""
        return dict(Counter(self.left_out.values()).most_common())

    def __str__(self) -> str:
        count, ops = len(self.clusters), sum(len(cluster.ops) for cluster in self.clusters)
        return f"{ops:,} ops in {count} cluster{'s' * (count != 1)}"


def find_clusters(
    graph: OpGraph,
    op_device: IntArray,
    devices: Sequence[str],
    *,
    phases: IntArray | None = None,
    waits: Waits = NO_WAITS,
    without: Mapping[str, str] | None = None,
) -> Clusters:
    """Parts ops into clusters so that no cluster waits for itself.

    What is compiled together has one device, one slice of the batch and one phase; see `merged`. Ops of two slices are
    kept apart, as one slice would else wait for the data of the other, and ops that are computed again from all others.
    XLA's own clustering (`MarkForCompilationPass`) knows neither slices nor phases, and does not tell which ops are in
    its clusters.

    Args:
      graph: [V] ops.
      op_device: [V] device of each op.
      devices: [D] TensorFlow devices.
      phases: [V] phase of each op on its device; see `Placement.phases`.
      waits: what ops wait for besides their inputs.
      without: further ops that are to be left out -> why.
    """
    flow = control_flow(graph)
    alone = _alone(graph)
    why = {**_why_not(graph), **(without or {})}
    loops = _loops(graph, flow.loop, op_device, why)
    known = Dependencies.of(graph, waits)
    order = known.order()
    while True:
        blocks = _blocks(graph, known, order, _labels(graph, op_device, devices, phases, _out(graph, alone, why)))
        if not (parted := _parted_lists(graph, blocks)):
            break
        for v in parted:
            loop = loops.pop(int(flow.loop[v]), None)
            names = (graph.op_names[v],) if loop is None else loop.ops
            why |= dict.fromkeys(names, "with lists that are read elsewhere")
    for v in _shared_reads(graph, known, blocks):
        blocks[v] = -1
        why[graph.op_names[v]] = "reads a variable for several clusters"
    out: list[Cluster] = []
    prefix = _CALLS
    while any(name.startswith(prefix) for name in graph.op_names):
        prefix += "_"
    for ops in _members(known, order, blocks):
        drawn = any(graph.op_types[v] in DRAWS for v in ops)  # by themselves they would draw other numbers than XLA's
        if not drawn and sum(graph.op_types[v] not in _FREE for v in ops) < FEWEST_OPS:
            why |= {graph.op_names[v]: f"fewer than {FEWEST_OPS} ops together" for v in ops}
            continue
        inside = tuple(loops[one] for one in dict.fromkeys(flow.loop[ops].tolist()) if one in loops)
        names = tuple(graph.op_names[v] for v in ops)
        out.append(Cluster(f"{prefix}_{len(out)}", devices[op_device[ops[0]]], names, inside))
    return Clusters(tuple(out), why)


def _blocks(graph: OpGraph, known: Dependencies, order: Sequence[int], labels: Sequence[int]) -> list[int]:
    """[V] ops of one number can be compiled together; -1 for those that cannot be compiled."""
    label = [*labels, *[-1] * (len(known.before) - len(labels))]
    levels = changes(known.before, order, label)
    _bring_lists(graph, known, label, levels)
    block = merged(known.before, order, label, levels)
    return [block[v] if labels[i] >= 0 else -1 for i, v in enumerate(known.vertex.tolist())]


def _members(known: Dependencies, order: Sequence[int], blocks: Sequence[int]) -> list[list[int]]:
    """The ops of each block, in topological order, those of a loop together."""
    place = {v: i for i, v in enumerate(order)}
    out: dict[int, list[int]] = {}
    for v in sorted(range(len(blocks)), key=lambda v: (place[int(known.vertex[v])], v)):
        if blocks[v] >= 0:
            out.setdefault(blocks[v], []).append(v)
    return list(out.values())


@kept
def _alone(graph: OpGraph) -> BoolArray:
    """[V] what runs nowhere, or wherever it is read."""
    return freeze(copied(graph) | np.array([kind in GIVEN for kind in graph.op_types], bool))


@kept
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


def _bring_lists(graph: OpGraph, known: Dependencies, label: Sequence[int], levels: list[int]) -> None:
    """Raises the levels of ops that make lists to those of their first readers, as lists cannot leave a cluster."""
    is_op = np.bincount(known.vertex, minlength=len(label)) == 1
    makers = {u for u, _ in _list_edges(graph) if is_op[known.vertex[u]] and label[u] >= 0}
    after: dict[int, list[int]] = {}
    for v, before in enumerate(known.before):
        for u in before & makers:
            after.setdefault(u, []).append(v)
    for u, following in sorted(after.items(), reverse=True):
        levels[u] = max(levels[u], min(levels[v] - (label[v] != label[u]) for v in following))


def _list_edges(graph: OpGraph) -> list[tuple[int, int]]:
    """(producer, reader) of each edge that carries a list that is not copied."""
    variant = np.array([dtype == "variant" for dtype in graph.tensor_dtype], bool)
    is_copied = copied(graph)
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_tensor.tolist(), strict=True)
    return [(u, v) for u, v, t in edges if t >= 0 and variant[t] and not is_copied[u]]


def _parted_lists(graph: OpGraph, blocks: Sequence[int]) -> list[int]:
    """Ops of a block that share a list of tensors with one that is not in the block."""
    parted = [(u, v) for u, v in _list_edges(graph) if blocks[u] != blocks[v]]
    return [v for v in dict.fromkeys(end for pair in parted for end in pair) if blocks[v] >= 0]


def _shared_reads(graph: OpGraph, known: Dependencies, blocks: Sequence[int]) -> list[int]:
    """Ops that read a variable at once for another block than their own: XLA would copy what they read out of it.

    By itself such an op takes no time. It waits for nothing, so that no block comes to wait for itself.
    """
    block = np.array(blocks)
    away = (block[graph.edge_src] != block[graph.edge_dst]) & (graph.edge_tensor >= 0)
    makers = np.unique(graph.edge_src[away & (block[graph.edge_src] >= 0)]).tolist()
    return [v for v in makers if graph.op_types[v] == "ReadVariableOp" and not known.before[int(known.vertex[v])]]


def _out(graph: OpGraph, alone: BoolArray, why: Collection[str]) -> BoolArray:
    """[V] what is in no cluster."""
    named: BoolArray = np.array([name in why for name in graph.op_names], bool)
    return np.asarray(alone | named)


def _labels(
    graph: OpGraph, op_device: IntArray, devices: Sequence[str], phases: IntArray | None, none: BoolArray
) -> list[int]:
    """[V] what may be compiled together: ops of one number, none of -1.

    In one cluster XLA would find an op and its copy that computes it again to be the same, and keep the result. Draws
    of random numbers begin as soon as the step does, so that with several clusters they would all be in the first one,
    and their results leave it. On a CPU such a cluster was seen to take several times as long as with the draws in one
    of their own.
    """
    again = np.zeros(graph.num_ops, np.int32) if graph.recomputes is None else graph.recomputes >= 0
    slice_of = np.full(graph.num_ops, -1) if graph.slices is None else graph.slices.slice_of
    phase = np.full(graph.num_ops, -1) if phases is None else phases
    keys = np.stack([op_device, slice_of, phase, again], axis=1)
    drawn = np.array([kind in DRAWS and "CPU:" in devices[op_device[v]] for v, kind in enumerate(graph.op_types)], bool)
    several = len(np.unique(keys[~none], axis=0)) > 1
    number: dict[tuple[int, ...], int] = {}
    return [
        -1 if none[v] else number.setdefault(key, len(number))
        for v, key in enumerate(map(tuple, np.column_stack([keys, drawn & several]).tolist()))
    ]
