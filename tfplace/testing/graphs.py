"""OpGraphs for tests: written by hand in a few lines, or drawn at random. No TensorFlow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfplace.core.graph import AttrValue, OpGraph, Variable
from tfplace.errors import GraphError

KERNEL_TYPES = ("CPU", "GPU")


def make_graph(
    ops: Mapping[str, int | Sequence[int]],
    edges: Sequence[str] = (),
    *,
    types: Mapping[str, str] | None = None,
    variables: Mapping[str, int] | None = None,
    trainable: Collection[str] | None = None,
    trips: Mapping[str, float] | None = None,
    resource: Mapping[str, int] | None = None,
    colocation: Mapping[str, int] | None = None,
    replicable: Collection[str] = (),
    host_memory: Collection[str] = (),
    cpu_only: Collection[str] = (),
    attrs: Mapping[str, Mapping[str, AttrValue]] | None = None,
    fetches: Sequence[str] = (),
    name: str = "graph",
) -> OpGraph:
    """Makes an `OpGraph` from a short description, without TensorFlow.

    An op of an aliasing type shares the memory of its input, for example with `types={"b": "Identity"}`.

    Args:
      ops: op name -> bytes of its output, or of each of its outputs (`()` for none), in a topological order.
      edges: data edges "a -> b" or "a:1 -> b" (output 1 of a), control edges "^a -> b", loop back edges "a => b" or
        "^a => b". The data edges into an op number its inputs in the order in which they are listed.
      types: op name -> TensorFlow op type; by default "VarHandleOp" for variables, "Const" for replicable ops, "Op"
        for all others.
      variables: name of the op that produces the handle -> bytes of the variable.
      trainable: the variables that are trained; by default all.
      trips: op name -> executions in one step.
      resource: op name -> id of the set of ops that use the same resource. A variable's handle op and its readers are
        in one set only if you list them here.
      colocation: op name -> id of its colocation group.
      replicable: constants that are copied to every device that reads them.
      host_memory: ops whose GPU kernel leaves its outputs in host memory.
      cpu_only: ops without a GPU kernel.
      attrs: op name -> attributes.
      fetches: names of the ops that the step must run.
      name: name of the graph.

    Raises:
      GraphError: an edge or a setting names an op or output that does not exist, or the graph is invalid.

    >>> make_graph({"a": 8, "b": (4, 4), "c": ()}, ["a -> b", "b:1 -> c", "^a -> c"]).num_edges
    3
    """
    names = tuple(ops)
    index = {op: i for i, op in enumerate(names)}
    outputs = [[size] if isinstance(size, int | np.integer) else list(size) for size in ops.values()]
    variables = variables or {}
    default_types = {**dict.fromkeys(replicable, "Const"), **dict.fromkeys(variables, "VarHandleOp"), **(types or {})}
    given = (types, variables, trips, resource, colocation, attrs)
    for mentioned in [*filter(None, given), replicable, host_memory, cpu_only, fetches]:
        for op in mentioned:
            if op not in index:
                raise GraphError(f"a setting for op {op!r}", f"one of {', '.join(names)}")
    return _assemble(
        name,
        names,
        [default_types.get(op, "Op") for op in names],
        outputs,
        [_parse_edge(edge, index, outputs) for edge in edges],
        attrs=tuple((attrs or {}).get(op, {}) for op in names),
        trips=np.array([(trips or {}).get(op, 1.0) for op in names], np.float64),
        colocation=np.array([(colocation or {}).get(op, -1) for op in names], np.int32),
        resource=np.array([(resource or {}).get(op, -1) for op in names], np.int32),
        cpu_only=np.array([op in cpu_only for op in names], np.bool_),
        host_memory=np.array([op in host_memory for op in names], np.bool_),
        replicable=np.array([op in replicable for op in names], np.bool_),
        variables=tuple(
            Variable(op, index[op], size, trainable is None or op in trainable) for op, size in variables.items()
        ),
        fetches=tuple(fetches),
    )


Edge = tuple[int, int, int, bool]
"""Producer, consumer, output slot (-1 for control), whether it closes a loop."""


def _parse_edge(text: str, index: Mapping[str, int], outputs: Sequence[Sequence[int]]) -> Edge:
    arrow = "=>" if "=>" in text else "->"
    src, _, dst = (part.strip() for part in text.partition(arrow))
    src, _, slot = src.partition(":")
    op = src.removeprefix("^")
    if op not in index or dst not in index:
        raise GraphError(f"edge {text!r}", f'"a -> b" with ops among {", ".join(index)}')
    if src.startswith("^"):
        return index[op], index[dst], -1, arrow == "=>"
    if int(slot or 0) >= len(outputs[index[op]]):
        raise GraphError(f"edge {text!r}", f"one of the {len(outputs[index[op]])} outputs of {op!r}")
    return index[op], index[dst], int(slot or 0), arrow == "=>"


def _assemble(
    name: str,
    names: tuple[str, ...],
    types: Sequence[str],
    outputs: Sequence[Sequence[int]],
    edges: Sequence[Edge],
    *,
    attrs: tuple[Mapping[str, AttrValue], ...],
    trips: np.ndarray,
    colocation: np.ndarray,
    resource: np.ndarray,
    cpu_only: np.ndarray,
    host_memory: np.ndarray,
    replicable: np.ndarray,
    variables: tuple[Variable, ...],
    fetches: tuple[str, ...],
) -> OpGraph:
    counts = np.array([len(sizes) for sizes in outputs], np.int32)
    first = np.concatenate([[0], np.cumsum(counts)])
    sizes = np.array([size for row in outputs for size in row], np.int64)
    slots_used = dict.fromkeys(range(len(names)), 0)
    edge_slot = []
    for _, dst, slot, _ in edges:
        edge_slot.append(slots_used[dst] if slot >= 0 else -1)
        slots_used[dst] += slot >= 0
    return OpGraph(
        name=name,
        op_names=names,
        op_types=tuple(types),
        op_attrs=attrs,
        tensor_op=np.repeat(np.arange(len(names), dtype=np.int32), counts),
        tensor_slot=np.array([slot for row in outputs for slot in range(len(row))], np.int32),
        tensor_dtype=("uint8",) * len(sizes),
        tensor_shape=tuple((int(size),) for size in sizes),
        tensor_bytes=sizes,
        edge_src=np.array([e[0] for e in edges], np.int32),
        edge_dst=np.array([e[1] for e in edges], np.int32),
        edge_tensor=np.array([first[e[0]] + e[2] if e[2] >= 0 else -1 for e in edges], np.int32),
        edge_slot=np.array(edge_slot, np.int32),
        edge_back=np.array([e[3] for e in edges], np.bool_),
        trips=trips,
        colocation=colocation,
        resource=resource,
        kernel_types=KERNEL_TYPES,
        has_kernel=np.stack([np.ones(len(names), np.bool_), ~cpu_only], axis=1),
        host_memory=host_memory,
        replicable=replicable,
        variables=variables,
        fetches=fetches,
    )


def random_graph(
    rng: np.random.Generator,
    num_ops: int = 20,
    *,
    fan_in: float = 2.0,
    window: int = 8,
    max_outputs: int = 3,
    max_bytes: int = 1000,
    control: float = 0.15,
    aliases: float = 0.15,
    zero_bytes: float = 0.1,
    variables: int = 2,
    constants: float = 0.05,
    loops: float = 0.1,
    cpu_only: float = 0.05,
    name: str = "random",
) -> OpGraph:
    """A connected-looking random graph: each op reads mostly recent ops, so `window` sets how wide it is.

    Args:
      rng: source of all randomness.
      num_ops: V.
      fan_in: mean number of inputs of an op, control inputs included.
      window: an input comes from one of this many ops before (sometimes from any).
      max_outputs: an op has 0 to this many outputs (few have none).
      max_bytes: largest tensor and largest variable.
      control: share of edges that are control edges.
      aliases: share of ops that pass an input on: "Identity", "Reshape", "Switch", "IdentityN".
      zero_bytes: share of tensors of 0 bytes.
      variables: at most this many "VarHandleOp"s, each in a resource set with a "ReadVariableOp" and an
        "AssignSubVariableOp".
      constants: share of ops that are replicable constants.
      loops: share of ops with several trips; where there are any, there is also a back edge.
      cpu_only: share of ops without a GPU kernel.
      name: name of the graph.
    """
    names = tuple(f"op{i}" for i in range(num_ops))
    types = rng.choice(["MatMul", "Add", "Relu", "Split"], num_ops).astype(object)
    alias = rng.random(num_ops) < aliases
    types[alias] = rng.choice(["Identity", "Reshape", "Switch", "IdentityN"], int(alias.sum()))
    replicable = rng.random(num_ops) < constants
    types[replicable] = "Const"
    outputs = _random_outputs(rng, num_ops, max_outputs, max_bytes, zero_bytes)
    draft = _Draft(types, replicable, outputs, np.full(num_ops, -1, np.int32))
    draft.edges = _random_edges(rng, draft, fan_in=fan_in, window=window, control=control)
    held = _add_variables(rng, draft, count=variables, max_bytes=max_bytes)
    trips = np.ones(num_ops)
    looped = (rng.random(num_ops) < loops) & ~replicable & (draft.resource < 0)
    trips[looped] = rng.integers(2, 5, int(looped.sum()))
    ends = np.flatnonzero(looped)
    if len(ends) > 1:
        draft.edges.append((int(ends[-1]), int(ends[0]), 0 if outputs[ends[-1]] else -1, True))
    return _assemble(
        name,
        names,
        types.tolist(),
        outputs,
        draft.edges,
        attrs=({},) * num_ops,
        trips=trips,
        colocation=np.full(num_ops, -1, np.int32),
        resource=draft.resource,
        cpu_only=rng.random(num_ops) < cpu_only,
        host_memory=np.zeros(num_ops, np.bool_),
        replicable=replicable,
        variables=held,
        fetches=(names[-1],),
    )


@dataclass
class _Draft:
    """What `random_graph` has decided so far."""

    types: np.ndarray
    replicable: np.ndarray
    outputs: list[list[int]]
    resource: np.ndarray
    edges: list[Edge] = field(default_factory=list)


def _random_outputs(
    rng: np.random.Generator, num_ops: int, max_outputs: int, max_bytes: int, zero_bytes: float
) -> list[list[int]]:
    counts = np.where(rng.random(num_ops) < 0.05, 0, np.minimum(rng.geometric(0.7, num_ops), max_outputs))
    return [
        [0 if rng.random() < zero_bytes else int(size) for size in rng.integers(1, max_bytes + 1, count)]
        for count in counts
    ]


def _random_edges(rng: np.random.Generator, draft: _Draft, *, fan_in: float, window: int, control: float) -> list[Edge]:
    edges: list[Edge] = []
    for dst in range(1, len(draft.outputs)):
        if draft.replicable[dst]:
            continue
        near = max(0, dst - window)
        low = [near if rng.random() < 0.9 else 0 for _ in range(rng.poisson(fan_in))]
        for src in [int(rng.integers(a, dst)) for a in low]:
            count = len(draft.outputs[src])
            is_control = rng.random() < control or not count
            edges.append((src, dst, -1 if is_control else int(rng.integers(count)), False))
    return edges


def _add_variables(rng: np.random.Generator, draft: _Draft, *, count: int, max_bytes: int) -> tuple[Variable, ...]:
    """Turns some ops of the draft into variables: handle, read and assignment, bound by a resource id."""
    held: list[Variable] = []
    for v in range(count):
        free = np.flatnonzero((draft.resource < 0) & ~draft.replicable)
        if len(free) < 4:
            break
        three = sorted(rng.choice(free, 3, replace=False).tolist())
        handle, read, assign = three
        size = int(rng.integers(1, max_bytes + 1))
        draft.types[three] = ["VarHandleOp", "ReadVariableOp", "AssignSubVariableOp"]
        draft.outputs[handle], draft.outputs[read], draft.outputs[assign] = [0], [size], []
        kept = [
            (src, dst, -1 if src == assign else min(slot, 0) if src in three else slot, back)
            for src, dst, slot, back in draft.edges
            if dst not in (handle, read)
        ]
        draft.edges = [(handle, read, 0, False), (handle, assign, 0, False), *kept]
        draft.resource[three] = v
        held.append(Variable(f"variable{v}", handle, size, True))
    return tuple(held)
