"""A problem as the flat arrays the simulation kernel reads, and the arrays it works in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.simulate.memory import HELD_BY_VARIABLE, aliased_input


class Program(NamedTuple):
    """What never changes between simulations of one problem.

    Axes: [V] ops, [D] devices, [O] messages (tensors, and a completion per op with control readers, sorted by op; of
    one op by slot, the completion last), [R] (message, reader) pairs, [K] channels of a link.

    Attributes:
      unit: [V] unit whose device the op takes; -1 for a replicable constant that nothing reads.
      simulated: [V] False for replicable constants.
      reads: [V] messages the op reads.
      seconds: [V, D].
      trips: [V].
      persistent: [V] bytes.
      first: [V + 1] op v has messages `first[v]` to `first[v + 1] - 1`.
      maker: [O] op.
      size: [O] bytes of one execution.
      moved: [O] bytes sent to one device in a step.
      alias: [O] message whose memory it shares, or -1.
      reader_first: [O + 1] message o is read by `reader[reader_first[o]:reader_first[o + 1]]`.
      reader: [R] ops, ascending within a message.
      input_first: [V + 1] op v reads `input[input_first[v]:input_first[v + 1]]`.
      input: [R] messages.
      latency: [D, D] seconds.
      bandwidth: [D, D] bytes per second.
      channels: [D, D, K] padded with -1.
      limit: [D] bytes.
    """

    unit: IntArray
    simulated: BoolArray
    reads: IntArray
    seconds: FloatArray
    trips: FloatArray
    persistent: LongArray
    first: IntArray
    maker: IntArray
    size: LongArray
    moved: LongArray
    alias: IntArray
    reader_first: IntArray
    reader: IntArray
    input_first: IntArray
    input: IntArray
    latency: FloatArray
    bandwidth: FloatArray
    channels: IntArray
    limit: LongArray


class Scratch(NamedTuple):
    """What one simulation writes. [M] transfers that can happen at most, [C] channels, [S] memory changes at most.

    Attributes:
      device: [V] where each op is.
      missing: [V] messages the op still waits for.
      start: [V] seconds.
      finish: [V] seconds.
      queue: [V] ready ops, each device's in its own stretch, by (ready time, op).
      queue_s: [V] their ready times.
      head: [D] next of the queue.
      tail: [D] end of the queue.
      running: [D] op, or -1.
      until: [D] when it finishes; infinite if idle.
      refs: [O, D] what still holds the copy of a message on a device.
      in_use: [D] bytes.
      shown: [D] bytes in use after the last instant.
      peak: [D] bytes.
      compute: [D] seconds.
      active: [D] transfers going on.
      since: [D] when the first of them started.
      transfer: [D] seconds of finished stretches of transfers.
      readers: [D] readers of one message per device; zero between uses.
      sent: [M] message.
      sent_to: [M] device.
      sent_start: [M] seconds.
      sent_end: [M] seconds.
      blocks: [M] first transfer that starts when this one ends, or -1.
      after: [M] next transfer with the same blocker, or -1.
      heap: [M] transfers under way, a binary heap by (end, request).
      free_s: [C] when the channel is free of everything requested so far.
      last: [C] transfer that ends then.
      change_s: [S] seconds.
      change_device: [S].
      change_bytes: [S] bytes in use from then on.
      counter: [4] transfers requested, size of the heap, memory changes, bytes moved.
    """

    device: IntArray
    missing: IntArray
    start: FloatArray
    finish: FloatArray
    queue: IntArray
    queue_s: FloatArray
    head: IntArray
    tail: IntArray
    running: IntArray
    until: FloatArray
    refs: IntArray
    in_use: LongArray
    shown: LongArray
    peak: LongArray
    compute: FloatArray
    active: IntArray
    since: FloatArray
    transfer: FloatArray
    readers: IntArray
    sent: IntArray
    sent_to: IntArray
    sent_start: FloatArray
    sent_end: FloatArray
    blocks: IntArray
    after: IntArray
    heap: IntArray
    free_s: FloatArray
    last: IntArray
    change_s: FloatArray
    change_device: IntArray
    change_bytes: LongArray
    counter: LongArray


def compile_problem(problem: Problem) -> Program:
    """Lays a problem out for the kernel."""
    graph, topology = problem.graph, problem.topology
    messages = _messages(graph)
    keep = ~graph.edge_back & ~graph.replicable[graph.edge_src] & ~graph.replicable[graph.edge_dst]
    pairs = np.unique(np.stack([messages.of_edge[keep], graph.edge_dst[keep]], axis=1), axis=0)
    by_reader = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    num_ops, num_messages = graph.num_ops, len(messages.maker)
    return Program(
        unit=_int(problem.grouping.unit_of[problem.follows]),
        simulated=np.array(~graph.replicable),
        reads=_int(np.bincount(pairs[:, 1], minlength=num_ops)),
        seconds=np.array(problem.costs.compute_s, np.float64, order="C"),
        trips=np.array(graph.trips, np.float64),
        persistent=np.array(graph.persistent_bytes, np.int64),
        first=_offsets(messages.maker, num_ops),
        maker=messages.maker,
        size=messages.size,
        moved=np.rint(graph.trips[messages.maker] * messages.size).astype(np.int64),
        alias=_aliases(graph, messages, keep),
        reader_first=_offsets(pairs[:, 0], num_messages),
        reader=_int(pairs[:, 1]),
        input_first=_offsets(by_reader[:, 1], num_ops),
        input=_int(by_reader[:, 0]),
        latency=np.array(topology.latency_s, np.float64, order="C"),
        bandwidth=np.array(topology.bandwidth, np.float64, order="C"),
        channels=np.array(topology.channels, np.int32, order="C"),
        limit=np.array(problem.memory_limit, np.int64),
    )


def make_scratch(program: Program) -> Scratch:
    """Arrays large enough for every placement of the program."""
    ops, devices = program.seconds.shape
    messages = len(program.maker)
    transfers = int(np.minimum(np.diff(program.reader_first), devices - 1).sum())
    channels = int(program.channels.max(initial=-1)) + 1
    changes = 2 * (messages + transfers) + devices
    return Scratch(
        device=_ints(ops),
        missing=_ints(ops),
        start=np.zeros(ops),
        finish=np.zeros(ops),
        queue=_ints(ops),
        queue_s=np.zeros(ops),
        head=_ints(devices),
        tail=_ints(devices),
        running=_ints(devices),
        until=np.zeros(devices),
        refs=_ints(messages, devices),
        in_use=_longs(devices),
        shown=_longs(devices),
        peak=_longs(devices),
        compute=np.zeros(devices),
        active=_ints(devices),
        since=np.zeros(devices),
        transfer=np.zeros(devices),
        readers=_ints(devices),
        sent=_ints(transfers),
        sent_to=_ints(transfers),
        sent_start=np.zeros(transfers),
        sent_end=np.zeros(transfers),
        blocks=_ints(transfers),
        after=_ints(transfers),
        heap=_ints(transfers),
        free_s=np.zeros(channels),
        last=_ints(channels),
        change_s=np.zeros(changes),
        change_device=_ints(changes),
        change_bytes=_longs(changes),
        counter=_longs(4),
    )


def _ints(*shape: int) -> IntArray:
    return np.zeros(shape, np.int32)


def _longs(*shape: int) -> LongArray:
    return np.zeros(shape, np.int64)


class _Messages(NamedTuple):
    """[O] messages of a graph in the kernel's order, and [E] which of them each edge carries."""

    maker: IntArray
    size: LongArray
    slot: IntArray
    of_edge: IntArray


