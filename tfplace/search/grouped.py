"""Any placer, placing whole groups of units."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.search_context import Placer, SearchContext
from tfplace.errors import UnknownNameError
from tfplace.group.limits import check_count
from tfplace.group.merge import merge_units
from tfplace.local_search.grouped_context import Grouped
from tfplace.registry import GROUPERS


class OnGroups:
    """A placer that hands groups of units to another one and gives each unit what its group got.

    What the other placer proves holds for its groups only, so it is not passed on.

    Args:
      placer: places the groups.
      grouper: name of the grouper.
      groups: how many groups are wanted; see the grouper for how many there will be.

    Attributes:
      starts: [U] placements to go on from, if the placer does that.

    Raises:
      InputError: fewer than 1 group.
      UnknownNameError: no such grouper.
    """

    def __init__(self, placer: Placer, grouper: str, groups: int) -> None:
        check_grouper(grouper, groups)
        self.citation = placer.citation
        self.notes: tuple[str, ...] = ()
        self.starts: tuple[IntArray, ...] = ()
        self._placer = placer
        self._grouper = grouper
        self._groups = groups

    def place(self, context: SearchContext) -> IntArray:
        """Groups, and lets the placer use the context's budget on the groups."""
        grouped = Grouped(context, GROUPERS[self._grouper](context.problem, self._groups))
        count, units = grouped.problem.num_units, context.problem.num_units
        self.notes = (f"{units:,} units were placed as {count:,} groups ({self._grouper})",)
        if self.starts:
            self._placer.starts = tuple(grouped.group(start) for start in self.starts)  # type: ignore[attr-defined]
        found = grouped.ungroup(self._placer.place(grouped))
        if context.best is not None and context.best_key is not None and grouped.best_key is not None:
            # a search that goes on knows what was found after its checkpoint, the groups do not
            found = context.best if context.best_key < grouped.best_key else found
        self.notes += tuple(f"of the groups: {note}" for note in getattr(self._placer, "notes", ()))
        return found


def merged(problem: Problem, grouper: str, groups: int) -> Problem:
    """The problem whose units are groups.

    Args:
      problem: what is placed.
      grouper: name of the grouper.
      groups: how many are wanted.

    Raises:
      InputError: fewer than 1 group.
      UnknownNameError: no such grouper.
    """
    check_grouper(grouper, groups)
    return merge_units(problem, GROUPERS[grouper](problem, groups))


def check_grouper(grouper: str, groups: int) -> None:
    """Refuses what no grouper can do.

    Raises:
      InputError: fewer than 1 group.
      UnknownNameError: no such grouper.
    """
    check_count(groups)
    if grouper not in GROUPERS:
        raise UnknownNameError("grouper", grouper, GROUPERS)
