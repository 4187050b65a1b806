"""A sweep as it goes on: what the unit that is visited has to do with each device, given where all the others are."""

# Kernels take plain arguments, of which there are many; a NamedTuple's fields are of type Any once compiled.
# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.by_address import ByAddress
from tfplace.core.kernels import helper, kernel
from tfplace.core.problem import Problem
from tfplace.group.flow import flow
from tfplace.group.unit_graph import variable_bytes
from tfplace.learned.features.graph_inputs import GraphInputs
from tfplace.learned.features.unit_features import Float32
from tfplace.schedule.list_scheduling.tasks import link_seconds

COLUMNS = 15
"""Of a relation; see `relate`."""

_NEVER_S = 1e6
"""What a unit takes where it may not be, in mean seconds of a unit: `prior` masks it there."""


class SweepRows(NamedTuple):
    """A problem as the kernels read it, rows being those of `GraphInputs`.

    Attributes:
      seconds: [G, D] over the mean seconds of a unit on its quickest device; so are all seconds here.
      weight: [G] part of the seconds of all units.
      variables: [G] bytes.
      outputs: [G] bytes that are made for other units.
      source_first: [G + 1] where each row's sources begin in the next two.
      source: [P] rows that make what is read.
      source_bytes: [P] of it.
      reader_first: [G + 1] the same of readers.
      reader: [P] rows.
      reader_bytes: [P].
      fixed_s: [D, D] of a transfer; see `tfplace.schedule.list_scheduling.tasks.Tasks`.
      byte_s: [D, D] and for each byte.
      limit: [D] bytes of memory.
    """

    seconds: FloatArray
    weight: FloatArray
    variables: FloatArray
    outputs: FloatArray
    source_first: LongArray
    source: LongArray
    source_bytes: FloatArray
    reader_first: LongArray
    reader: LongArray
    reader_bytes: FloatArray
    fixed_s: FloatArray
    byte_s: FloatArray
    limit: FloatArray


def sweep_rows(problem: Problem, inputs: GraphInputs) -> SweepRows:
    """See `SweepRows`."""
    count = problem.num_units
    src, dst, size = _sent(problem, inputs)
    fixed_s, byte_s = link_seconds(problem)
    fastest = problem.unit_seconds.min(axis=1)
    mean_s = max(float(fastest.mean()), 1e-12)
    seconds = np.where(problem.allowed, problem.unit_seconds / mean_s, _NEVER_S)
    return SweepRows(
        np.ascontiguousarray(seconds[inputs.order]),
        inputs.weight.astype(np.float64),
        np.ascontiguousarray(variable_bytes(problem)[inputs.order]),
        np.bincount(src, size, count).astype(np.float64),
        *_by_row(dst, src, size, count),
        *_by_row(src, dst, size, count),
        fixed_s / mean_s,
        byte_s / mean_s,
        np.maximum(problem.memory_limit, 1).astype(np.float64),
    )


def _sent(problem: Problem, inputs: GraphInputs) -> tuple[LongArray, LongArray, FloatArray]:
    """[P] producing row, [P] consuming row and [P] bytes between them in a step, a tensor once for each consumer."""
    count = problem.num_units
    place = np.empty(count, np.int64)
    place[inputs.order] = np.arange(count)
    edges = flow(problem)
    unit_of = problem.grouping.unit_of
    src, dst = unit_of[edges.src], unit_of[edges.dst]
    apart = (src != dst) & (edges.tensor >= 0)
    tensor, size = edges.tensor[apart].astype(np.int64), (edges.size_bytes * edges.trips)[apart]
    rows = np.stack([place[src[apart]], place[dst[apart]]])
    first = np.unique(tensor * count + rows[1], return_index=True)[1]
    pairs, inverse = np.unique(rows[0, first] * count + rows[1, first], return_inverse=True)
    total = np.bincount(inverse.ravel(), size[first], len(pairs)).astype(np.float64)
    return pairs // max(count, 1), pairs % max(count, 1), total


def _by_row(at: LongArray, other: LongArray, size: FloatArray, count: int) -> tuple[LongArray, LongArray, FloatArray]:
    order = np.lexsort((other, at))
    return np.searchsorted(at[order], np.arange(count + 1)).astype(np.int64), other[order], size[order]


class _Now(NamedTuple):
    """N placements in the midst of their sweeps.

    Attributes:
      devices: [N, G].
      load: [N, 2, D] parts of all seconds: of visited units, and of those to come.
      used: [N, 2, D] bytes: of variables, and of outputs.
      free: [N, D] when each device would be free.
      done: [N, G] when each visited unit would be done.
      ready: [N, D] when what the unit that is visited reads would be on each device.
      row: [3, D] of the unit that is visited: seconds of transfers to it and from it, and bytes of what is made there.
    """

    devices: IntArray
    load: FloatArray
    used: FloatArray
    free: FloatArray
    done: FloatArray
    ready: FloatArray
    row: FloatArray


