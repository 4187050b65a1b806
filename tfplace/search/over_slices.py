"""How many slices: a short search with each of a few numbers, and what is left of the budget for the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tfplace.core.placement import UNSPLIT, Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import InfeasibleError, SplitError
from tfplace.formatting import format_seconds
from tfplace.local_search.devices import compute_devices, settle
from tfplace.options import SearchOptions
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import placement_of, was_interrupted
from tfplace.simulation.evaluate import Simulator

Sizes = int | tuple[int, ...] | None
"""How many slices, or the examples of each; None for the whole step."""

_SCOUTING = 0.5
"""Part of the budget for the short searches together."""

_SCOUTS = 3
"""Short searches that this is meant for: of the whole step, and with two numbers of slices."""

_TO_FIT = (2, 4, 8)
"""Slices that one device is tried with where the whole batch does not fit: they run one after the other."""

_ALIKE = 1.1
"""Devices whose speeds differ by less get slices of one size."""


def place_over_slices(
    read: Callable[[Sizes], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
) -> Placement:
    """The best placement of the whole step, or of it in as many slices as devices compute, or in twice as many.

    Searches of slices start, among others, from the whole step's placement. Devices of unlike speeds are also tried
    with a slice for each that has its share of the examples. One device gets the whole step if that fits. Baselines on
    one device are those of the whole step. `notes` tell what each number of slices came to.

    Args:
      read: the problem in such slices, None for the whole step. Raises SplitError where the batch has too few examples.
      search: places a problem.
      options: of the search, checked; the budget is for all together, reading left out.

    Raises:
      InfeasibleError: nothing fits with any number of slices.
    """
    run = _Run(read, search, options)
    try:
        whole = run.try_sizes(None)
        devices = 1 if whole is None else len(compute_devices(whole))
        if devices > 1:
            one_each = run.try_sizes(devices)
            shares = None if one_each is None else shares_of_devices(one_each)
            if shares is not None:
                run.try_sizes(shares)
            run.try_sizes(2 * devices)
        elif not run.found:
            for k in _TO_FIT:
                run.try_sizes(k)
        run.go_on()
    except KeyboardInterrupt:
        if not run.found:
            raise
    return run.answer()


def shares_of_devices(problem: Problem) -> tuple[int, ...] | None:
    """Examples of a slice for each device that computes, so that all take as long; None where they are equal.

    Args:
      problem: a step in slices; of an example a device takes the seconds that it takes of the first slice's.
    """
    slices = problem.graph.slices
    assert slices is not None
    of_first = (slices.slice_of == 0) & ~problem.graph.replicable
    speed = 1.0 / problem.costs.compute_s[of_first][:, compute_devices(problem)].sum(axis=0)
    examples = sum(slices.sizes)
    if not np.isfinite(speed).all() or speed.max() < _ALIKE * speed.min() or examples < len(speed):
        return None
    share = examples * speed / speed.sum()
    sizes = np.maximum(share.astype(int), 1)
    while sizes.sum() != examples:  # whole examples, to where they are missed most, or least
        missed = share - sizes
        if sizes.sum() < examples:
            sizes[missed.argmax()] += 1
        else:
            sizes[np.where(sizes > 1, missed, np.inf).argmin()] -= 1
    found = tuple(sorted(sizes.tolist(), reverse=True))
    return None if found == tuple(sorted(slices.sizes, reverse=True)) else found


def copied_to_slices(whole: Placement, problem: Problem) -> Placement:
    """A placement of the whole step for the step in slices: each op is where the op is that it copies."""
    slices = problem.graph.slices
    assert slices is not None
    device = dict(zip(whole.op_names, whole.op_device.tolist(), strict=True))
    wanted = problem.gather(np.array([device.get(name, 0) for name in slices.original], np.int32))
    units = settle(problem, wanted)
    cost = Simulator(problem)(units)
    return placement_of(problem, units, cost, bound_s=0.0, placer=whole.placer, seed=whole.seed, baselines={})


class _Run:
    """What has been tried so far.

    Attributes:
      found: the best placement with each number of slices that fits.
    """

    def __init__(
        self,
        read: Callable[[Sizes], Problem],
        search: Callable[[Problem, SearchOptions], Placement],
        options: SearchOptions,
    ) -> None:
        self._read, self._search, self._options = read, search, options
        self._budget = Budget.parse(options.budget)
        self._warm = PLACERS[options.placer].accepts_starts
        self.found: dict[Sizes, Placement] = {}
        self._infeasible: InfeasibleError | None = None
        self._interrupted = False
        self._log: list[str] = []

    def try_sizes(self, sizes: Sizes) -> Problem | None:
        """Reads the step in such slices and searches for a while; None if it cannot be split so."""
        if self._interrupted:
            return None
        try:
            problem = self._read(sizes)
        except SplitError as error:
            self._log.append(f"{_named(sizes)}: {error}")
            return None
        part = (_SCOUTING if self._warm else 1.0) / _SCOUTS
        wanted = self._with(part)
        if self._warm and sizes is not None and None in self.found:
            wanted = replace(wanted, init=copied_to_slices(self.found[None], problem))
        try:
            self._keep(sizes, self._search(problem, wanted))
            self._log.append(f"{_named(sizes)} {format_seconds(self.found[sizes].cost.step_s)}")
        except InfeasibleError as error:
            self._infeasible = self._infeasible or error
            self._log.append(f"{_named(sizes)} does not fit")
        return problem

    def go_on(self) -> None:
        """Spends the rest on the best."""
        if not self._warm or not self.found or self._interrupted:
            return
        sizes, best = self._best()
        assert best.problem is not None
        self._keep(sizes, self._search(best.problem, replace(self._with(1 - _SCOUTING), init=best)))

    def answer(self) -> Placement:
        """The best of all, with what the others came to.

        Raises:
          InfeasibleError: there is none.
        """
        if not self.found:
            assert self._infeasible is not None
            raise self._infeasible
        sizes, best = self._best()
        told = f"slices: {', '.join(self._log)}; best is {_named(sizes)}"
        baselines = best.baselines if sizes is None else self._baselines(best)
        return replace(best, baselines=baselines, notes=(told, *best.notes))

    def _baselines(self, best: Placement) -> dict[str, StepCost]:
        """Those of a step in slices, but of one device what the whole step takes there."""
        whole = self.found[None].baselines if None in self.found else {}
        alone = {name: cost for name, cost in whole.items() if name.startswith("single ")}
        others = {name: cost for name, cost in best.baselines.items() if name not in alone}
        return {f"{name}{UNSPLIT}": cost for name, cost in alone.items()} | others

    def _keep(self, sizes: Sizes, placement: Placement) -> None:
        self._interrupted |= was_interrupted(placement)
        if sizes not in self.found or placement.cost.key < self.found[sizes].cost.key:
            self.found[sizes] = placement

    def _best(self) -> tuple[Sizes, Placement]:
        """The fewest slices of several that are equal, as these were tried first."""
        return min(self.found.items(), key=lambda item: item[1].cost.key)

    def _with(self, part: float) -> SearchOptions:
        """The options with a part of the budget."""
        if self._budget.seconds is not None:
            budget = f"{part * self._budget.seconds:.3f}s"
        else:
            budget = f"{max(int(part * (self._budget.evaluations or 1)), 1)} evaluations"
        return replace(self._options, slices=None, budget=budget)


def _named(sizes: Sizes) -> str:
    if sizes is None:
        return "the whole step"
    return f"{sizes} slices" if isinstance(sizes, int) else f"slices of {'+'.join(map(str, sizes))}"
