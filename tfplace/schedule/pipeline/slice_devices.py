"""A placement from a device for each slice and each stretch of the forward pass."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.flow import flow, spread_labels
from tfplace.group.owners import balanced_owners, row_lookups


def place_slices(
    problem: Problem, slices: Slices, place: IntArray, table: IntArray, home: int | None = None
) -> IntArray:
    """[U] the wanted device of each unit.

    A unit of one slice is where the table says. What stands once is on one of the devices that the table has for its
    stretch: a variable, with its slots, on the one that holds least, all else beside what stands once with which it
    exchanges the most bytes, such as a sum of gradients beside its variable. Rows are looked up where their table is.

    Args:
      problem: what is placed.
      slices: of its graph.
      place: [U] the stretch of each unit.
      table: [K, P] the device of each slice and stretch.
      home: the device of inputs, with what divides them into slices; None if they are treated like all else.
    """
    unit_of = problem.grouping.unit_of
    mine = _slice_of_units(problem, slices)
    out = np.where(mine >= 0, table[mine, place], -1).astype(np.int32)
    alone = np.append((table == table[0]).all(axis=0), False)
    once = mine < 0
    if home is not None:
        out[once & _inputs(problem, slices)] = home
    out = np.where(once & (out < 0) & alone[place], table[0, place], out).astype(np.int32)
    handles = {variable.op: int(unit_of[variable.op]) for variable in problem.graph.variables}
    owners = balanced_owners(problem, lambda op: np.unique(table[:, place[handles[op]]]))
    for op, owner in owners.items():
        if once[handles[op]]:
            out[handles[op]] = owner
    edges = flow(problem)
    src, dst = unit_of[edges.src], unit_of[edges.dst]
    spread_labels(out, src, dst, edges, once[src] & once[dst])
    spread_labels(out, src, dst, edges)
    for lookup, maker in row_lookups(problem.graph, slices):
        if mine[unit_of[lookup]] >= 0 and unit_of[maker] >= 0:
            out[unit_of[lookup]] = out[unit_of[maker]]
    return np.where(out >= 0, out, table[0, place]).astype(np.int32)


def _slice_of_units(problem: Problem, slices: Slices) -> IntArray:
    """[U] the slice whose ops alone a unit has, or -1."""
    unit_of = problem.grouping.unit_of
    inside = unit_of >= 0
    least, most = np.full(problem.num_units, len(slices.sizes)), np.full(problem.num_units, -1)
    np.minimum.at(least, unit_of[inside], slices.slice_of[inside])
    np.maximum.at(most, unit_of[inside], slices.slice_of[inside])
    return np.where(least == most, most, -1).astype(np.int32)


def _inputs(problem: Problem, slices: Slices) -> BoolArray:
    """[U] units of what the step is given, and of what is made of that alone before slices begin; no variables."""
    graph, unit_of = problem.graph, problem.grouping.unit_of
    given: BoolArray = (slices.slice_of < 0) & (unit_of >= 0) & (graph.resource < 0) & (graph.persistent_bytes == 0)
    edges = flow(problem)
    order = np.argsort(edges.src, kind="stable")
    for a, b in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        given[b] &= given[a]
    out = np.ones(problem.num_units, np.bool_)
    np.logical_and.at(out, unit_of[unit_of >= 0], given[unit_of >= 0])
    return out
