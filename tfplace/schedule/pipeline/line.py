"""What a split step takes along its forward pass: the numbers from which stages are cut."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.forward import FORWARD, passes_of
from tfplace.schedule.pipeline.forward_order import forward_places
from tfplace.simulation.program import Program, compile_problem


class Line(NamedTuple):
    """A step along its forward pass; a slice is the mean of all slices. [P] stretches of places, [D] devices.

    Attributes:
      place: [U] the stretch of each unit.
      seconds: [P, D] of a slice, forward and backward, with its share of what stands once.
      messages: [2, P + 1] that a slice sends forward, and backward, over the cut before each stretch.
      size_bytes: [2, P + 1] of those.
      kept_bytes: [P] of variables, and of the slices' gradients until they are added up.
      stashed_bytes: [P] that a slice keeps from its forward to its backward pass.
      parameter_bytes: [P] of trained variables.
    """

    place: IntArray
    seconds: FloatArray
    messages: FloatArray
    size_bytes: FloatArray
    kept_bytes: FloatArray
    stashed_bytes: FloatArray
    parameter_bytes: FloatArray


def stretches_for(devices: int) -> int:
    """How many stretches to cut; what the programmes take grows with their square, and the cube of the devices."""
    return 400 if devices <= 8 else 200


@functools.lru_cache(maxsize=1)
def make_line(problem: Problem, slices: Slices, most: int) -> Line:
    """The line of a problem in at most so many stretches.

    A message counts at every cut between its maker and its last reader. Stretches are alike in seconds and number of
    places, but end where the fewest bytes cross.

    Kept, since several placers ask for one problem, and this takes seconds for a large graph.
    """
    place = forward_places(problem, slices)
    share, count = len(slices.sizes), int(place.max(initial=0)) + 1
    by_unit = np.where(problem.allowed, problem.unit_seconds, 0.0)  # what may not be there is elsewhere
    seconds = np.zeros((count, problem.num_devices))
    np.add.at(seconds, place, by_unit)
    unit, graph = problem.grouping.unit_of, problem.graph
    at = np.append(place, np.int32(-1))[unit]  # [V]
    kept, stashed, parameters = (np.zeros(count) for _ in range(3))
    np.add.at(kept, at[unit >= 0], graph.persistent_bytes[unit >= 0])
    for variable in graph.variables:
        if variable.trainable and unit[variable.op] >= 0:
            parameters[at[variable.op]] += variable.size_bytes
    program = compile_problem(problem)
    messages, size_bytes = _crossing(program, at, graph.replicable, count)
    terms, activations = _held(program, passes_of(problem), slices)
    np.add.at(kept, at[terms[0]], terms[1])
    np.add.at(stashed, at[activations[0]], activations[1] / share)
    line = Line(place, seconds / share, messages / share, size_bytes / share, kept, stashed, parameters)
    return line if count <= most else _stretches(line, most)


def _stretches(line: Line, most: int) -> Line:
    count = len(line.seconds)
    work = line.seconds.mean(axis=1)
    part = np.cumsum(work / max(float(work.sum()), 1e-300) + 1 / count)
    cell = np.minimum(part / part[-1] * most, most - 1).astype(np.int32)
    order = np.lexsort((np.arange(count), line.size_bytes.sum(axis=0)[:-1], cell))
    begin = np.sort(order[np.unique(cell[order], return_index=True)[1]])  # of each cell the cut that fewest bytes cross
    begin[0] = 0
    cuts = np.append(begin, count)
    stretch = np.repeat(np.arange(len(begin), dtype=np.int32), np.diff(cuts))
    return Line(
        stretch[line.place],
        np.add.reduceat(line.seconds, begin),
        line.messages[:, cuts],
        line.size_bytes[:, cuts],
        *(np.add.reduceat(what, begin) for what in (line.kept_bytes, line.stashed_bytes, line.parameter_bytes)),
    )


def _crossing(program: Program, at: IntArray, copied: BoolArray, count: int) -> tuple[FloatArray, FloatArray]:
    """[2, P + 1] messages and bytes over each cut."""
    messages = program.messages[:-1]
    made = at[messages["maker"]]
    of = np.repeat(np.arange(len(messages)), np.diff(program.messages["reader_first"]))
    read = at[program.reader]
    known = (made[of] >= 0) & (read >= 0) & ~copied[messages["maker"][of]]
    last, first = made.copy(), made.copy()
    np.maximum.at(last, of[known], read[known])
    np.minimum.at(first, of[known], read[known])
    trips = np.ones(len(messages)) * program.ops["trips"][messages["maker"]]
    out = np.zeros((2, 2, count + 2))
    for way, (low, high) in enumerate(((made, last), (first, made))):
        rows = high > low
        for what, amount in enumerate((trips, messages["volume"].astype(np.float64))):
            np.add.at(out[what, way], low[rows] + 1, amount[rows])
            np.subtract.at(out[what, way], high[rows] + 1, amount[rows])
    total = np.cumsum(out, axis=2)[:, :, : count + 1]
    return total[0], total[1]


Held = tuple[IntArray, LongArray]
"""Ops that make something, and its bytes."""


def _held(program: Program, part: IntArray, slices: Slices) -> tuple[Held, Held]:
    """What slices make that is added up, and what of their forward pass is read in the backward pass."""
    messages, sliced = program.messages[:-1], slices.slice_of >= 0
    maker, alias = messages["maker"], messages["alias"]
    of = np.repeat(np.arange(len(messages)), np.diff(program.messages["reader_first"]))
    late = np.zeros(len(messages), np.bool_)
    late[of[part[program.reader] != FORWARD]] = True
    added = np.zeros(len(messages), np.bool_)
    added[of[~sliced[program.reader]]] = True
    for m in np.flatnonzero(alias >= 0)[::-1].tolist():  # an alias is made after what it is an alias of
        late[alias[m]] |= late[m]
        added[alias[m]] |= added[m]
    own = (alias < 0) & sliced[maker]
    sums = own & added & (part[maker] != FORWARD)
    stashed = own & late & (part[maker] == FORWARD)
    return (maker[sums], messages["size"][sums]), (maker[stashed], messages["size"][stashed])
