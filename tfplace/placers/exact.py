"""Exact: CP-SAT on a problem's units, with a proof of how far from the best its answer can be."""

from __future__ import annotations

import contextlib
import math
import time

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, SearchContext
from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.engines.cores import own_cores
from tfplace.formatting import format_seconds
from tfplace.group.heavy_edge import heavy_edge
from tfplace.local_search.batches import try_all
from tfplace.local_search.devices import settle, single_devices
from tfplace.local_search.grouped_context import GroupedContext
from tfplace.registry import PLACERS
from tfplace.schedule.exact.cp_model import Limits
from tfplace.schedule.exact.cp_process import ask, check_installed

_STARTS = {STEP_TIME: ("single", "expert", "heft", "etf"), THROUGHPUT: ("single", "expert", "contiguous")}
_IMPROVERS = {STEP_TIME: "local_search", THROUGHPUT: "load_search"}
_START, _PROVE = 0.2, 0.75
"""Parts of the budget for a good hint, and of the rest for CP-SAT; the last part improves what that has found."""

_WORK = 0.002
"""Deterministic seconds of CP-SAT for each evaluation that is left, as the clock would vary the answer."""

_STARTING_S = 1.5
"""Seconds that the solver's process takes to start."""

_GROUPS = 300
"""Units, or groups of them, that CP-SAT decides at most, since its time grows fast with them."""

_OPS = 4000
"""Ops beyond which the model of a step is too large to build."""