def _messages(graph: OpGraph) -> _Messages:
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
    return _Messages(
        maker=_int(makers[order]),
        size=np.concatenate([size, np.zeros(len(signals), np.int64)])[order],
        slot=_int(slots[order]),
        of_edge=place[of_edge] if len(of_edge) else np.zeros(0, np.int32),
    )


def _ops_of_type(graph: OpGraph, types: frozenset[str]) -> list[int]:
    return [v for v, kind in enumerate(graph.op_types) if kind in types]


def _aliases(graph: OpGraph, messages: _Messages, keep: BoolArray) -> IntArray:
    read = {
        (int(graph.edge_dst[e]), int(graph.edge_slot[e])): int(messages.of_edge[e])
        for e in np.flatnonzero(keep & (graph.edge_tensor >= 0))
    }
    alias = np.full(len(messages.maker), -1, np.int32)
    for message, (op, slot) in enumerate(zip(messages.maker.tolist(), messages.slot.tolist(), strict=True)):
        position = aliased_input(graph.op_types[op], slot) if slot >= 0 else None
        if position is not None:
            alias[message] = read.get((op, position), -1)
    return alias


def _offsets(sorted_ids: NDArray[np.integer], count: int) -> IntArray:
    return _int(np.searchsorted(sorted_ids, np.arange(count + 1)))


def _int(array: NDArray[np.integer]) -> IntArray:
    return np.array(array, np.int32, order="C")