class SweepState:
    """N placements side by side, each of which is swept over: units are visited row by row, from the first on.

    What has been visited is also planned, one unit after the other on each device, so that it is known when a device
    is free and when what a unit reads would be there: the earliest finish of list scheduling, of whole units.

    Args:
      of: the problem.
      devices: [N, G] where the units are before the sweep.
    """

    def __init__(self, of: SweepRows, devices: IntArray) -> None:
        count, units = devices.shape
        number = len(of.limit)
        on = devices[:, :, None] == np.arange(number)
        load = np.zeros((count, 2, number))
        load[:, 1] = np.einsum("g,ngd->nd", of.weight, on)
        used = np.stack([np.einsum("g,ngd->nd", x, on) for x in (of.variables, of.outputs)], axis=1)
        free, done = np.zeros((count, number)), np.zeros((count, units))
        own = np.array(devices, np.int32, order="C")
        self._now = ByAddress(_Now(own, load, used, free, done, np.zeros_like(free), np.zeros((3, number))))
        self._of = ByAddress(of)

    @property
    def devices(self) -> IntArray:
        """[N, G] where the units are now."""
        return self._now.fields.devices

    def relate(self, row: int) -> Float32:
        """[N, D, COLUMNS] what the unit that is next to be visited has to do with each device.

        The columns: whether it is there; parts of all seconds that visited units, and others, have there, without it;
        whether no visited one is there; logarithms of what more than on the best device transfers to it would take,
        from it, its start, and its finish, as planned; how much earlier than the last the device is free; how long
        the unit would wait for the device, and the device for the unit; the part of the bytes it reads that is made
        there; whether the last visited unit is there; the part of the memory that variables would leave, and
        variables with all outputs.
        """
        out = np.empty((*self._now.fields.free.shape, COLUMNS), np.float32)
        _relate(row, self._now, self._of, out)
        return out

    def put(self, row: int, devices: IntArray) -> None:
        """Puts the visited unit on [N] devices; after `relate`."""
        _put(row, devices.astype(np.int32), self._now, self._of)

    def follow(self, devices: IntArray) -> Float32:
        """[N, G, D, COLUMNS] relations of a whole sweep in which every unit is put where [N, G] says."""
        out = np.empty((*devices.shape, self._now.fields.free.shape[1], COLUMNS), np.float32)
        for row in range(devices.shape[1]):
            out[:, row] = self.relate(row)
            self.put(row, devices[:, row])
        return out


@kernel
def _relate(row: int, now: Any, of: Any, out: Any) -> None:
    count, number = now.free.shape
    for n in range(count):
        devices, free, ready, load, used = now.devices[n], now.free[n], now.ready[n], now.load[n], now.used[n]
        _moved(row, n, now, of)
        read, last_free = 0.0, free[0]
        least_into = least_outof = least_start = least_finish = np.inf
        for d in range(number):
            start = max(ready[d], free[d])
            read += now.row[2, d]
            last_free = max(last_free, free[d])
            least_into, least_outof = min(least_into, now.row[0, d]), min(least_outof, now.row[1, d])
            least_start, least_finish = min(least_start, start), min(least_finish, start + of.seconds[row, d])
        for d in range(number):
            here = d == devices[row]
            own = 0.0 if here else 1.0
            start = max(ready[d], free[d])
            relation = out[n, d]
            relation[0] = 1.0 - own
            relation[1] = load[0, d]
            relation[2] = load[1, d] - (1.0 - own) * of.weight[row]
            relation[3] = 1.0 if load[0, d] == 0 else 0.0
            relation[4] = math.log1p(now.row[0, d] - least_into)
            relation[5] = math.log1p(now.row[1, d] - least_outof)
            relation[6] = math.log1p(start - least_start)
            relation[7] = math.log1p(start + of.seconds[row, d] - least_finish)
            relation[8] = math.log1p(last_free - free[d])
            relation[9] = math.log1p(max(free[d] - ready[d], 0.0))
            relation[10] = math.log1p(max(ready[d] - free[d], 0.0))
            relation[11] = now.row[2, d] / read if read > 0 else 0.0
            relation[12] = 1.0 if row > 0 and devices[row - 1] == d else 0.0
            variables = used[0, d] + own * of.variables[row]
            relation[13] = max(1.0 - variables / of.limit[d], -1.0)
            relation[14] = max(1.0 - (variables + used[1, d] + own * of.outputs[row]) / of.limit[d], -1.0)


@helper
def _moved(row: int, n: int, now: Any, of: Any) -> None:
    """Writes what the unit of a row reads and sends, and when that is there."""
    devices, ready, done, moved = now.devices[n], now.ready[n], now.done[n], now.row
    for d in range(len(ready)):
        moved[0, d] = moved[1, d] = moved[2, d] = ready[d] = 0.0
    for k in range(of.source_first[row], of.source_first[row + 1]):
        source, size = of.source[k], of.source_bytes[k]
        there = devices[source]
        moved[2, there] += size
        for d in range(len(ready)):
            seconds = 0.0 if d == there else of.fixed_s[there, d] + of.byte_s[there, d] * size
            moved[0, d] += seconds
            if source < row:
                ready[d] = max(ready[d], done[source] + seconds)
    for k in range(of.reader_first[row], of.reader_first[row + 1]):
        there, size = devices[of.reader[k]], of.reader_bytes[k]
        for d in range(len(ready)):
            if d != there:
                moved[1, d] += of.fixed_s[d, there] + of.byte_s[d, there] * size


@kernel
def _put(row: int, wanted: Any, now: Any, of: Any) -> None:
    for n in range(len(wanted)):
        old, new = now.devices[n, row], wanted[n]
        now.load[n, 1, old] -= of.weight[row]
        now.load[n, 0, new] += of.weight[row]
        now.used[n, 0, old] -= of.variables[row]
        now.used[n, 0, new] += of.variables[row]
        now.used[n, 1, old] -= of.outputs[row]
        now.used[n, 1, new] += of.outputs[row]
        now.devices[n, row] = new
        now.free[n, new] = max(now.free[n, new], now.ready[n, new]) + of.seconds[row, new]
        now.done[n, row] = now.free[n, new]
