"""How many slices: a short search with each of a few numbers, and what is left of the budget for the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tfplace.core.placement import UNSPLIT, Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import InfeasibleError, SplitError
from tfplace.formatting import format_seconds
from tfplace.local_search.devices import compute_devices
from tfplace.options import SearchOptions
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import was_interrupted

_SCOUTING = 0.5
"""Part of the budget for the short searches together."""

_TO_FIT = (2, 4, 8)
"""Slices that one device is tried with where the whole batch does not fit: they run one after the other."""


def place_over_slices(
    read: Callable[[int | None], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
) -> Placement:
    """The best placement of the whole step, or of it in as many slices as devices compute, or in twice as many.

    One device gets the whole step if that fits. Baselines on one device are those of the whole step. `notes` tell what
    each number of slices came to.

    Args:
      read: the problem in so many slices, None for the whole step.
      search: places a problem.
      options: of the search, checked; the budget is for all together, reading left out.

    Raises:
      InfeasibleError: nothing fits with any number of slices.
    """
    run = _Run(read, search, options)
    try:
        run.try_slices(None)
        numbers = (run.devices, 2 * run.devices) if run.devices > 1 else _TO_FIT
        for k in numbers if run.devices > 1 or not run.found else ():
            if not run.interrupted:
                run.try_slices(k)
        if run.found and not run.interrupted:
            run.go_on()
    except KeyboardInterrupt:
        if not run.found:
            raise
    if not run.found:
        assert run.infeasible is not None
        raise run.infeasible
    return run.answer()


class _Run:
    """What has been tried so far."""

    def __init__(
        self,
        read: Callable[[int | None], Problem],
        search: Callable[[Problem, SearchOptions], Placement],
        options: SearchOptions,
    ) -> None:
        self._read, self._search, self._options = read, search, options
        self._budget = Budget.parse(options.budget)
        self._warm = PLACERS[options.placer].accepts_starts
        self.found: dict[int, Placement] = {}
        self.infeasible: InfeasibleError | None = None
        self.interrupted = False
        self.devices = 1
        self._log: list[str] = []

    def try_slices(self, k: int | None) -> None:
        """Reads the step in so many slices and searches for a while."""
        name = "whole" if k is None else f"{k} slices"
        try:
            problem = self._read(k)
        except SplitError as error:
            self._log.append(f"{name}: {error}")
            return
        self.devices = len(compute_devices(problem))
        part = (_SCOUTING if self._warm else 1.0) / 3
        try:
            self._keep(k, self._search(problem, replace(self._options, slices=None, budget=self._share(part))))
            self._log.append(f"{name} {format_seconds(self.found[k or 1].cost.step_s)}")
        except InfeasibleError as error:
            self.infeasible = self.infeasible or error
            self._log.append(f"{name} does not fit")

    def go_on(self) -> None:
        """Spends the rest on the best."""
        if not self._warm:
            return
        k, best = self._best()
        assert best.problem is not None
        budget = self._share(1 - _SCOUTING)
        self._keep(k, self._search(best.problem, replace(self._options, slices=None, budget=budget, init=best)))

    def answer(self) -> Placement:
        """The best of all, with what the others came to."""
        k, best = self._best()
        told = f"slices: {', '.join(self._log)}; {'the batch stays whole' if k == 1 else f'{k} slices are best'}"
        return replace(best, baselines=best.baselines if k == 1 else self._baselines(best), notes=(told, *best.notes))

    def _baselines(self, best: Placement) -> dict[str, StepCost]:
        """Those of a step in slices, but of one device what the whole step takes there."""
        whole = self.found[1].baselines if 1 in self.found else {}
        alone = {name: cost for name, cost in whole.items() if name.startswith("single ")}
        others = {name: cost for name, cost in best.baselines.items() if name not in alone}
        return {f"{name}{UNSPLIT}": cost for name, cost in alone.items()} | others

    def _keep(self, k: int | None, placement: Placement) -> None:
        before = self.found.get(k or 1)
        self.interrupted |= was_interrupted(placement)
        if before is None or placement.cost.key < before.cost.key:
            self.found[k or 1] = placement

    def _best(self) -> tuple[int, Placement]:
        return min(self.found.items(), key=lambda item: (item[1].cost.key, item[0]))

    def _share(self, part: float) -> str:
        if self._budget.seconds is not None:
            return f"{part * self._budget.seconds:.3f}s"
        return f"{max(int(part * (self._budget.evaluations or 1)), 1)} evaluations"
