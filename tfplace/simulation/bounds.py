"""Step times that no placement can beat, by the rules of docs/reference/bounds.md.

Every bound is proven where it is computed, from two facts that hold under all options: an op on device d takes at least
its seconds there, and a device does at most one second of its ops' work per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.core.kept import kept
from tfplace.core.problem import Problem
from tfplace.simulation.options import DEFAULT, Options
from tfplace.simulation.paths import after_s, allowed_seconds, before_s
from tfplace.simulation.relaxation import Relaxation, relax
from tfplace.simulation.room import roomy

_STEPS = 64
"""Values tried for either end of a window."""


@dataclass(frozen=True)
class Bound:
    """The best of several lower bounds on the step time.

    Attributes:
      seconds: no placement of the problem that keeps to the allowed devices and the memory is simulated to be faster.
      kind: which bound that is.
      all: every bound by kind: "critical path", "work", "largest unit", "window" and, if the devices' memory forces
        variables apart or large ops away, "memory". Only the last one needs the placement to fit.
    """

    seconds: float
    kind: str
    all: Mapping[str, float]


def lower_bound(problem: Problem, options: Options = DEFAULT) -> Bound:
    """The largest of the bounds on the step time of any placement that keeps to the allowed devices and the memory."""
    return _lower_bound(problem, replace(DEFAULT, overheads=options.overheads))  # nothing else in them counts here


@kept
def _lower_bound(problem: Problem, options: Options) -> Bound:
    bounds = _anywhere(problem, options)
    memory = memory_s(problem, options)
    if memory is not None:
        bounds["memory"] = memory
    kind = max(bounds, key=bounds.__getitem__)
    # Sums of the same numbers in another order differ in the last digits; a bound must not pass the truth for that.
    return Bound(bounds[kind] * (1 - 1e-9), kind, bounds)


def _anywhere(problem: Problem, options: Options) -> dict[str, float]:
    """The bounds that hold whether placements fit or not."""
    paths = _paths(problem, options)
    work = relax(problem.unit_seconds)
    return {
        "critical path": critical_path_s(paths),
        "work": work.seconds,
        "largest unit": largest_unit_s(problem, paths),
        "window": window_s(paths, [work.weight, *np.eye(problem.num_devices)]),
    }


@dataclass(frozen=True, eq=False)
class Paths:
    """What `tfplace.simulation.paths` knows of every op on every device, [V, D] seconds each; infinite if not allowed.

    Attributes:
      before: that pass before it can start.
      seconds: that it takes.
      after: that pass after it has finished.
    """

    before: FloatArray
    seconds: FloatArray
    after: FloatArray

    @property
    def through(self) -> FloatArray:
        """[V, D] the least step with the op on the device."""
        return self.before + self.seconds + self.after


def _paths(problem: Problem, options: Options) -> Paths:
    seconds = allowed_seconds(problem)
    counted = ~problem.graph.replicable
    before, after = before_s(problem, seconds, options), after_s(problem, seconds, options)
    return Paths(before[counted], seconds[counted], after[counted])


def critical_path_s(paths: Paths) -> float:
    """The longest path, with transfers where they cannot be avoided, in seconds.

    Whatever the placement, op v is on some device d, where it cannot start before `before[v, d]`, takes
    `seconds[v, d]`, and is followed by at least `after[v, d]`. So a step takes at least the least sum over d; and that
    for every v.
    """
    return float(paths.through.min(axis=1).max(initial=0.0))


def largest_unit_s(problem: Problem, paths: Paths) -> float:
    """The unit that takes longest, with what must come before and after it, in seconds.

    All ops of a unit are on one device d, which does their seconds after the first of them can start and before what
    follows the last of them. So a step takes at least the least over d of the sum of their seconds and of the smallest
    `before[v, d]` and `after[v, d]` among them. A constant that a rule has made a unit of its own takes no time, and
    nothing has to wait for it.
    """
    unit = problem.grouping.unit_of[~problem.graph.replicable]
    first, last = (np.full(problem.unit_seconds.shape, np.inf) for _ in range(2))
    np.minimum.at(first, unit, paths.before)
    np.minimum.at(last, unit, paths.after)
    counted = np.unique(unit)
    return float((first + problem.unit_seconds + last)[counted].min(axis=1).max(initial=0.0))


def window_s(paths: Paths, weights: list[FloatArray]) -> float:
    """Work that has to be done between what comes before all of it and what comes after, in seconds.

    Let S be ops none of which can start before time a, on any device, and after each of which at least b must pass. In
    a step of T seconds S is done within [a, T - b], so each device does at most T - a - b seconds of it. With weights w
    of the devices that sum to 1, the sum over S of the least `w[d] * seconds[v, d]` is at most the sum over devices of
    w[d] times what d does of S, so at most T - a - b. This is the energetic argument of scheduling (Baptiste, Le Pape
    and Nuijten 2001, section 3.3) with heads and tails as the windows, here for unrelated machines.

    Args:
      paths: of the ops.
      weights: [D] each, to be tried: those of the whole graph's work, and a single device, which then counts the ops
        that may be nowhere else.
    """
    head, tail = paths.before.min(axis=1), paths.after.min(axis=1)
    best = 0.0
    if not len(head):
        return best
    a, b = (np.unique(np.quantile(times, np.linspace(0, 1, _STEPS), method="lower")) for times in (head, tail))
    cells = (np.searchsorted(a, head, "right") - 1) * len(b) + np.searchsorted(b, tail, "right") - 1

    def within(each: FloatArray) -> FloatArray:
        """Sums over the ops of every window."""
        sums: FloatArray = np.bincount(cells, each, minlength=len(a) * len(b)).astype(np.float64)
        return _at_least(sums.reshape(len(a), len(b)))

    some = within(np.ones(len(head))) > 0
    for weight in weights:
        work = within(_weighted(paths.seconds, weight).min(axis=1))
        best = max(best, float(np.where(some, work + a[:, None] + b, 0.0).max()))
    return best


def _weighted(seconds: FloatArray, weight: FloatArray) -> FloatArray:
    """[V, D] weighted seconds, infinite where they were, also with a weight of 0."""
    return np.where(np.isfinite(seconds), np.where(np.isfinite(seconds), seconds, 0.0) * weight, np.inf)


def _at_least(table: FloatArray) -> FloatArray:
    """Sums over all cells with indices at least as large."""
    sums: FloatArray = table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)
    return sums[::-1, ::-1]


def memory_s(problem: Problem, options: Options = DEFAULT) -> float | None:
    """What memory forces, in seconds: the larger of two bounds; None if it can force nothing, or if nothing fits.

    That of `memory_split`; and the other bounds; each unit only where there is room for any one of its ops, see
    `devices_with_room`: every placement that fits has it there.
    """
    narrow = roomy(problem)
    if narrow is None:
        return None
    forced: list[float] = []
    if narrow is not problem:
        forced += _anywhere(narrow, options).values()
    split = memory_split(narrow)
    if split is not None:
        forced.append(split.seconds)
    return max(forced, default=None)


def memory_split(problem: Problem) -> Relaxation | None:
    """The work bound of placements whose variables fit; None if memory cannot force anything.

    Variables are held all the time, so those of a unit take their bytes from its device's limit whatever the order. The
    relaxation may divide units over devices, and their bytes with them; see `relax`. It says nothing if all variables
    fit on each device, or if no placement fits.
    """
    held = np.zeros(problem.num_units)
    inside = problem.grouping.unit_of >= 0
    np.add.at(held, problem.grouping.unit_of[inside], problem.graph.persistent_bytes[inside].astype(np.float64))
    limit = problem.memory_limit.astype(np.float64)
    if held.sum() <= limit.min() or held.sum() > limit.sum():
        return None
    split = relax(problem.unit_seconds, held, limit)
    return split if np.isfinite(split.seconds) else None
