"""How many slices: a short search with each of a few numbers, and what is left of the budget for the best of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tfplace.core.constraints import match_ops
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
"""Part of the budget for the first `_SCOUTS` short searches together."""

_SCOUTS = 3
"""Short searches that this is meant for: of the whole step, and with two numbers of slices."""

_MOST = 4
"""Short searches: devices of unlike speeds have one more, and so has one device where nothing fits."""

_TO_FIT = (2, 4, 8)
"""Slices that one device is tried with where the whole batch does not fit: they run one after the other."""

_STOPPED = "interrupted before all of the budget was spent; this is the best until then"

_ALIKE = 1.1
"""Devices whose speeds differ by less get slices of one size."""


def place_over_slices(
    read: Callable[[Sizes], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
) -> Placement:
    """The best placement of the whole step, or of it in as many slices as devices compute, or in twice as many.

    Searches of slices start, among others, from the whole step's placement. Devices of unlike speeds are also tried
    with a slice for each that has its share of the examples. One device gets the whole step if that fits. A placer
    of split steps only gets no whole step. Baselines on one device are those of the whole step, if that was placed.
    Rules on ops of a slice hold where there is such a slice. `notes` tell what each number of slices came to.

    Args:
      read: the problem in such slices, None for the whole step. Raises SplitError where the batch has too few examples.
      search: places a problem.
      options: of the search, checked; the budget is for all together, reading left out.

    Raises:
      InfeasibleError: nothing fits with any number of slices.
      SplitError: the step cannot be split, and the placer needs slices.
      ConstraintError: a rule matches no op with any number of slices.
    """
    run = _Run(read, search, options)
    try:
        whole = run.try_sizes(None)
        devices = 1 if whole is None else len(compute_devices(whole))
        if devices > 1:
            one_each = run.try_sizes(devices)
            if one_each is not None:  # a step without so many slices has no more of them either
                shares = shares_of_devices(one_each)
                if shares is not None:
                    run.try_sizes(shares)
                run.try_sizes(2 * devices)
        elif not run.found:
            for k in _TO_FIT:
                if run.try_sizes(k) is None:
                    break
        run.check_rules()
        run.go_on()
    except KeyboardInterrupt:
        if not run.found:
            raise
        run.interrupted = True
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
      interrupted: whether the user stopped it.
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
        self.interrupted = False
        self._failed: InfeasibleError | SplitError | None = None
        self._unmatched = frozenset() if options.constraints is None else options.constraints.patterns
        self._last: Problem | None = None
        self._searches = 0
        self._log: list[str] = []

    def try_sizes(self, sizes: Sizes) -> Problem | None:
        """Reads the step in such slices and searches for a while; None if it cannot be split so."""
        if self.interrupted:
            return None
        try:
            problem = self._read(sizes)
        except SplitError as error:
            self._failed = self._failed or error
            self._log.append(f"{_named(sizes)}: {error}")
            return None
        self._unmatched -= problem.constraints.patterns
        self._last = problem
        if sizes is None and PLACERS[self._options.placer].needs_slices:
            return problem
        wanted = self._with(_SCOUTING / _SCOUTS if self._warm else 1 / _MOST)
        self._searches += 1
        if self._warm and sizes is not None and None in self.found:
            wanted = replace(wanted, init=copied_to_slices(self.found[None], problem))
        try:
            self._keep(sizes, self._search(problem, wanted))
            self._log.append(f"{_named(sizes)} {format_seconds(self.found[sizes].cost.step_s)}")
        except InfeasibleError as error:
            self._failed = self._failed or error
            self._log.append(f"{_named(sizes)} does not fit")
        return problem

    def check_rules(self) -> None:
        """Refuses rules that matched no op in anything that was read.

        Raises:
          ConstraintError: there is one.
        """
        if self._last is not None and not self.interrupted:
            for pattern in sorted(self._unmatched):
                match_ops(pattern, self._last.graph)

    def go_on(self) -> None:
        """Spends the rest on the best."""
        if not self._warm or not self.found or self.interrupted:
            return
        sizes, best = self._best()
        assert best.problem is not None
        rest = 1 - self._searches * _SCOUTING / _SCOUTS
        with contextlib.suppress(InfeasibleError):  # the search's best may fit in no order that a program can keep to
            self._keep(sizes, self._search(best.problem, replace(self._with(rest), init=best)))

    def answer(self) -> Placement:
        """The best of all, with what the others came to.

        Raises:
          InfeasibleError, SplitError: there is none.
        """
        if not self.found:
            assert self._failed is not None
            raise self._failed
        sizes, best = self._best()
        told = f"slices: {', '.join(self._log)}; best is {_named(sizes)}"
        baselines = best.baselines if sizes is None else self._baselines(best)
        stopped = (_STOPPED,) if self.interrupted and not was_interrupted(best) else ()
        placer = f"{best.placer.rsplit(' (', 1)[0]} ({self._budget})"  # of which each search had a part
        return replace(best, placer=placer, baselines=baselines, notes=(told, *best.notes, *stopped))

    def _baselines(self, best: Placement) -> dict[str, StepCost]:
        """Those of a step in slices, but of one device what the whole step takes there."""
        whole = self.found[None].baselines if None in self.found else {}
        alone = {name: cost for name, cost in whole.items() if name.startswith("single ")}
        others = {name: cost for name, cost in best.baselines.items() if name not in alone}
        return {f"{name}{UNSPLIT}": cost for name, cost in alone.items()} | others

    def _keep(self, sizes: Sizes, placement: Placement) -> None:
        self.interrupted |= was_interrupted(placement)
        if sizes not in self.found or placement.cost.key < self.found[sizes].cost.key:
            self.found[sizes] = placement

    def _best(self) -> tuple[Sizes, Placement]:
        """The fewest slices of several that are equal, as these were tried first."""
        return min(self.found.items(), key=lambda item: item[1].cost.key)

    def _with(self, part: float) -> SearchOptions:
        """The options with a part of the budget."""
        seconds, evaluations = self._budget.seconds, self._budget.evaluations
        budget = part * seconds if seconds is not None else max(int(part * (evaluations or 1)), 1)
        return replace(self._options, slices=None, budget=budget)


def _named(sizes: Sizes) -> str:
    if sizes is None:
        return "the whole step"
    return f"{sizes} slices" if isinstance(sizes, int) else f"slices of {'+'.join(map(str, sizes))}"
