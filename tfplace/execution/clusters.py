"""Clusters: which ops of a placed step XLA compiles together, device by device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.graph import OpGraph
from tfplace.core.xla_ops import COMPILABLE, LISTS
from tfplace.execution.control_flow import control_flow, idle_constants
from tfplace.execution.devices import short
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.execution.while_loops import LOOP_OPS, WhileLoop, loops_of, while_loop

FEWEST_OPS = 4
"""Clusters with fewer ops that do something run op by op: to start one costs as much as a few ops."""

_FREE = frozenset({"Const", "Identity", "NoOp", "PreventGradient", "ReadVariableOp", "StopGradient"})
_ALSO_OF_LISTS = frozenset({"AddN", "Identity", "ZerosLike"})
_GIVEN = frozenset({"_Arg", "Placeholder", "PlaceholderWithDefault", "VarHandleOp", "VariableV2", "Variable"})
"""Arguments and state: nothing runs there."""


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

    def lines(self, limit: int = 4) -> list[str]:
        """How many ops are compiled on each device, and what runs op by op, as text; at most `limit` reasons."""
        ops, count = Counter[str](), Counter[str]()
        for cluster in self.clusters:
            ops[cluster.device] += len(cluster.ops)
            count[cluster.device] += 1
        lines = [f"compiled by XLA: {ops.total()} ops; op by op: {len(self.left_out)}"]
        lines += [f"  {short(d)}: {ops[d]} ops in {count[d]} cluster{'s' * (count[d] > 1)}" for d in sorted(ops)]
        reasons = [f"{number} {why}" for why, number in self.reasons.items()]
        rest = f", {len(reasons) - limit} more reasons" if len(reasons) > limit else ""
        return lines + ([f"  left out: {', '.join(reasons[:limit])}{rest}"] if reasons else [])


NO_CLUSTERS = Clusters()


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

    Ops that can be compiled have a label: their device, their slice of the batch and their phase. The level of an op is
    the most changes of label on a path to it, so it never falls along an edge, and rises between ops of two labels. Ops
    of one label and level are a cluster: an edge between two clusters goes up a level, so no cycle can arise. Ops
    of two slices are kept apart, as one slice would else wait for the data of the other.

    XLA's own clustering (`MarkForCompilationPass`) merges along edges as long as no cycle arises; with several devices
    it leaves many small ones.

    Args:
      graph: [V] ops.
      op_device: [V] device of each op.
      devices: [D] TensorFlow devices.
      phases: [V] phase of each op on its device; see `Placement.phases`.
      waits: what ops wait for besides their inputs.
      without: further ops that are to be left out -> why.
    """
    flow = control_flow(graph)
    why = _why_not(graph, ~flow.always_ends & (flow.loop < 0)) | dict(without or {})
    loops = _loops(graph, flow.loop, op_device, why)
    while True:
        labels = _labels(graph, op_device, phases, why)
        place, levels = _levels(graph, flow.loop, labels, waits)
        _bring_lists(graph, flow.loop, labels, levels)
        members: dict[tuple[int, int], list[int]] = {}
        for v in sorted(range(graph.num_ops), key=lambda v: (place[v], v)):
            if labels[v] >= 0:
                members.setdefault((levels[v], labels[v]), []).append(v)
        if not (parted := _parted_lists(graph, {v: key for key, ops in members.items() for v in ops})):
            break
        for v in parted:
            loop = loops.pop(int(flow.loop[v]), None)
            why |= dict.fromkeys(
                (graph.op_names[v],) if loop is None else loop.ops, "with lists that are read elsewhere"
            )
    out: list[Cluster] = []
    for _, ops in sorted(members.items()):
        if sum(graph.op_types[v] not in _FREE for v in ops) < FEWEST_OPS:
            why |= {graph.op_names[v]: f"fewer than {FEWEST_OPS} ops together" for v in ops}
            continue
        inside = tuple(loops[one] for one in dict.fromkeys(flow.loop[ops].tolist()) if one in loops)
        names = tuple(graph.op_names[v] for v in ops)
        out.append(Cluster(f"XlaCluster_{len(out)}", devices[op_device[ops[0]]], names, inside))
    return Clusters(tuple(out), why)


def _why_not(graph: OpGraph, in_branch: BoolArray) -> dict[str, str]:
    """Op -> why it cannot be part of a cluster, loops left out."""
    kept = {body.op for body in graph.bodies}
    why: dict[str, str] = {}
    for v, (name, kind) in enumerate(zip(graph.op_names, graph.op_types, strict=True)):
        if graph.replicable[v] or kind in _GIVEN or kind in LOOP_OPS:
            continue
        tensors = [*graph.inputs[v], *range(graph.op_tensors[v], graph.op_tensors[v + 1])]
        types = {graph.tensor_dtype[t] for t in tensors}
        if v in kept or kind not in COMPILABLE | LISTS:
            why[name] = f"{kind} cannot be compiled"
        elif "string" in types or ("variant" in types and kind not in LISTS | _ALSO_OF_LISTS):
            why[name] = "texts and variants cannot be compiled"
        elif any(graph.tensor_shape[t] is None for t in tensors):
            why[name] = "tensors of unknown rank"
        elif in_branch[v]:
            why[name] = "in a branch"
    return why


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
            why |= dict.fromkeys(names, found)
        else:
            out[one] = found
            for name in names:
                why.pop(name, None)
    return out


