"""The largest batch that fits: twice as many examples until none does, then bisection; each size is planned."""

from __future__ import annotations

import math
from collections.abc import Callable

from tfplace.core.largest_batch import BatchTried, LargestBatch
from tfplace.core.plan import Plan, PlanRow
from tfplace.errors import InfeasibleError, SourceError
from tfplace.formatting import format_bytes, format_seconds
from tfplace.search.budget import Budget
from tfplace.search.on_host import ALL, host_of
from tfplace.search.planning import was_interrupted

_GRAIN = 8
"""Sizes are multiples of the largest divisor of the given batch that divides this, too."""

_NEAR = 16
"""Bisection ends when the larger size is at most so small a part above the one that fits."""

_DOUBLINGS = 12
"""Of the given batch; what fits then is told as it is."""

_WORTH = 0.5
"""Part of the best examples a second below which a size does not count: it fits because the host does the work."""

PARTS = 10
"""Each size gets so small a part of the budget."""

_STOPPED = "interrupted before the largest was found"
_AT_LEAST = "larger batches were not tried"


def part_of(budget: str | float | int) -> float | int:
    """What of a budget goes to one size."""
    whole = Budget.parse(budget)
    return whole.seconds / PARTS if whole.seconds is not None else max((whole.evaluations or 0) // PARTS, 1)


def find_largest(plan_of: Callable[[int], Plan], given: int, tell: Callable[[str], None]) -> LargestBatch:
    """The largest batch for which a plan has a way to take.

    A size counts if a way fits that leaves not nearly all ops to the host of accelerators, and if its examples take at
    most twice as long each as those of the best.

    Args:
      plan_of: examples -> plan of a step with so many. Raises SourceError for a size that the model does not take.
      given: examples to begin with.
      tell: is told what each size came to.

    Raises:
      InfeasibleError: not even one example fits; says what is missing.
      SourceError: the model does not take the given size.
      KeyboardInterrupt: before any size was found to fit.
    """
    run = _Sizes(plan_of, tell)
    grain, notes = math.gcd(given, _GRAIN), []
    try:
        low, high = run.bracket(given)
        if high is None:
            notes.append(_AT_LEAST)
        while high is not None:
            step = 1 if low % grain else grain
            if high - low <= max(step, low // _NEAR):
                break
            middle = low + max((high - low) // 2 // step, 1) * step
            low, high = (middle, high) if run.fits(middle) else (low, middle)
    except KeyboardInterrupt:
        if not run.plans:
            raise
        notes.append(_STOPPED)
    examples = max(size for size, one in run.tried.items() if one.fits)
    tried = tuple(run.tried[size] for size in sorted(run.tried))
    return LargestBatch(examples, run.plans[examples], tried, tuple(notes))


class _Sizes:
    """Batch sizes that were tried, and the plans of those that fit."""

    def __init__(self, plan_of: Callable[[int], Plan], tell: Callable[[str], None]) -> None:
        self._plan_of, self._tell = plan_of, tell
        self.tried: dict[int, BatchTried] = {}
        self.plans: dict[int, Plan] = {}
        self._misfit: InfeasibleError | None = None

    def bracket(self, given: int) -> tuple[int, int | None]:
        """A size that fits and a larger one that does not; None for the latter if none was found."""
        size = given
        if self.fits(size, required=True):
            for _ in range(_DOUBLINGS):
                if not self.fits(2 * size):
                    return size, 2 * size
                size *= 2
            return size, None
        while size > 1:
            if self.fits(size // 2):
                return size // 2, size
            size //= 2
        assert self._misfit is not None
        raise self._misfit

    def fits(self, examples: int, *, required: bool = False) -> bool:
        """Plans a size.

        Args:
          examples: of it.
          required: whether it is an error if the model does not take it.

        Raises:
          SourceError: see `required`.
          KeyboardInterrupt: the user stopped the plan, which keeps what it has; of a size that fits, so does this.
        """
        try:
            plan = self._plan_of(examples)
        except SourceError as error:
            if required:
                raise
            one = BatchTried(examples, False, math.inf, f"cannot be read: {error.received}")
        else:
            one = self._judged(examples, plan)
            if was_interrupted(plan):
                if one.fits:
                    self.tried[examples] = one
                raise KeyboardInterrupt
        self.tried[examples] = one
        took = f"{one.way}, {format_seconds(one.step_s)}, {one.rate:,.0f} examples/s" if one.fits else one.way
        self._tell(f"batch {examples}: {took}")
        return one.fits

    def _judged(self, examples: int, plan: Plan) -> BatchTried:
        row, best = plan.chosen, max((one.rate for one in self.tried.values()), default=0.0)
        takable = [one for one in plan.rows if one.cost.feasible and not one.obstacle]
        if row is None or all(_is_by_host(one) for one in takable):
            self._misfit = _misfit(plan, examples)
            return BatchTried(examples, False, math.inf, _missing(plan))
        one = BatchTried(examples, True, row.cost.step_s, row.name)
        if one.rate < _WORTH * best:
            slow = f"fits, but makes only {one.rate:,.0f} examples/s ({row.name})"
            return BatchTried(examples, False, math.inf, slow)
        self.plans[examples] = plan
        return one


def _is_by_host(row: PlanRow) -> bool:
    """Whether a way leaves accelerators nearly idle."""
    placement = row.placement
    if placement is None or placement.problem is None:
        return False
    host = host_of(placement.problem)
    runs = ~placement.problem.graph.replicable
    return host is not None and bool((placement.op_device[runs] == host).mean() > ALL)


def _nearest(plan: Plan) -> PlanRow | None:
    """What exceeds memory least of what does not fit."""
    misfits = [row for row in plan.rows if not row.cost.feasible and row.placement is not None]
    return min(misfits, key=lambda row: row.cost.key, default=None)


def _missing(plan: Plan) -> str:
    row = _nearest(plan)
    if row is None:
        return "nothing fits that may be taken"
    return f"does not fit: {row.name} is {format_bytes(row.cost.excess_bytes)} over"


def _misfit(plan: Plan, examples: int) -> InfeasibleError:
    row = _nearest(plan)
    return InfeasibleError(
        f"No batch of {plan.model!r} fits {plan.topology_name!r}, not even one of {examples}."
        + (f" The nearest is {row.name}:" if row is not None else ""),
        () if row is None else row.shortages,
        ("Allow more memory.", "Use a topology with more memory, or with a CPU for variables and optimizer slots."),
    )
