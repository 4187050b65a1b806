"""One list-scheduling method at several granularities and with several speeds of links, and the best of its plans.

What is planned is not what is simulated: a plan's ops wait for the more urgent ones, an executor's only for those that
came first. So plans that spread much, at op level and with links as fast as they are, look better than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.group.acyclic import Precedence, precedence
from tfplace.group.co_placement import merge
from tfplace.group.heavy_edge import heavy_edge
from tfplace.group.topological import topological
from tfplace.schedule.list_scheduling.fuse import fuse
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.schedule.list_scheduling.tasks import Units, make_units

PlanWith = Callable[[float], IntArray]
"""A method's [U] devices, given the fraction of every device's memory that it may plan with."""

_MEMORY = (1.0, 0.9, 0.8, 0.7, 0.55, 0.4)
_GROUPERS = {"heavy_edge": heavy_edge, "merge": merge, "topological": topological}


class Variants:
    """Schedulers of one problem, each made when it is first asked for.

    Args:
      problem: what is placed.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._made: dict[tuple[str, int, float], Scheduler] = {}
        self._labels: dict[tuple[str, int], IntArray] = {}

    def ops(self, slower: float = 1.0) -> Scheduler:
        """Of single ops, in the problem's units.

        Args:
          slower: transfers are planned to take so many times as long.
        """
        return self._scheduler("", 0, slower)

    def groups(self, grouper: str, count: int, slower: float = 1.0) -> Scheduler:
        """Of groups as tasks that run as a whole.

        Args:
          grouper: "heavy_edge", "merge", "topological"; or "units", each a group.
          count: how many groups, at most; not looked at for units.
          slower: transfers are planned to take so many times as long.
        """
        return self._scheduler(grouper, count, slower)

    def plans(
        self, plan: Callable[[Scheduler, float], IntArray], groups: Iterable[tuple[str, int]], slower: Sequence[float]
    ) -> Iterator[PlanWith]:
        """A method's plans of single ops, then of each grouping that is one, each with links of every speed.

        Args:
          plan: the method: [U] devices from a scheduler and the fraction of every device's memory to plan with.
          groups: groupers and how many groups, as in `groups`.
          slower: as in `ops`.
        """
        for factor in slower:
            yield partial(plan, self.ops(factor))
        for grouper, count in groups:
            if self.coarser(count):
                for factor in slower:
                    yield partial(plan, self.groups(grouper, count, factor))

    def coarser(self, count: int) -> bool:
        """Whether so many groups are fewer than there are units."""
        return count < self.problem.num_units

    def units(self, grouper: str, count: int) -> Units:
        """Groups that share a device, for schedulers of single ops."""
        return make_units(self.problem, self._label(grouper, count))

    def _scheduler(self, grouper: str, count: int, slower: float) -> Scheduler:
        key = (grouper, count, slower)
        if key not in self._made:
            if slower != 1.0:
                self._made[key] = self._scheduler(grouper, count, 1.0).slower(slower)
            else:
                self._made[key] = self._make(grouper, count)
        return self._made[key]

    def _make(self, grouper: str, count: int) -> Scheduler:
        if not grouper:
            return Scheduler.of(self.problem)
        return fuse(self.problem, None if grouper == "units" else self._label(grouper, count), self._before)

    @cached_property
    def _before(self) -> Precedence:
        return precedence(self.problem)

    def _label(self, grouper: str, count: int) -> IntArray:
        if (grouper, count) not in self._labels:
            self._labels[grouper, count] = _GROUPERS[grouper](self.problem, count)
        return self._labels[grouper, count]


def best_plan(plans: Callable[[], Iterator[PlanWith]], key: Callable[[IntArray], Key]) -> IntArray:
    """[U] the best placement of several plans; with less memory to plan with as long as none fits.

    Args:
      plans: starts to make the plans, the most promising first.
      key: evaluates; whatever it raises when a budget is used up is passed on.
    """
    seen: dict[bytes, Key] = {}
    best: tuple[Key, IntArray] | None = None
    for memory in _MEMORY:
        for plan in plans():
            devices = plan(memory)
            name = np.ascontiguousarray(devices).tobytes()
            if name in seen:
                continue
            seen[name] = key(devices)
            if best is None or seen[name] < best[0]:
                best = seen[name], devices
        if best is not None and best[0][0] == 0:
            break
    assert best is not None, "no plans"
    return best[1]
