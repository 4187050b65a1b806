"""Compares several placers on one problem, each with the same budget."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfplace.comparison.apart import Cell, Cells, Found, run_apart
from tfplace.comparison.case_results import CaseResults, placers_of
from tfplace.comparison.cells import Case, Facts, Run, code_of, facts_of, run_placer, seeds_of
from tfplace.comparison.defaults import ALWAYS, PLACERS_BY_DEFAULT
from tfplace.comparison.found import found_placement
from tfplace.comparison.journal import Journal
from tfplace.core.engine import Engine
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import SIMULATED, StepCost
from tfplace.errors import InputError, PlacementError, WorkersError
from tfplace.files import alone_in, write_whole, writing
from tfplace.options import OF_SLICES, CompareOptions
from tfplace.registry import OBJECTIVES, PLACERS, SERVICES
from tfplace.report.facts import Wording, wording
from tfplace.search.budget import Budget
from tfplace.search.impossible import check_possible
from tfplace.search.objective import check_objective
from tfplace.search.place import baseline_costs, whole
from tfplace.search.progress import Progress
from tfplace.search.search import Search

RUNS, BEST = "runs.jsonl", "placement.json"
"""Files of a comparison that is kept."""

_ELSEWHERE = "Use another folder."


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of a comparison of placers on one problem.

    Attributes:
      results: all runs, with facts about the problem.
      budget: budget of each run.
      best: the best placement of all placers; None if nothing fits.
      whole: whether all runs are finished.
      stopped: why the engine's workers stopped the comparison; empty if they did not.
    """

    results: CaseResults
    budget: Budget
    best: Placement | None
    whole: bool = True
    stopped: str = ""

    @property
    def title(self) -> str:
        """One line on the problem and the budget."""
        facts = self.results.facts
        return f"{facts.case}: {facts.ops:,} ops in {facts.units:,} units, {self.budget} for each run"

    @property
    def words(self) -> Wording:
        """The terms for the objective in reports."""
        return wording(self.results.facts.case.objective)

    def ranked(self) -> list[str]:
        """Names of the placers that could run, the best median first."""
        ran = [name for name in placers_of([self.results]) if not math.isnan(self.results.median_s(name))]
        return sorted(ran, key=self.results.median_s)

    def troubles(self) -> dict[str, str]:
        """Placers with failed runs -> why. If only some seeds failed, it says how many."""
        found = ((name, self.results.trouble(name)) for name in self.results.runs)
        return {name: trouble for name, trouble in found if trouble}

    def summary(self) -> str:
        """The placers as a text table."""
        return str(SERVICES["comparison_text"](self))

    def _repr_html_(self) -> str:
        return str(SERVICES["comparison_html"](self))

    def charts(self) -> str:
        """Charts as HTML for a notebook: the step time of every placer, and the progress of the searches.

        Raises:
          MissingExtraError: matplotlib is missing.
        """
        from tfplace.comparison.page import charts

        return charts(self.results)

    def save(self, path: str | Path) -> None:
        """Writes a self-contained HTML page.

        Raises:
          MissingExtraError: matplotlib is missing.
        """
        from tfplace.comparison.page import comparison_page

        best = {} if self.best is None else {self.results.facts.case: self.best}
        write_whole(path, comparison_page([self.results], self.title, best))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in seconds and bytes. All step times, or loads, are simulated."""
        facts, best = self.results.facts, self.best
        return {
            **{name: value for name, value in dataclasses.asdict(facts).items() if name != "case"},
            "graph": facts.case.graph,
            "topology": facts.case.topology,
            "groups": facts.case.groups,
            "objective": facts.case.objective,
            "budget": str(self.budget),
            "simulated": True,
            "whole": self.whole,
            "placers": {name: self._of(name) for name in self.ranked()},
            "troubles": self.troubles(),
            "best": None if best is None else {"placer": best.placer, self.words.key: best.cost.step_s},
        }

    def _of(self, name: str) -> dict[str, Any]:
        runs = self.results.runs[name]
        median_s = self.results.median_s(name)
        return {
            f"median_{self.words.key}": median_s if math.isfinite(median_s) else None,
            self.words.key: [run.step_s for run in runs],
            "evaluations": [run.evaluations for run in runs],
            "seconds": [run.seconds for run in runs],
        }


def compare_placers(
    problem: Problem,
    placers: Sequence[str] | None = None,
    *,
    objective: str = CompareOptions.objective,
    budget: str | float | int | Budget = CompareOptions.budget,
    seeds: int = CompareOptions.seeds,
    groups: int = 0,
    folder: str | Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[Progress], None] | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Runs each placer on a problem, and `ALWAYS`: one after the other here, or side by side on an engine.

    Seed by seed, so that what is there when it is stopped is a fair picture. A placer that fails, with whatever error,
    has its `troubles` told and stops no other.

    Args:
      problem: what is placed.
      placers: names; by default `PLACERS_BY_DEFAULT`, and for a split step `OF_SLICES`.
      objective: what is made small.
      budget: budget of each run.
      seeds: how many runs a placer with random choices has.
      groups: into how many groups the problem was merged, for its name; 0 if it was not.
      folder: keeps every run and the best placement; the same call goes on there.
      tell: called with what runs next.
      progress: called a few times a second, of runs in this process.
      engine: starts workers for the runs; None runs them here.

    Raises:
      InputError: fewer than 1 seed, or a folder with a comparison of something else, or of a process that is at work.
      UnknownNameError: no such placer or objective.
      InfeasibleError: no placement can fit.
      KeyboardInterrupt: before anything was run.
      WorkersError: the workers of the engine cannot go on, before anything was found that fits.
    """
    check_objective(objective, SIMULATED)
    budget, seeds = Budget.parse(budget), whole("seeds", seeds, 1)
    if isinstance(placers, str):
        raise InputError(f"placers={placers!r}", "a sequence of names", f"Write placers=({placers!r},).")
    usual = (
        PLACERS_BY_DEFAULT[objective] if problem.graph.slices is None else (*OF_SLICES, *PLACERS_BY_DEFAULT[objective])
    )
    chosen = usual if placers is None else placers
    names = [name for name in dict.fromkeys((*ALWAYS[objective], *chosen)) if PLACERS[name]]
    check_possible(problem)
    case = Case(problem.graph.name, problem.topology.name, groups=groups, objective=objective)
    cells = [(name, seed) for seed in range(seeds) for name in names if seed in seeds_of(name, seeds)]
    with contextlib.nullcontext() if folder is None else alone_in(Path(folder)):
        kept = _Kept(problem, case, budget, names, None if folder is None else Path(folder))
        stopped = _run_missing(problem, kept, cells, tell, progress=progress, engine=engine)
    runs: dict[str, list[Run]] = {}
    for run in sorted(kept.runs.values(), key=lambda run: kept.turn(run.placer, run.seed)):
        runs.setdefault(run.placer, []).append(run)
    return Comparison(CaseResults(kept.facts, runs), budget, kept.best, stopped is None, stopped or "")


