"""A problem as the flat arrays that list scheduling reads, and the arrays it works in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.simulation.messages import IndexArray
from tfplace.simulation.program import RecordArray, compile_problem

PREFERRED, LAST_RESORT, NEVER = range(3)
"""How much a unit wants to be on a device: it is an accelerator, or there is none for it; it is allowed; it is not."""


class Tasks(NamedTuple):
    """What does not depend on the units. Axes as in `tfplace.simulation.program.Program`, whose arrays the first are.

    Attributes:
      ops: [V + 1] `OP`.
      messages: [O + 1] `MESSAGE`.
      seconds: [V, D].
      reader: [R] ops that read each message.
      input: [R] messages that each op reads.
      channels: [D, D, K] padded with -1.
      limit: [D] bytes.
      root: [O] the message whose memory each one shares, itself if none.
      fixed_s: [D, D] seconds each transfer takes whatever its size: latency and the work at both ends.
      byte_s: [D, D] seconds per byte, alike.
      mean_s: [V] seconds of each op, averaged over the devices that are preferred for it; 0 for constants.
      transfer_s: [O] seconds each message takes between two compute devices, averaged over all ordered pairs of them.
    """

    ops: RecordArray
    messages: RecordArray
    seconds: FloatArray
    reader: IndexArray
    input: IndexArray
    channels: IntArray
    limit: LongArray
    root: IntArray
    fixed_s: FloatArray
    byte_s: FloatArray
    mean_s: FloatArray
    transfer_s: FloatArray


class Units(NamedTuple):
    """What is decided together.

    Attributes:
      of_op: [V] unit of each op, -1 for constants.
      tier: [U, D] `PREFERRED`, `LAST_RESORT` or `NEVER`.
      persistent: [U] bytes of variables.
      seconds: [U, D] of all ops of each unit.
      first: [U + 1] offsets into `members`.
      members: [V'] ops of each unit, ascending.
      fixed: [U] a device that is already decided, or -1.
      of_unit: [units of the problem] which of these each of the problem's units is part of.
    """

    of_op: IntArray
    tier: IntArray
    persistent: LongArray
    seconds: FloatArray
    first: IntArray
    members: IntArray
    fixed: IntArray
    of_unit: IntArray


def make_tasks(problem: Problem) -> Tasks:
    """Lays out what all schedules of a problem share."""
    program = compile_problem(problem)
    fixed_s, byte_s = link_seconds(problem)
    compute = compute_mask(problem)
    return Tasks(
        ops=program.ops,
        messages=program.messages,
        seconds=program.seconds,
        reader=program.reader,
        input=program.input,
        channels=program.channels,
        limit=program.limit,
        root=_roots(program.messages["alias"][:-1]),
        fixed_s=fixed_s,
        byte_s=byte_s,
        mean_s=_mean_seconds(problem),
        transfer_s=mean_transfer_s(program.messages[:-1], program.ops, fixed_s, byte_s, compute),
    )


def make_units(problem: Problem, label: IntArray | None = None) -> Units:
    """The problem's units, or groups of them.

    Args:
      problem: what is placed.
      label: [U] group of each unit, numbered from 0; by default each is alone. Units of a group share a device.
    """
    label = np.arange(problem.num_units, dtype=np.int32) if label is None else label
    count = int(label.max(initial=-1)) + 1
    of_op = np.append(label, np.int32(-1))[problem.grouping.unit_of].astype(np.int32)
    of_op[problem.graph.replicable] = -1
    allowed: BoolArray = np.ones((count, problem.num_devices), np.bool_)
    np.logical_and.at(allowed, label, problem.allowed)
    inside = np.flatnonzero(of_op >= 0)
    seconds = np.zeros((count, problem.num_devices))
    np.add.at(seconds, of_op[inside], problem.costs.compute_s[inside])
    persistent = np.zeros(count, np.int64)
    np.add.at(persistent, of_op[inside], problem.graph.persistent_bytes[inside])
    members = inside[np.argsort(of_op[inside], kind="stable")].astype(np.int32)
    return Units(
        of_op=of_op,
        tier=tiers_of(allowed, compute_mask(problem)),
        persistent=persistent,
        seconds=seconds,
        first=np.searchsorted(of_op[members], np.arange(count + 1)).astype(np.int32),
        members=members,
        fixed=np.full(count, -1, np.int32),
        of_unit=label,
    )


def compute_mask(problem: Problem) -> BoolArray:
    """[D] devices that work is spread over: the accelerators, or all devices if there are none."""
    accelerator = np.array([device.type != "CPU" for device in problem.topology.devices])
    return accelerator if accelerator.any() else np.ones_like(accelerator)


def tiers_of(allowed: BoolArray, compute: BoolArray) -> IntArray:
    """[U, D] `PREFERRED`, `LAST_RESORT` or `NEVER`."""
    preferred = allowed & compute
    stuck = ~preferred.any(axis=1)
    preferred[stuck] = allowed[stuck]
    return np.where(preferred, PREFERRED, np.where(allowed, LAST_RESORT, NEVER)).astype(np.int32)


def link_seconds(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """[D, D] seconds of each transfer, and per byte: what `Tasks.fixed_s` and `Tasks.byte_s` are."""
    topology = problem.topology
    send_s, send_s_per_byte, receive_s, receive_s_per_byte = topology.link_overheads
    return (
        np.ascontiguousarray(topology.latency_s + send_s + receive_s),
        np.ascontiguousarray(1.0 / topology.bandwidth + send_s_per_byte + receive_s_per_byte),
    )


def _mean_seconds(problem: Problem) -> FloatArray:
    of_op = problem.grouping.unit_of
    wanted = tiers_of(np.array(problem.allowed), compute_mask(problem)) == PREFERRED
    may = np.concatenate([wanted, np.ones((1, problem.num_devices), np.bool_)])[of_op]
    mean: FloatArray = np.where(may, problem.costs.compute_s, 0.0).sum(axis=1) / may.sum(axis=1)
    mean[(of_op < 0) | problem.graph.replicable] = 0.0
    return mean


def mean_transfer_s(
    messages: RecordArray, ops: RecordArray, fixed_s: FloatArray, byte_s: FloatArray, compute: BoolArray
) -> FloatArray:
    """[O] what `Tasks.transfer_s` is; zeros for a single device."""
    pairs = compute[:, None] & compute[None, :] & ~np.eye(len(compute), dtype=np.bool_)
    if not pairs.any():
        return np.zeros(len(messages))
    trips = ops["trips"][messages["maker"]]
    mean: FloatArray = trips * float(fixed_s[pairs].mean()) + messages["volume"] * float(byte_s[pairs].mean())
    return mean


def _roots(alias: IntArray) -> IntArray:
    """[O] follows aliases to their end; a message comes after what it aliases."""
    root = np.arange(len(alias), dtype=np.int32)
    for message in np.flatnonzero(alias >= 0).tolist():
        root[message] = root[alias[message]]
    return root
