"""What ops have for others, and whose memory it is; see docs/reference/simulated_memory.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.buffers import (
    FORWARDS,
    HELD_ALL_STEP,
    HELD_BY_VARIABLE,
    KEEPS,
    READS,
    aliases,
    variable_of,
)
from tfplace.core.graph import OpGraph

IndexArray = NDArray[np.uint32]
"""What the kernel uses most to look things up. Unsigned, so that it need not ask whether to count from the end."""


class Messages(NamedTuple):
    """[O] messages of a graph in the kernel's order, and [E] which of them each edge carries."""

    maker: IntArray
    size: LongArray
    slot: IntArray
    of_edge: IntArray


def find_messages(graph: OpGraph) -> Messages:
    """The tensors of every op, and its completion if other ops wait for that alone."""
    control = graph.edge_tensor < 0
    signals = np.unique(graph.edge_src[control])
    makers = np.concatenate([graph.tensor_op, signals])
    slots = np.concatenate([graph.tensor_slot, np.full(len(signals), -1)])
    order = np.lexsort((slots, slots < 0, makers))  # an op's completion is its last message
    place = np.empty(len(makers), np.int32)
    place[order] = np.arange(len(makers))
    size = np.where(np.isin(graph.tensor_op, _ops_of_type(graph, HELD_BY_VARIABLE)), 0, graph.tensor_bytes)
    signal_of_edge = graph.num_tensors + np.searchsorted(signals, graph.edge_src)
    of_edge = np.where(control, signal_of_edge, graph.edge_tensor)
    return Messages(
        maker=integers(makers[order]),
        size=np.concatenate([size, np.zeros(len(signals), np.int64)])[order],
        slot=integers(slots[order]),
        of_edge=place[of_edge] if len(of_edge) else np.zeros(0, np.int32),
    )


def loop_conditions(graph: OpGraph, messages: Messages) -> NDArray[np.integer]:
    """[N, 2] pairs of the message of a loop's condition and an op of the loop's body, which waits for it in every turn.

    Where no edge says so, TensorFlow has a loop of its own on each device with an op of the body, which is sent the
    condition (`AddControlFlow` in `tensorflow/core/graph/graph_partition.cc`).
    """
    conditions = [v for v, kind in enumerate(graph.op_types) if kind == "LoopCond"]
    if not conditions:
        return np.zeros((0, 2), np.int64)
    readers: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for u, v, back in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_back.tolist(), strict=True):
        if not back and graph.op_types[v] not in ("Exit", "RefExit") and not graph.replicable[v]:
            readers[u].append(v)
    of_op = {int(v): m for m, v in enumerate(messages.maker) if messages.slot[m] == 0}
    pairs = []
    for condition in conditions:
        body, ahead = {condition}, [condition]
        while ahead:
            for v in readers[ahead.pop()]:
                if v not in body:
                    body.add(v)
                    ahead.append(v)
        pairs += [(of_op[condition], v) for v in sorted(body - {condition})]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _ops_of_type(graph: OpGraph, types: frozenset[str]) -> list[int]:
    return [v for v, kind in enumerate(graph.op_types) if kind in types]


class Buffers(NamedTuple):
    """Whose memory the [O] messages are: see `MESSAGE`; and [F] those whose memory each may take over."""

    alias: IntArray
    variable: IntArray
    read_of: IntArray
    held: BoolArray
    forward_first: IntArray
    forward: IndexArray


def find_buffers(graph: OpGraph, messages: Messages, keep: BoolArray) -> Buffers:
    """Whose memory each message is, or may become.

    Args:
      graph: [V] ops, [E] edges.
      messages: of the graph.
      keep: [E] edges that are simulated.
    """
    read = {
        (int(graph.edge_dst[e]), int(graph.edge_slot[e])): int(messages.of_edge[e])
        for e in np.flatnonzero(keep & (graph.edge_tensor >= 0))
    }
    count = len(messages.maker)
    makers, slots = messages.maker.tolist(), messages.slot.tolist()
    position, handle = aliases(graph), variable_of(graph)
    of_message = graph.op_tensors[messages.maker] + messages.slot  # its tensor, where it is one
    alias, variable, read_of = (np.full(count, -1, np.int32) for _ in range(3))
    held = np.zeros(count, np.bool_)
    for m, (op, slot) in enumerate(zip(makers, slots, strict=True)):
        if slot < 0:
            continue
        t, kind = int(of_message[m]), graph.op_types[op]
        variable[m] = handle[t]
        if position[t] >= 0:
            alias[m] = read.get((op, int(position[t])), -1)
        held[m] = kind in HELD_ALL_STEP and alias[m] < 0 and graph.tensor_dtype[t] != "resource"
        if kind == READS and alias[m] >= 0:
            read_of[m] = variable[alias[m]]
    offers = _offers(graph, messages, alias, variable, read)
    lengths = [len(offers.get(m, ())) for m in range(count)]
    return Buffers(
        alias,
        variable,
        read_of,
        held,
        np.cumsum([0, *lengths]).astype(np.int32),
        np.array([i for m in sorted(offers) for i in offers[m]], np.uint32),
    )


def _offers(
    graph: OpGraph, messages: Messages, alias: IntArray, variable: IntArray, read: Mapping[tuple[int, int], int]
) -> dict[int, list[int]]:
    """Message -> those whose memory it may take over, if nothing else holds it when its op starts.

    None is a variable's, none comes from outside the op's loop, where it is read in every turn, and none is read by an
    op that keeps it.
    """
    root, kept = _roots(graph, messages, alias, variable, read)
    out: dict[int, list[int]] = {}
    for m, (op, slot) in enumerate(zip(messages.maker.tolist(), messages.slot.tolist(), strict=True)):
        output, positions = FORWARDS.get(graph.op_types[op], (-1, ()))
        if slot != output or slot < 0 or alias[m] >= 0 or not messages.size[m]:
            continue
        inputs = [read.get((op, i)) for i in (range(len(graph.inputs[op])) if positions is None else positions)]
        found = [i for i in inputs if i is not None and messages.size[i] == messages.size[m] and root[i] not in kept]
        found = [i for i in found if graph.host_memory[messages.maker[i]] == graph.host_memory[op]]
        if found:
            out[m] = list(dict.fromkeys(found))
    return out


def _roots(
    graph: OpGraph, messages: Messages, alias: IntArray, variable: IntArray, read: Mapping[tuple[int, int], int]
) -> tuple[IntArray, set[int]]:
    """[O] the message whose memory each is, and those of them that no op may take over."""
    root = np.arange(len(alias), dtype=np.int32)
    kinds = [graph.op_types[op] for op in messages.maker.tolist()]
    kept = {m for m, kind in enumerate(kinds) if variable[m] >= 0 or kind in HELD_BY_VARIABLE}
    for m in np.flatnonzero(alias >= 0).tolist():  # an alias is made after what it is an alias of
        root[m] = root[alias[m]]
        if kinds[m] in ("Enter", "RefEnter"):
            kept.add(int(root[m]))
    kept |= {int(root[m]) for (op, _), m in read.items() if graph.op_types[op] in KEEPS}
    return root, kept


def integers(array: NDArray[np.integer]) -> IntArray:
    """As the kernel takes them."""
    return np.array(array, np.int32, order="C")