def _run_missing(
    problem: Problem,
    kept: _Kept,
    cells: Sequence[Cell],
    tell: Callable[[str], None],
    *,
    progress: Callable[[Progress], None] | None,
    engine: Engine | None,
) -> str | None:
    """Runs those (placer, seed) that are not kept yet; why it stopped before all were run, None if it did not."""
    todo = [(name, seed) for name, seed in cells if not kept.has(name, seed)]
    if len(todo) < len(cells):
        tell(f"{len(cells) - len(todo)} of {len(cells)} runs are kept from an earlier call")
    if not todo:
        return None
    try:
        if engine is None:
            _run_here(problem, kept, todo, tell, progress)
        else:
            _run_apart(problem, kept, todo, tell, engine)
    except KeyboardInterrupt:
        if not kept.runs:
            raise
        return ""
    except WorkersError as error:
        if kept.best is None:
            raise
        return str(error)
    return None


def _run_here(
    problem: Problem,
    kept: _Kept,
    todo: Sequence[Cell],
    tell: Callable[[str], None],
    progress: Callable[[Progress], None] | None,
) -> None:
    """One after the other, in this process."""
    for n, (name, seed) in enumerate(todo):
        tell(f"{name}, seed {seed} ({n + 1} of {len(todo)} runs)")
        search = Search(problem, kept.budget, seed, progress, kept.evaluator())
        try:
            run = run_placer(search, kept.facts.case, name, seed, excused=(Exception, SystemExit))
        except KeyboardInterrupt:
            if kept.runs:
                kept.found(search, name, seed)
            raise
        kept.found(search, name, seed)
        kept.add(run)


def _run_apart(
    problem: Problem, kept: _Kept, todo: Sequence[Cell], tell: Callable[[str], None], engine: Engine
) -> None:
    """On the workers of an engine."""

    def take(cell: Cell, found: Found) -> None:
        name, seed = cell
        if found.devices is not None and found.key is not None:
            search = Search(problem, kept.budget, seed, evaluator=kept.evaluator())
            search.record(found.devices, found.key, name)
            kept.found(search, name, seed)
        kept.add(found.run)

    run_apart(engine, Cells(problem, kept.facts.case, kept.budget), todo, take=take, tell=tell)


