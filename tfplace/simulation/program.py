"""A problem as the flat arrays the simulation kernel reads, and the arrays it works in.

What is used together lies together: a record per op, message, link, device and transfer, not an array per field. At
tens of thousands of ops that saves half the time, which goes into waiting for memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.buffers import HOST_ONLY_DTYPES, READS_NO_DATA, read_from_host, writes_whole
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.op_types import of_types, op_types
from tfplace.core.problem import Problem
from tfplace.cost.workspace import workspace_bytes
from tfplace.simulation.messages import (
    Buffers,
    IndexArray,
    Messages,
    find_buffers,
    find_messages,
    integers,
    loop_conditions,
)
from tfplace.simulation.options import DEFAULT, Options
from tfplace.simulation.phases import GROUPS, find_parts

RecordArray = NDArray[np.void]


def _record(**fields: str) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


OP = _record(
    unit="i4",  # whose device the op takes; -1 for a replicable constant that nothing reads
    reads="i4",  # how many messages it reads; -1 for a replicable constant
    first="i4",  # the first of its messages
    input_first="i4",  # the first of its inputs
    writes="i4",  # whether it writes variables whole
    trips="f8",  # executions in a step
    persistent="i8",  # bytes of its variables
)

MESSAGE = _record(
    maker="i4",  # op that makes it
    alias="i4",  # message whose memory it shares, or -1
    forward_first="i4",  # the first of the messages whose memory it may take over
    variable="i4",  # op that makes the handle which it is, or is passed on from; or -1
    read_of="i4",  # op that makes the handle of the variable whose memory it is; or -1
    held="i4",  # whether it is held until the step ends
    reader_first="i4",  # the first of its readers
    host="i4",  # whether it is made in host memory
    size="i8",  # bytes of one execution
    volume="f8",  # bytes of all trips
    moved="i8",  # the same, rounded
)

LINK = _record(
    latency="f8",  # seconds
    bandwidth="f8",  # bytes per second
    send_s="f8",  # seconds of work at the sender, for each message
    send_s_per_byte="f8",
    receive_s="f8",  # the same at the receiver
    receive_s_per_byte="f8",
)

DEVICE = _record(
    head="i4",  # stretch of the queue that holds its ready ops: begin
    tail="i4",  # and end
    front="i4",  # or the first of a list of them
    back="i4",  # and the last
    work_head="i4",  # first transfer that waits for its work
    work_tail="i4",  # and the last
    tasks="i4",  # ops and works that it runs now
    active="i4",  # transfers going on
    touched="i4",  # whether it may start something, or its memory has changed
    in_use="i8",  # bytes now
    shown="i8",  # bytes after the last instant
    peak="i8",  # bytes at most
    since="f8",  # when transfers began to go on
    transfer="f8",  # seconds of transfers
    compute="f8",  # seconds of ops
    work="f8",  # seconds of the work of transfers
    phase="i4",  # the first of its phases that is not over
    left="f8",  # seconds of ops not yet started
)

SLOT = _record(
    task="i4",  # op, or number of ops + transfer whose work is done, or -1
    last="i4",  # the task before
    share="i4",  # number of tasks for which `until` holds
    front="i4",  # first of the ops kept for this slot
    back="i4",  # and the last
    until="f8",  # when the task finishes; infinite without one
)

TRANSFER = _record(
    message="i4",  # what
    src="i4",  # from where
    dst="i4",  # to where
    copy="i4",  # whether between the two memories of one device
    blocks="i4",  # first of the transfers that start when this one ends, or -1
    after="i4",  # next with the same blocker, or -1
    next="i4",  # next that waits for the same device's work
    order="i4",  # its place in the order of all on the wire
    start="f8",  # when it is on the wire: begin
    end="f8",  # and end
    asked="f8",  # when its work was asked for
)

CHANNEL = _record(
    free="f8",  # when it is free of everything requested so far
    last="i4",  # the transfer that ends then
)

READY = _record(
    since="f8",  # when an op became ready
    op="i4",
)

CHANGE = _record(
    when="f8",  # seconds
    in_use="i8",  # bytes from then on
    device="i4",
)


class Program(NamedTuple):
    """What never changes between simulations of one problem.

    Axes: [V] ops, [D] devices, [O] messages (tensors, and a completion per op with control readers, sorted by op; of
    one op by slot, the completion last), [R] (message, reader) pairs, [K] channels of a link.

    Attributes:
      ops: [V + 1] `OP`; the last holds only where the others end.
      messages: [O + 1] `MESSAGE`, alike.
      seconds: [V, D].
      reader: [R] message o is read by the ops `reader[messages[o].reader_first:messages[o + 1].reader_first]`.
      forward: [F] message o may take over the memory of any of the messages
        `forward[messages[o].forward_first:messages[o + 1].forward_first]`.
      workspace: [V, D] bytes an op takes while it runs, besides what it reads and makes.
      crosses: [R] whether the reader wants the message in the other of its maker's device's two memories.
      input: [R] op v reads the messages `input[ops[v].input_first:ops[v + 1].input_first]`.
      links: [D, D] `LINK`.
      channels: [D, D, K] padded with -1.
      limit: [D] bytes.
      host: [D] the device whose memory is its host memory; -1 for a CPU, or if there is none.
      rank: [V] ranks of the ops, the first of which start first.
      cheap: [V, D] whether an executor runs the op at once.
      part: [V] 2k for a forward op of slice k, 2k + 1 for a backward one, -1 for what stands once; of a split step.
      group: [V] the stretch of the forward pass that an op is of, or for which it reads a variable; else -1.
      rest: [V, D] at least so many seconds pass from the op's start to the step's end; [0, D] if not known.
    """

    ops: RecordArray
    messages: RecordArray
    seconds: FloatArray
    workspace: LongArray
    reader: IndexArray
    crosses: BoolArray
    forward: IndexArray
    input: IndexArray
    links: RecordArray
    channels: IntArray
    limit: LongArray
    host: IntArray
    rank: IntArray
    cheap: BoolArray
    part: IntArray
    group: IntArray
    rest: FloatArray


class Scratch(NamedTuple):
    """What one simulation writes. [M] transfers that can happen at most, [C] channels, [S] memory changes at most.

    Attributes:
      device: [V] where each op is.
      missing: [V] messages the op still waits for.
      start: [V] seconds.
      finish: [V] seconds.
      ready: [V] ready times.
      cause: [V] what had to end last before the op could start: an op, or number of ops + transfer; -1 for none.
      next_op: [V] next of the same list of ready ops, or -1.
      queue: [V] `READY` ops, each device's in its own stretch.
      refs: [O, D] what still holds the copy of a message on a device.
      alias: [O] message whose memory each shares on the device where it is made, or -1.
      reads: [V] what still holds what was read of the op's variable.
      copied: [V] whether the op's variable has been written since: then what was read is memory of its own.
      readers: [D] readers of one message per device; zero between uses.
      away: [D] devices that one message must be sent to, ascending.
      touched: [D] devices for which something has changed since the last instant.
      devices: [D] `DEVICE`.
      slots: [D * slots] `SLOT`, those of one device side by side.
      transfers: [M] `TRANSFER`, in the order of requests.
      behind: [M] the transfer whose end each had to wait for, or -1.
      heap: [M] transfers on the wire, a binary heap by (end, order).
      channels: [C] `CHANNEL`.
      changes: [S] `CHANGE` of memory in use.
      turn: [D, 2K] the phase in which each part runs on each device, -1 for any time.
      load: [D, 2K] seconds of each part on each device.
      place: [D, K] where the forward pass of each slice is on each device, as a mean of its groups.
      phase: [V] the phase of each op, -1 for any time.
      pending: [D, P] ops of each phase that have not finished.
      parked: [D, P] the first of the ops that wait for their phase; they are linked by `next_op`.
      chosen: [2] the order of phases of this run, and the best so far.
      counter: [7] transfers requested, size of the heap, memory changes, bytes moved, whether the limit is passed,
        length of `touched`, transfers put on the wire.
    """

    device: IndexArray
    missing: IntArray
    start: FloatArray
    finish: FloatArray
    ready: FloatArray
    cause: IntArray
    next_op: IntArray
    queue: RecordArray
    refs: IntArray
    alias: IntArray
    reads: IntArray
    copied: IntArray
    readers: IntArray
    away: IntArray
    touched: IntArray
    devices: RecordArray
    slots: RecordArray
    transfers: RecordArray
    behind: IntArray
    heap: IntArray
    channels: RecordArray
    changes: RecordArray
    turn: IntArray
    load: FloatArray
    place: FloatArray
    phase: IntArray
    pending: IntArray
    parked: IntArray
    chosen: LongArray
    counter: LongArray


def compile_problem(problem: Problem, options: Options = DEFAULT) -> Program:
    """Lays a problem out for the kernel."""
    return _laid_out(problem, options.order, options.seed, options.cheap_s)


@kept
def _laid_out(problem: Problem, order: str, seed: int, cheap_s: float) -> Program:
    """Kept, since many ask for one problem, and this takes a second for a large graph."""
    graph, topology = problem.graph, problem.topology
    messages = find_messages(graph)
    keep = ~graph.edge_back & ~graph.replicable[graph.edge_src] & ~graph.replicable[graph.edge_dst]
    read = np.stack([messages.of_edge[keep], graph.edge_dst[keep]], axis=1)
    pairs = np.unique(np.concatenate([read, loop_conditions(graph, messages)]), axis=0)
    by_reader = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    buffers = find_buffers(graph, messages, keep)
    parts = find_parts(problem)
    return Program(
        ops=_ops(problem, messages, by_reader),
        messages=_message_table(graph, messages, buffers, pairs),
        seconds=np.array(problem.costs.compute_s, np.float64, order="C"),
        workspace=workspace_bytes(graph, topology),
        reader=pairs[:, 1].astype(np.uint32),
        crosses=_crosses(graph, messages, keep, pairs),
        forward=buffers.forward,
        input=by_reader[:, 0].astype(np.uint32),
        links=_links(problem),
        channels=np.array(topology.channels, np.int32, order="C"),
        limit=np.array(problem.memory_limit, np.int64),
        host=_hosts(problem),
        rank=ranks(problem, order, seed),
        cheap=_cheap(problem, cheap_s),
        part=parts.part,
        group=parts.group,
        rest=np.zeros((0, len(topology.devices))),
    )


def make_scratch(program: Program, slots: int = 1, phases: int = 0) -> Scratch:
    """Arrays large enough for every placement of the program.

    Args:
      program: the compiled problem.
      slots: tasks a device can have at once.
      phases: most phases a device can be given.
    """
    ops, devices = program.seconds.shape
    messages = len(program.messages) - 1
    readers = np.diff(program.messages["reader_first"])
    copies = len(np.unique(np.searchsorted(program.messages["reader_first"], np.flatnonzero(program.crosses), "right")))
    transfers = int(np.minimum(readers, devices - 1).sum()) + copies
    channels = int(program.channels.max(initial=-1)) + 1
    slices = int(program.part.max(initial=-1)) // 2 + 1
    phases = max(phases, GROUPS + 2 * slices if slices else 0)
    return Scratch(
        device=np.zeros(ops, np.uint32),
        missing=_ints(ops),
        start=np.zeros(ops),
        finish=np.zeros(ops),
        ready=np.zeros(ops),
        cause=_ints(ops),
        next_op=_ints(ops),
        queue=np.zeros(ops, READY),
        refs=_ints(messages, devices),
        alias=_ints(messages),
        reads=_ints(ops),
        copied=_ints(ops),
        readers=_ints(devices),
        away=_ints(devices),
        touched=_ints(devices),
        devices=np.zeros(devices, DEVICE),
        slots=np.zeros(devices * slots, SLOT),
        transfers=np.zeros(transfers, TRANSFER),
        behind=_ints(transfers),
        heap=_ints(transfers),
        channels=np.zeros(channels, CHANNEL),
        changes=np.zeros(2 * (messages + transfers + ops) + devices, CHANGE),
        turn=_ints(devices, 2 * slices),
        load=np.zeros((devices, 2 * slices)),
        place=np.zeros((devices, slices)),
        phase=_ints(ops),
        pending=_ints(devices, phases),
        parked=_ints(devices, phases),
        chosen=np.zeros(2, np.int64),
        counter=np.zeros(7, np.int64),
    )


def ranks(problem: Problem, order: str, seed: int = 0) -> IntArray:
    """[V] at random; or by the seconds that remain after each op: of each, the least of any device."""
    graph = problem.graph
    if order != "critical_path":
        return integers(np.random.default_rng(seed).permutation(graph.num_ops))
    seconds = np.where(graph.replicable, 0.0, problem.costs.compute_s.min(axis=1))
    remain: FloatArray = np.zeros(graph.num_ops)
    edges = np.flatnonzero(~graph.edge_back)
    edges = edges[np.argsort(-graph.edge_src[edges], kind="stable")]
    for u, v in zip(graph.edge_src[edges].tolist(), graph.edge_dst[edges].tolist(), strict=True):
        remain[u] = max(remain[u], seconds[v] + remain[v])  # all edges of v are done, as they come from a later op
    out: IntArray = np.empty(graph.num_ops, np.int32)
    out[np.argsort(-remain, kind="stable")] = np.arange(graph.num_ops)
    return out


def _ints(*shape: int) -> IntArray:
    return np.zeros(shape, np.int32)


def _table(dtype: np.dtype[np.void], length: int, columns: Mapping[str, NDArray[Any]]) -> RecordArray:
    out = np.zeros(length, dtype)
    for name, column in columns.items():
        out[name][: len(column)] = column
    return out


def _ops(problem: Problem, messages: Messages, by_reader: NDArray[np.integer]) -> RecordArray:
    graph = problem.graph
    reads = np.bincount(by_reader[:, 1], minlength=graph.num_ops)
    columns = {
        "unit": problem.grouping.unit_of[problem.follows],
        "reads": np.where(graph.replicable, -1, reads),
        "first": _offsets(messages.maker, graph.num_ops),
        "input_first": _offsets(by_reader[:, 1], graph.num_ops),
        "writes": of_types(graph, writes_whole),
        "trips": graph.trips,
        "persistent": graph.persistent_bytes,
    }
    return _table(OP, graph.num_ops + 1, columns)


def _message_table(graph: OpGraph, messages: Messages, buffers: Buffers, pairs: NDArray[np.integer]) -> RecordArray:
    count = len(messages.maker)
    volume = graph.trips[messages.maker] * messages.size
    columns = {
        "maker": messages.maker,
        "alias": buffers.alias,
        "forward_first": buffers.forward_first,
        "variable": buffers.variable,
        "read_of": buffers.read_of,
        "held": buffers.held,
        "reader_first": _offsets(pairs[:, 0], count),
        "host": graph.host_memory[messages.maker],
        "size": messages.size,
        "volume": volume,
        "moved": np.rint(volume),
    }
    return _table(MESSAGE, count + 1, columns)


def _links(problem: Problem) -> RecordArray:
    topology = problem.topology
    send_s, send_s_per_byte, receive_s, receive_s_per_byte = topology.link_overheads
    out = np.zeros(topology.latency_s.shape, LINK)
    out["latency"], out["bandwidth"] = topology.latency_s, topology.bandwidth
    out["send_s"], out["send_s_per_byte"] = send_s, send_s_per_byte
    out["receive_s"], out["receive_s_per_byte"] = receive_s, receive_s_per_byte
    return out


def _crosses(graph: OpGraph, messages: Messages, keep: BoolArray, pairs: NDArray[np.integer]) -> BoolArray:
    """[R] whether any of the edges of a (message, reader) pair goes from host to device memory or back."""
    host, carries = graph.host_memory, graph.edge_tensor >= 0
    handle = np.array([*(dtype in HOST_ONLY_DTYPES for dtype in graph.tensor_dtype), True])
    edges = np.flatnonzero(keep & carries & ~handle[graph.edge_tensor])
    edges = edges[~of_types(graph, READS_NO_DATA)[graph.edge_dst[edges]]]
    src, dst = graph.edge_src[edges], graph.edge_dst[edges]
    inputs = np.bincount(graph.edge_dst[carries], minlength=graph.num_ops)
    known = op_types(graph)
    asked, of = np.unique(
        np.stack([known.of[dst], graph.edge_slot[edges], inputs[dst]], axis=1), axis=0, return_inverse=True
    )
    wants = np.array([read_from_host(known.names[kind], slot, count) for kind, slot, count in asked.tolist()], bool)
    copied = edges[host[src] != (host[dst] | wants[of.reshape(-1)])]
    key = messages.of_edge[copied].astype(np.int64) * graph.num_ops + graph.edge_dst[copied]
    return np.isin(pairs[:, 0].astype(np.int64) * graph.num_ops + pairs[:, 1], key)


def _hosts(problem: Problem) -> IntArray:
    types = [device.type for device in problem.topology.devices]
    host = types.index("CPU") if "CPU" in types else -1
    return np.array([-1 if kind == "CPU" else host for kind in types], np.int32)


def _cheap(problem: Problem, cheap_s: float) -> BoolArray:
    on_cpu = np.array([device.type == "CPU" for device in problem.topology.devices])
    cheap: BoolArray = (problem.costs.compute_s <= cheap_s * problem.graph.trips[:, None]) | ~on_cpu
    return cheap


def _offsets(sorted_ids: NDArray[np.integer], count: int) -> IntArray:
    return integers(np.searchsorted(sorted_ids, np.arange(count + 1)))
