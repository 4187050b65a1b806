"""How many slices: a short search with each of a few numbers, and what is left of the budget for the best of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tfplace.core.constraints import match_ops
from tfplace.core.placement import UNSPLIT, Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import STEP_TIME, StepCost
from tfplace.errors import FewExamplesError, InfeasibleError, SplitError
from tfplace.formatting import format_seconds
from tfplace.local_search.devices import compute_devices
from tfplace.options import SearchOptions
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.clock import Clock
from tfplace.search.place import was_interrupted
from tfplace.search.slice_starts import USUAL, slice_starts, whole_start

Sizes = int | tuple[int, ...] | None
"""How many slices, or the examples of each; None for the whole step."""

_SCOUTING = 0.5
"""Part of the budget for the first `_SCOUTS` short searches together."""

_SCOUTS = 3
"""Short searches that this is meant for: of the whole step, and with two numbers of slices."""

_MOST = 4
"""Short searches: devices of unlike speeds have one more, and so has one device where nothing fits."""

_TO_FIT = (2, 4, 8)
"""Slices that are tried where the whole batch does not fit one device, or no number that suits several devices does."""

_LEAST_S = 1e-3
"""Seconds of a search for which there is no time any more: it evaluates what it starts from."""

_STOPPED = "interrupted before all of the budget was spent; this is the best placement found"

_OF_DEVICES = ("op_device", "phases", "order", "cost")
_OF_COMPILATION = ("problem", "problem_fingerprint", "bound_s", "compile", "notes")
"""What placements have that depends on the devices, and on whether the step is compiled."""

_ALIKE = 1.1
"""Devices whose speeds differ by less get slices of one size."""


_MOST_OPS = 250_000
"""Of a step in twice as many slices as devices, which seldom pays: reading more takes minutes and gigabytes."""


def place_over_slices(
    read: Callable[[Sizes], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
) -> Placement:
    """The best placement of the whole step, or of it in as many slices as devices compute, or in twice as many.

    Where the number of devices is no power of two, the next smaller power is tried as if there were so many.

    Devices of unlike speeds are also tried with a slice for each that has its share of the examples, other numbers
    where none of these fits, and a slice for each example where these are fewer than the devices. One device gets the
    whole step if that fits. A placer of split steps only gets no whole step. Baselines on one device are those of the
    whole step, if that was placed. Rules on ops of a slice hold where
    there is such a slice. `notes` tell what each number of slices came to.

    Searches of slices start from the best of `slice_starts`. These are made however short the budget is, of which they
    are a part, so that no answer is worse than any of them.

    Args:
      read: the problem in such slices, None for the whole step. Raises SplitError where the batch has too few examples.
      search: places a problem.
      options: of the search, checked; the budget is for all together, reading left out.

    Raises:
      InfeasibleError: nothing fits with any number of slices.
      SplitError: the step cannot be split, and the placer needs slices.
      ConstraintError: a rule matches no op with any number of slices.
    """
    return search_over_slices(read, search, options).answer()


def search_over_slices(
    read: Callable[[Sizes], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
) -> OverSlices:
    """All that `place_over_slices` tries.

    Args:
      read: as there.
      search: as there.
      options: as there.

    Raises:
      ConstraintError: as there.
      KeyboardInterrupt: before anything was found.
    """
    run = OverSlices(read, search, options)
    try:
        whole = run.try_sizes(None)
        devices = 1 if whole is None else len(compute_devices(whole))
        fits = devices == 1 and bool(run.found)
        if devices > 1:
            one_each = run.try_sizes(devices)
            if one_each is None and run.examples > 1:
                run.try_sizes(run.examples)  # one example each
            if one_each is not None:  # a step without so many slices has no more of them either
                shares = shares_of_devices(one_each)
                if shares is not None:
                    run.try_sizes(shares)
                for k in (2 * devices, *_of_fewer(devices)):
                    if whole is None or k * whole.graph.num_ops <= _MOST_OPS:
                        run.try_sizes(k)
                    else:
                        run.log.append(f"{k} slices: not tried, as they have over {_MOST_OPS:,} ops")
            fits = one_each is None or any(sizes is not None for sizes in run.found)
        if not fits:
            for k in _TO_FIT:
                if k not in run.problems and run.try_sizes(k) is None:
                    break
        run.check_rules()
        run.go_on()
    except KeyboardInterrupt:
        if not run.found:
            raise
        run.interrupted = True
    return run


def _of_fewer(devices: int) -> tuple[int, ...]:
    """Slices that a power of two of the devices would have, where all are none: more devices are never to be worse."""
    power = 1 << (devices.bit_length() - 1)
    return () if power == devices else (power, 2 * power)


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


class OverSlices:
    """What has been tried so far.

    Attributes:
      found: the best placement with each number of slices that fits.
      problems: that were read, by their slices.
      starts: what searches of slices started from, by the slices asked for, as `found`.
      start_s: seconds that these took together, likewise.
      search_s: seconds of the searches, with those of `start_s`, likewise.
      log: what each number of slices came to.
      interrupted: whether the user stopped it.
      examples: in the batch, where these are fewer than the slices tried last; else 0.
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
        self.problems: dict[Sizes, Problem] = {}
        self.starts: dict[Sizes, list[Placement]] = {}
        self.start_s: dict[Sizes, float] = {}
        self.search_s: dict[Sizes, float] = {}
        self.interrupted = False
        self.examples = 0
        self._failed: InfeasibleError | SplitError | None = None
        self._unmatched = frozenset() if options.constraints is None else options.constraints.patterns
        self._last: Problem | None = None
        self._total: float = self._budget.seconds or self._budget.evaluations or 0
        self._left = self._total
        self.log: list[str] = []

    def try_sizes(self, sizes: Sizes) -> Problem | None:
        """Reads the step in such slices and searches for a while; None if it cannot be split so."""
        if self.interrupted:
            return None
        try:
            problem = self._read(sizes)
        except SplitError as error:
            self._failed = self._failed or error
            self.examples = error.examples if isinstance(error, FewExamplesError) else 0
            self.log.append(f"{_named(sizes)}: {error}")
            return None
        self._unmatched -= problem.constraints.patterns
        self._last = self.problems[sizes] = problem
        if sizes is None and PLACERS[self._options.placer].needs_slices:
            return problem
        start, spent = self._start(sizes, problem) if self._warm else (None, 0.0)
        if start is not None and self._fits(start):
            self.found[sizes] = start
        planned, most = (_SCOUTING / _SCOUTS, self._left / 2) if self._warm else (1 / _MOST, self._left)
        wanted = self._with(min(planned * self._total - spent, most), start)
        try:
            self._search_for(sizes, problem, wanted)
        except InfeasibleError as error:
            self._failed = self._failed or error
        self.log.append(f"{_named(sizes)} {self._told(sizes, start)}")
        return problem

    def _search_for(self, sizes: Sizes, problem: Problem, options: SearchOptions) -> None:
        """Searches, and keeps what is found if it is better."""
        clock = Clock()
        try:
            self._keep(sizes, self._search(problem, options))
        finally:
            self.search_s[sizes] = self.search_s.get(sizes, 0.0) + clock.seconds

    def _start(self, sizes: Sizes, problem: Problem) -> tuple[Placement | None, float]:
        """The best placement to start from, and what finding it took of the budget."""
        timed = self._options.objective == STEP_TIME
        if sizes is None:
            return (whole_start(problem, self._options.seed) if timed else None), 0.0
        names = USUAL if timed else ()
        starts = slice_starts(problem, self.found.get(None), self._options.seed, names)
        self.starts[sizes], self.search_s[sizes] = starts.placements, starts.seconds
        self.start_s[sizes] = starts.seconds
        spent = starts.seconds if self._budget.seconds is not None else float(starts.evaluations)
        self._left -= spent
        return min(starts.placements, key=lambda start: start.cost.key, default=None), spent

    def _fits(self, start: Placement) -> bool:
        """Whether it could be the answer."""
        return start.cost.feasible and start.cost.objective == self._options.objective

    def _told(self, sizes: Sizes, start: Placement | None) -> str:
        """What slices came to, and from what."""
        if sizes not in self.found:
            return "does not fit"
        told = format_seconds(self.found[sizes].cost.step_s)
        if start is None or start.placer not in USUAL or not self._fits(start):
            return told
        return f"{told} (from {start.placer} {format_seconds(start.cost.step_s)})"

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
        if not self._warm or not self.found or self.interrupted or self._left <= 0:
            return
        sizes, best = self._best()
        assert best.problem is not None
        with contextlib.suppress(InfeasibleError):  # the search's best may fit in no order that a program can keep to
            self._search_for(sizes, best.problem, self._with(self._left, best))

    def answer(self) -> Placement:
        """The best of all, with what the others came to.

        Raises:
          InfeasibleError, SplitError: there is none.
        """
        if not self.found:
            assert self._failed is not None
            raise self._failed
        sizes, best = self._best()
        told = f"slices: {', '.join(self.log)}; best is {_named(sizes)}"
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
        """Keeps the better of two placements, with what the later search has to say."""
        self.interrupted |= was_interrupted(placement)
        known = self.found.get(sizes)
        if known is not None and known.cost.key < placement.cost.key:
            better = _OF_DEVICES if known.compile == placement.compile else (*_OF_DEVICES, *_OF_COMPILATION)
            placement = replace(placement, **{name: getattr(known, name) for name in better})
        self.found[sizes] = placement

    def _best(self) -> tuple[Sizes, Placement]:
        """The fewest slices of several that are equal, as these were tried first."""
        return min(self.found.items(), key=lambda item: item[1].cost.key)

    def _with(self, amount: float, init: Placement | None = None) -> SearchOptions:
        """The options with so much of the budget, in its unit, which is taken from what is left of it."""
        budget = max(amount, _LEAST_S) if self._budget.seconds is not None else max(int(amount), 1)
        self._left -= budget
        return replace(self._options, slices=None, budget=budget, init=init)


def _named(sizes: Sizes) -> str:
    if sizes is None:
        return "the whole step"
    return f"{sizes} slices" if isinstance(sizes, int) else f"slices of {'+'.join(map(str, sizes))}"