class _Kept:
    """The runs of a comparison and its best placement, in a folder if there is one.

    What an earlier version of one of the `placers` found is forgotten, its placement too.

    Attributes:
      facts: of the problem.
      budget: budget of each run.
      runs: (placer, seed) -> what was found.
      best: of all.
    """

    def __init__(
        self, problem: Problem, case: Case, budget: Budget, placers: Sequence[str], folder: Path | None
    ) -> None:
        self.best: Placement | None = None
        self._problem = problem
        self.budget = budget
        self._folder = folder
        self._placers = [*placers]
        self._journal: Journal | None = None
        self.runs: dict[tuple[str, int], Run] = {}
        if folder is not None:
            asked = {"budget": str(budget), "objective": case.objective, "problem": problem.fingerprint}
            self._journal = Journal(folder / RUNS, {**asked, "simulated": True})
            self.runs = {(name, seed): run for (_, name, seed), run in self._journal.runs.items()}
        codes = {name: code_of(name) for name in placers}
        outdated = {cell for cell, run in self.runs.items() if run.code != codes.get(cell[0], run.code)}
        self.runs = {cell: run for cell, run in self.runs.items() if cell not in outdated}
        self.facts: Facts = facts_of(problem, case)
        if self._journal is not None:
            found = self._read()
            self.best = found if found is None or (_placer_of(found), found.seed) not in outdated else None
            if not self._journal.facts:
                self._journal.add(self.facts)
            self._forget_unknown_best()

    def evaluator(self) -> Evaluator:
        """A new one, by the objective."""
        made: Evaluator = OBJECTIVES[self.facts.case.objective](self._problem)
        return made

    def found(self, search: Search, placer: str, seed: int) -> None:
        """Keeps what a search has found if it is the best; before the run it was found in, so that it is never lost.

        Of equally good ones it is the first in the order of the comparison, however runs end.
        """
        devices, key, best = search.best, search.best_key, self.best
        if devices is None or key is None or key[0]:
            return
        if best is not None and (best.cost.step_s, self.turn(_placer_of(best), best.seed)) <= (
            key[1],
            self.turn(placer, seed),
        ):
            return
        self.best = found_placement(search, self.facts, placer, seed, baselines=self._baselines)
        if self._folder is not None:
            with writing(self._folder / BEST):
                self.best.save(self._folder / BEST)

    def turn(self, placer: str, seed: int) -> tuple[int, int]:
        """Where a run is in the order of the comparison."""
        return seed, self._placers.index(placer) if placer in self._placers else len(self._placers)

    @functools.cached_property
    def _baselines(self) -> Mapping[str, StepCost]:
        return baseline_costs(self._problem, 0, self.evaluator())

    def has(self, placer: str, seed: int) -> bool:
        """Whether there is a run that stands of the placer as it is now."""
        run = self.runs.get((placer, seed))
        return run is not None and run.stands(code_of(placer))

    def add(self, run: Run) -> None:
        """Keeps a run."""
        self.runs[run.placer, run.seed] = run
        if self._journal is not None:
            self._journal.add(run)

    def _forget_unknown_best(self) -> None:
        """Has the best run made again if its placement is not there."""
        fits = [(run.step_s, cell) for cell, run in self.runs.items() if run.step_s is not None]
        if fits and (self.best is None or self.best.cost.step_s > min(fits)[0] * (1 + 1e-9)):
            del self.runs[min(fits)[1]]

    def _read(self) -> Placement | None:
        assert self._folder is not None
        path = self._folder / BEST
        if not path.exists():
            return None
        try:
            found = Placement.load(path, problem=self._problem)
        except PlacementError as error:
            raise InputError(f"{path}: {error}", "the best placement of this comparison", _ELSEWHERE) from error
        if not self._is_ours(found):
            raise InputError(
                f"{path}, a placement by {found.placer}", "the best placement of this comparison", _ELSEWHERE
            )
        return found

    def _is_ours(self, found: Placement) -> bool:
        """Whether a run found it; or one that was stopped before it was kept, which begins with the facts.

        By the clock the run that was made in the place of a stopped one may have come less far.
        """
        name = _placer_of(found)
        run = self.runs.get((name, found.seed))
        begun = self._journal is not None and bool(self._journal.facts)
        same = found.placer == f"{name} ({self.budget})" and found.cost.objective == self.facts.case.objective
        return begun and same and (run is None or run.step_s is None or found.cost.step_s <= run.step_s)


def _placer_of(found: Placement) -> str:
    """The name of the placer whose run found it."""
    return found.placer.partition(" (")[0]
