"""Placements from a device for each slice and each stretch of the forward pass."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.flow import flow, spread_labels
from tfplace.group.owners import weights_of_ops
from tfplace.group.sharing import balanced_owners, row_lookups


class SlicePlacement:
    """Makes placements of tables [K, P] of devices, for each slice and stretch.

    A unit of one slice is where the table says. What stands once is on one of the devices that the table has for its
    stretch: a variable, with its slots, on the one that holds least, all else beside what stands once with which it
    exchanges the most bytes, such as a sum of gradients beside its variable. Rows are looked up where their table is.

    Args:
      problem: what is placed.
      slices: of its graph.
      place: [U] the stretch of each unit.
    """

    def __init__(self, problem: Problem, slices: Slices, place: IntArray) -> None:
        self._problem, self._place = problem, place
        self._slice = _slice_of_units(problem, slices)
        self._once = self._slice < 0
        self._inputs = self._once & _inputs(problem, slices)
        self._weight_of = weights_of_ops(problem.graph)
        self._edges = flow(problem)
        self._lookups = row_lookups(problem.graph, slices)

    def devices(self, table: IntArray, home: int | None = None) -> IntArray:
        """[U] the wanted device of each unit.

        Args:
          table: [K, P] the device of each slice and stretch.
          home: the device of inputs, with what divides them into slices; None if they are treated like all else.
        """
        unit_of, once, place = self._problem.grouping.unit_of, self._once, self._place
        out = np.where(once, -1, table[self._slice, place]).astype(np.int32)
        if home is not None:
            out[self._inputs] = home
        alone = (table == table[0]).all(axis=0)[place]
        out = np.where(once & (out < 0) & alone, table[0, place], out).astype(np.int32)
        owners = balanced_owners(
            self._problem, self._weight_of, lambda weight: np.unique(table[:, place[unit_of[weight]]])
        )
        for variable in self._problem.graph.variables:
            unit, owner = int(unit_of[variable.op]), owners.get(int(self._weight_of[variable.op]), -1)
            if once[unit] and owner in table[:, place[unit]]:
                out[unit] = owner
        edges = self._edges
        src, dst = unit_of[edges.src], unit_of[edges.dst]
        spread_labels(out, src, dst, edges, once[src] & once[dst])
        spread_labels(out, src, dst, edges)
        for lookup, maker in self._lookups:
            if unit_of[maker] >= 0 and not once[unit_of[lookup]]:
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
