"""The critical path of a simulated step, back from its end, from what the kernel has written down."""

# Kernels take plain arguments, of which there are many.
# ruff: noqa: PLR0917
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.by_address import ByAddress
from tfplace.core.critical_path import CriticalPath
from tfplace.core.kernels import helper, kernel
from tfplace.simulation.program import Program, Scratch


def critical_path(program: ByAddress[Program], scratch: ByAddress[Scratch], units: int) -> CriticalPath:
    """What the step in the scratch, recorded by the kernel, waited for from its end back to its beginning.

    Also when each of so many units began and ended.

    Where an op could have started neither before its device was free nor before what it reads was there, as both came
    at the same time, it has waited for what it reads. The work of a transfer counts as the transfer.
    """
    s = scratch.fields
    most = len(s.device) + len(s.transfers)
    unit, reader, op = (np.empty(most, np.int32) for _ in range(3))
    seconds = np.empty(most)
    start, finish = np.full(units, np.inf), np.zeros(units)
    count = _walk_back(program, scratch, unit, reader, op, seconds, start, finish)
    return CriticalPath(unit[:count], reader[:count], seconds[:count], np.minimum(start, finish), finish, op[:count])


@kernel
def _walk_back(
    p: Program,
    s: Scratch,
    unit: IntArray,
    reader: IntArray,
    op: IntArray,
    seconds: FloatArray,
    start: FloatArray,
    finish: FloatArray,
) -> int:
    """Writes the path's ops that take time and its transfers, and each unit's span; returns how long the path is."""
    _span(p, s, start, finish)
    ops = len(s.device)
    task = -1
    for v in range(ops):
        if p.ops[v].reads >= 0 and (task < 0 or s.finish[v] > s.finish[task]):
            task = v
    count = 0
    later = -1  # the op that waited for the task
    while task >= 0:
        if task < ops:
            taken = s.finish[task] - s.start[task]
            unit[count], reader[count], op[count] = p.ops[task].unit, -1, task
            later, task = task, s.cause[task]
        else:
            x = task - ops
            transfer = s.transfers[x]
            message = transfer.message
            maker = p.messages[message].maker
            unit[count], reader[count], op[count] = p.ops[maker].unit, _reader(p, s, message, transfer.dst), maker
            if later >= 0 and s.device[later] == transfer.src and not transfer.copy:
                # what kept the device from starting the op is the work of sending; the wire is busy after it
                link = p.links[transfer.src, transfer.dst]
                taken = p.ops[maker].trips * link.send_s + p.messages[message].volume * link.send_s_per_byte
                task = maker
            else:
                taken = transfer.end - transfer.start
                task = ops + s.behind[x] if s.behind[x] >= 0 else maker
            later = -1
        if taken > 0:
            seconds[count] = taken
            count += 1
    return count


@helper
def _reader(p: Program, s: Scratch, message: int, device: int) -> int:
    """The unit of the first reader of a message on a device."""
    for r in range(p.messages[message].reader_first, p.messages[message + 1].reader_first):
        if s.device[p.reader[r]] == device:
            return int(p.ops[p.reader[r]].unit)
    return -1


@helper
def _span(p: Program, s: Scratch, start: FloatArray, finish: FloatArray) -> None:
    """Writes when each unit's first op starts and its last ends."""
    for v in range(len(s.device)):
        unit = p.ops[v].unit
        if unit >= 0 and p.ops[v].reads >= 0:
            start[unit] = min(start[unit], s.start[v])
            finish[unit] = max(finish[unit], s.finish[v])