class Exact(Placer):
    """The best placement, or one with a bound on how much better another could be.

    At most 2,000 placements are all evaluated. Otherwise the best of some cheap starts, improved for a fifth of the
    budget, is given as a hint to CP-SAT, which has three quarters of the rest; every better solution it finds is
    evaluated, and what is left of the budget improves the best of all. The models are in
    `tfplace.schedule.exact.cp_model`:

    - throughput: the objective itself; what is proven optimal is so.
    - step time: a schedule that may choose the order of ops and transfers, which the simulator does not. Its bound
      holds for every simulated step, but no placement need reach it.

    `proven_s` is the bound; `notes` has one line on it, with the gap, for reports. More than 300 units are first joined
    to groups over their heaviest edges; then nothing is proven of placements that split a group, and `proven_s` is 0.
    Nothing is proven where steps are measured or simulated with options of their own; the starts are improved then.
    By the step time graphs of more than 4,000 ops are too large for a model; the starts are improved all the time then.

    With a budget in evaluations CP-SAT runs on one thread for 0.002 of its deterministic seconds per evaluation, so
    that the answer is always the same. It needs OR-Tools, `pip install 'tfplace[exact]'`, and has a process of its own
    (`tfplace.schedule.exact.cp_process`), which takes a second or two to start.

    Args:
      groups: the most units, or groups of them, that CP-SAT decides.
    """

    citation = (
        "L. Perron, F. Didier, S. Gay: The CP-SAT-LP Solver. CP 2023; throughput model after the integer program of "
        "J. Tarnawski et al.: Efficient Algorithms for Device Placement of DNN Graph Operators. NeurIPS 2020."
    )
    extra = "exact"

    def __init__(self, groups: int = _GROUPS) -> None:
        self.groups = groups
        self._how = ""

    @classmethod
    def check_extra(cls) -> None:
        """Looks for OR-Tools, without loading it.

        Raises:
          MissingExtraError: it is not installed.
        """
        check_installed()

    def place(self, context: SearchContext) -> IntArray:
        """Uses the whole budget unless the best placement is proven to be that before.

        Raises:
          MissingExtraError: OR-Tools is not installed.
        """
        check_installed()
        self.proven_s = 0.0
        self.notes = ("exact: the budget was spent before CP-SAT began, so nothing was proven",)
        with contextlib.suppress(BudgetSpentError):
            if try_all(context):
                if context.plain:
                    self.proven_s = _best_s(context) if math.isfinite(_best_s(context)) else 0.0
                    self._say(_best_s(context), self.proven_s, "all placements were evaluated")
                else:
                    self.notes = ("exact: all placements were evaluated; nothing was proven with this evaluator",)
            else:
                self._search(context)
        return single_devices(context.problem)[0] if context.best is None else context.best

    def _search(self, context: SearchContext) -> None:
        problem = context.problem
        label = np.arange(problem.num_units, dtype=np.int32)
        if len(label) > self.groups:
            label = heavy_edge(problem, self.groups)
        grouped = GroupedContext(context, label)
        _start(context, grouped, label)
        if grouped.best is None or grouped.best_key is None or grouped.best_key[0]:
            self.notes = ("exact: found no placement that fits to start from, so nothing was proven",)
        elif not context.plain:
            self.notes = ("exact: this evaluator has no model, so nothing was proven",)
        elif context.objective == STEP_TIME and problem.graph.num_ops > _OPS:
            self.notes = (f"exact: more than {_OPS:,} ops are too many for a model of steps, so nothing was proven",)
        else:
            self._prove(context, grouped, grouped.best, grouped.best_key[1])
        if not self._settled(context):
            _improve(context, 1.0)
        if self.proven_s:
            self._say(_best_s(context), self.proven_s, self._how)
        elif _best_s(context) < _best_s(grouped):
            parted = (
                f"exact: the answer, {format_seconds(_best_s(context))}, splits groups, so nothing was proven of it"
            )
            self.notes += (parted,)

    def _prove(self, context: SearchContext, grouped: GroupedContext, start: IntArray, start_s: float) -> None:
        problem = grouped.problem
        seconds, evaluations = context.left
        if seconds is not None and seconds < 2 * _STARTING_S:
            self.notes = ("exact: too little of the budget was left for CP-SAT, so nothing was proven",)
            return
        limits = Limits(
            None if seconds is None else time.time() + (seconds - _STARTING_S) * _PROVE,
            _WORK * max(evaluations or 0, 1),
            len(own_cores()),
        )
        answer = ask(problem, context.objective, start, start_s, limits)
        self._how = f"CP-SAT: {answer.status.lower()}"
        if problem.num_units == context.problem.num_units:
            self.proven_s = max(answer.bound_s, context.bound_s)
        with contextlib.suppress(BudgetSpentError):
            for devices in reversed(answer.found):  # the best one first
                grouped.key(devices)
        if problem.num_units < context.problem.num_units:
            how = f"{self._how}, among placements that keep {problem.num_units} groups whole"
            self._say(_best_s(grouped), answer.bound_s, how)

    def _settled(self, context: SearchContext) -> bool:
        """Whether nothing better is left to find, but for what rounding to ticks may hide."""
        if self.proven_s and context.objective == THROUGHPUT and self._how == "CP-SAT: optimal":
            return True
        return context.best_key is not None and context.best_key <= (0, self.proven_s * (1 + 1e-6))

    def _say(self, best_s: float, bound_s: float, how: str) -> None:
        if not math.isfinite(best_s):
            self.notes = (f"exact: nothing fits ({how})",)
            return
        if bound_s <= 0 < best_s:
            self.notes = (f"exact: {format_seconds(best_s)}; nothing was proven ({how})",)
            return
        gap = 100 * (best_s / bound_s - 1) if bound_s > 0 else 0.0
        near = f"at most {gap:.{2 if gap >= 0.005 else 3}f} % from the best" if gap > 1e-3 else "proven to be the best"
        self.notes = (f"exact: {format_seconds(best_s)}, {near}; lower bound {format_seconds(bound_s)} ({how})",)


def _best_s(context: SearchContext) -> float:
    """Seconds of the best placement that fits; infinite without one."""
    return math.inf if context.best_key is None or context.best_key[0] else context.best_key[1]


def _start(context: SearchContext, grouped: GroupedContext, label: IntArray) -> None:
    """Evaluates cheap starts, improves the best, and makes of it a placement of groups."""
    for name in _STARTS.get(context.objective, _STARTS[STEP_TIME]):
        with contextlib.suppress(BudgetSpentError):
            context.key(PLACERS[name]().place(context.share(_START / 2, name)))
    _improve(context, _START)
    problem = grouped.problem
    candidates = single_devices(problem)
    if context.best is not None:
        first = np.unique(label, return_index=True)[1]
        candidates.insert(0, settle(problem, context.best[first]))
    for devices in candidates:
        grouped.key(devices)


def _improve(context: SearchContext, fraction: float) -> None:
    """Searches on from the best placement for a part of what is left."""
    if context.best is not None:
        name = _IMPROVERS.get(context.objective, _IMPROVERS[STEP_TIME])
        with contextlib.suppress(BudgetSpentError):
            PLACERS[name](starts=[context.best]).place(context.share(fraction, f"exact, {name}"))
