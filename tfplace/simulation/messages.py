"""What ops have for others, and whose memory it is; see docs/reference/simulated_memory.md."""

from __future__ import annotations

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
from tfplace.core.op_types import of_types, op_types

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
    size = np.where(of_types(graph, HELD_BY_VARIABLE)[graph.tensor_op], 0, graph.tensor_bytes)
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
    reads = _Reads(graph, messages, np.flatnonzero(keep & (graph.edge_tensor >= 0)))
    tensors = np.flatnonzero(messages.slot >= 0)
    maker = messages.maker[tensors]
    of_message = graph.op_tensors[maker] + messages.slot[tensors]
    alias, variable, read_of = (np.full(len(messages.maker), -1, np.int32) for _ in range(3))
    held = np.zeros(len(alias), np.bool_)
    variable[tensors] = variable_of(graph)[of_message]
    position = aliases(graph)[of_message]
    alias[tensors] = np.where(position >= 0, reads.of(maker, position), -1)
    resource = np.array([*(dtype == "resource" for dtype in graph.tensor_dtype)], bool)
    held[tensors] = of_types(graph, HELD_ALL_STEP)[maker] & (alias[tensors] < 0) & ~resource[of_message]
    chosen = tensors[of_types(graph, {READS})[maker] & (alias[tensors] >= 0)]
    read_of[chosen] = variable[alias[chosen]]
    takes, from_whom = _offers(graph, messages, alias, variable, reads)
    first = np.searchsorted(takes, np.arange(len(alias) + 1))
    return Buffers(alias, variable, read_of, held, first.astype(np.int32), from_whom.astype(np.uint32))


class _Reads:
    """Which message each op reads at each of its input positions."""

    def __init__(self, graph: OpGraph, messages: Messages, edges: NDArray[np.integer]) -> None:
        self._most = int(graph.edge_slot.max(initial=0)) + 1
        key = graph.edge_dst[edges].astype(np.int64) * self._most + graph.edge_slot[edges]
        order = np.argsort(key, kind="stable")
        self._key = np.append(key[order], np.iinfo(np.int64).max)
        self._message = np.append(messages.of_edge[edges][order], -1).astype(np.int32)

    def of(self, ops: NDArray[np.integer], positions: NDArray[np.integer]) -> IntArray:
        """[N] what ops read at positions, or -1."""
        key = ops.astype(np.int64) * self._most + positions
        at = np.searchsorted(self._key, key)
        there = (self._key[at] == key) & (positions >= 0) & (positions < self._most)
        return np.where(there, self._message[at], -1).astype(np.int32)

    def by(self, ops: BoolArray) -> IntArray:
        """What ops of a [V] mask read."""
        found: IntArray = self._message[:-1][ops[self._key[:-1] // self._most]]
        return found


def _offers(
    graph: OpGraph, messages: Messages, alias: IntArray, variable: IntArray, reads: _Reads
) -> tuple[IntArray, IntArray]:
    """[N] messages in rising order, and [N] those whose memory each may take over if nothing else holds it by then.

    None is a variable's, none comes from outside the op's loop, where it is read in every turn, and none is read by an
    op that keeps it.
    """
    known = op_types(graph)
    output = np.array([FORWARDS.get(kind, (-1, ()))[0] for kind in known.names])[known.of]
    usable = (messages.slot >= 0) & (messages.slot == output[messages.maker]) & (alias < 0) & (messages.size > 0)
    takes = np.flatnonzero(usable)
    inputs = np.bincount(graph.edge_dst[graph.edge_tensor >= 0], minlength=graph.num_ops)
    takers, positions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, kind in enumerate(known.names):
        own = takes[known.of[messages.maker[takes]] == number] if kind in FORWARDS else takes[:0]
        if len(own):
            _, chosen = FORWARDS[kind]
            counts = inputs[messages.maker[own]] if chosen is None else np.full(len(own), len(chosen))
            ends = np.cumsum(counts)
            place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
            takers.append(np.repeat(own, counts))
            positions.append(place if chosen is None else np.array(chosen)[place])
    taker, position = np.concatenate(takers), np.concatenate(positions)
    op, place = messages.maker[taker], np.arange(len(taker))
    found = reads.of(op, position)
    root, kept = _roots(graph, messages, alias, variable, reads)
    good = (found >= 0) & (messages.size[found] == messages.size[taker]) & ~kept[root[found]]
    good &= graph.host_memory[messages.maker[found]] == graph.host_memory[op]
    taker, found, place = taker[good], found[good], place[good]
    once = np.unique(taker * len(alias) + found, return_index=True)[1]
    once = once[np.lexsort((place[once], taker[once]))]
    return taker[once].astype(np.int32), found[once]


def _roots(
    graph: OpGraph, messages: Messages, alias: IntArray, variable: IntArray, reads: _Reads
) -> tuple[IntArray, BoolArray]:
    """[O] the message whose memory each is, and whether no op may take that over."""
    root = np.where(alias >= 0, alias, np.arange(len(alias))).astype(np.int32)
    while (root[root] != root).any():
        root = root[root]
    kept = (variable >= 0) | of_types(graph, HELD_BY_VARIABLE)[messages.maker]
    kept[root[(alias >= 0) & of_types(graph, {"Enter", "RefEnter"})[messages.maker]]] = True
    kept[root[reads.by(of_types(graph, KEEPS))]] = True
    return root, kept


def integers(array: NDArray[np.integer]) -> IntArray:
    """As the kernel takes them."""
    return np.array(array, np.int32, order="C")
