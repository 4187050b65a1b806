"""Where there is room for an op: while it runs, what it reads, what it makes and its unit's variables are held."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfplace.core.arrays import BoolArray, LongArray
from tfplace.core.problem import Problem
from tfplace.simulation.program import Program, compile_problem

_INSTANT_S = 1e-9
"""An op as short as that may start and end at one time of the clock, at which memory does not count."""


def devices_with_room(problem: Problem, program: Program | None = None) -> BoolArray:
    """[U, D] devices where each unit may be and whose memory holds any one of its ops.

    A placement with a unit anywhere else does not fit: from an op's start to its end its device holds the op's inputs
    and outputs, and always the variables of its unit. A row without any is a unit that nothing holds.

    Args:
      problem: what is placed.
      program: the problem compiled, if it is.
    """
    room: BoolArray = problem.allowed & (least_bytes(problem, program) <= problem.memory_limit)
    return room


def least_bytes(problem: Problem, program: Program | None = None) -> LongArray:
    """[U, D] bytes that each unit takes of each device if it is there: its variables, and most what one op needs.

    Args:
      problem: what is placed.
      program: the problem compiled, if it is.
    """
    program = compile_problem(problem) if program is None else program
    unit, need = problem.grouping.unit_of, op_bytes(program)
    held = np.zeros(problem.num_units, np.int64)
    inside = unit >= 0
    np.add.at(held, unit[inside], program.ops["persistent"][:-1][inside])
    most = np.zeros((problem.num_units, problem.num_devices), np.int64)
    for d in range(problem.num_devices):
        runs = inside & (program.ops["reads"][:-1] >= 0) & (program.seconds[:, d] > _INSTANT_S)
        np.maximum.at(most[:, d], unit[runs], need[runs])
    return held[:, None] + most


def roomy(problem: Problem, program: Program | None = None) -> Problem | None:
    """The problem with units only where there is room for them, see `devices_with_room`; itself if that is everywhere.

    Returns:
      None if there is room for a unit nowhere: then nothing fits.
    """
    room = devices_with_room(problem, program)
    if not room.any(axis=1).all():
        return None
    return problem if (room == problem.allowed).all() else dataclasses.replace(problem, allowed=room)


def op_bytes(program: Program) -> LongArray:
    """[V] bytes that a device holds at least while it runs each op, variables left out; copied constants do not run.

    Tensors that are views of the same one may lie in one piece of memory; what is a view of a smaller one on the same
    device takes no more than that. What may take over an input's memory may need none.
    """
    messages, count = program.messages[:-1], len(program.messages) - 1
    size, alias = messages["size"].astype(np.int64), messages["alias"]
    root, least = np.arange(count), size.copy()
    for m in np.flatnonzero(alias >= 0).tolist():  # a view is made after what it is a view of
        root[m], least[m] = root[alias[m]], min(size[m], least[alias[m]])
    need = np.zeros(len(program.ops) - 1, np.int64)
    own = (alias < 0) & (np.diff(program.messages["forward_first"]) == 0)
    np.add.at(need, messages["maker"], np.where(own, size, 0))
    reader = np.repeat(np.arange(len(need)), np.diff(program.ops["input_first"]))
    read = program.input
    order = np.lexsort((-least[read], root[read], reader))
    reader, read = reader[order], read[order]
    largest = np.ones(len(read), np.bool_)  # of an op's inputs with one root
    largest[1:] = (reader[1:] != reader[:-1]) | (root[read[1:]] != root[read[:-1]])
    np.add.at(need, reader[largest], least[read[largest]])
    return need