def _bring_lists(graph: OpGraph, loop: IntArray, labels: Sequence[int], levels: list[int]) -> None:
    """Raises the levels of ops that make lists to those of their first readers, as lists cannot leave a cluster."""
    readers: dict[int, list[int]] = {}
    for u, v in _list_edges(graph):
        if loop[u] < 0 and labels[u] >= 0:
            readers.setdefault(u, []).append(v)
    for u, read_by in sorted(readers.items(), reverse=True):
        if all(labels[v] == labels[u] for v in read_by):
            levels[u] = max(levels[u], min(levels[v] for v in read_by))


def _list_edges(graph: OpGraph) -> list[tuple[int, int]]:
    """(producer, reader) of each edge that carries a list."""
    variant = np.array([dtype == "variant" for dtype in graph.tensor_dtype], bool)
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_tensor.tolist(), strict=True)
    return [(u, v) for u, v, t in edges if t >= 0 and variant[t]]


def _parted_lists(graph: OpGraph, cluster: Mapping[int, tuple[int, int]]) -> list[int]:
    """Ops that share a list of tensors with one that is not in the same cluster, which `cluster` says of ops."""
    parted = [(u, v) for u, v in _list_edges(graph) if cluster.get(u) != cluster.get(v)]
    return [v for v in dict.fromkeys(end for pair in parted for end in pair) if v in cluster]


def _labels(graph: OpGraph, op_device: IntArray, phases: IntArray | None, without: Collection[str]) -> list[int]:
    """[V] what may be compiled together: ops of one number, none of -1."""
    slice_of = np.full(graph.num_ops, -1) if graph.slices is None else graph.slices.slice_of
    phase = np.full(graph.num_ops, -1) if phases is None else phases
    number: dict[tuple[int, ...], int] = {}
    out = []
    keys = zip(op_device.tolist(), slice_of.tolist(), phase.tolist(), strict=True)
    for v, key in enumerate(keys):
        alone = graph.op_names[v] in without or graph.replicable[v] or graph.op_types[v] in _GIVEN
        out.append(-1 if alone else number.setdefault(key, len(number)))
    return out


def _levels(graph: OpGraph, loop: IntArray, labels: Sequence[int], waits: Waits) -> tuple[list[int], list[int]]:
    """[V] a topological order, and [V] the most changes of label on a path to each op, by edges and waits.

    An outermost loop is as one op, since what leaves it may come from anything that enters, by a later turn.
    """
    joints = {name: graph.num_ops + i for i, name in enumerate(waits.joints)}
    label = [*labels, *[-1] * len(joints)]
    first = {one: v for v, one in reversed([*enumerate(loop.tolist())])}
    stands_for = [v if one < 0 else first[one] for v, one in enumerate(loop.tolist())]
    before: list[set[int]] = [set() for _ in label]
    for v, awaited in enumerate(_awaited(graph)):
        before[stands_for[v]].update(stands_for[u] for u in awaited)
    index = graph.index
    for name, after in waits.after.items():
        v = joints[name] if name in joints else stands_for[index[name]]
        before[v].update(joints[u] if u in joints else stands_for[index[u]] for u in after)
    place, level = _longest_paths(before, label)
    return [place[v] for v in stands_for], [level[v] for v in stands_for]


def _longest_paths(before: Sequence[set[int]], label: Sequence[int]) -> tuple[list[int], list[int]]:
    """A topological order of an acyclic graph, and the most changes of label on a path to each vertex."""
    place, level, count = [-1] * len(label), [-1] * len(label), 0
    for root in range(len(label)):
        todo = [root]
        while todo:
            v = todo[-1]
            unknown = [u for u in before[v] if place[u] < 0 and u != v]
            if unknown:
                todo += unknown
                continue
            todo.pop()
            if place[v] < 0:
                place[v], count = count, count + 1
                level[v] = max((level[u] + (label[u] != label[v]) for u in before[v] if u != v), default=0)
    return place, level


def _awaited(graph: OpGraph) -> list[list[int]]:
    """[V] what each op reads or waits for that runs: of a copied constant, which each reader has, what that does."""
    idle = idle_constants(graph, control_flow(graph))
    out: list[list[int]] = [[] for _ in range(graph.num_ops)]
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_back.tolist(), strict=True)
    for u, v, back in sorted(edges, key=lambda edge: edge[1]):
        if not back and not idle[v] and graph.op_types[u] not in _GIVEN:
            out[v] += out[u] if graph.replicable[u] else [u]
    return out
