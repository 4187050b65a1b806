"""The placements of a claim, judged once more by Grappler's cost model, which shares nothing with the simulator."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from research.suites.suites import Suite, own_budget
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, problem_of, run_placer
from tfplace.comparison.tables import table
from tfplace.core.graph import OpGraph
from tfplace.errors import InputError
from tfplace.measurement.grappler import GrapplerEvaluator
from tfplace.search.budget import Budget
from tfplace.search.search import Search

SINGLE = "single"


@dataclass(frozen=True)
class Judged:
    """A placement's step seconds by both.

    Attributes:
      case: where.
      placer: who made it, with seed 0.
      simulated_s: the simulator's; None if it fits no memory or could not be made.
      grappler_s: Grappler's with transfers; None if it failed there, or was not asked for what does not fit.
    """

    case: str
    placer: str
    simulated_s: float | None
    grappler_s: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def read_judged(path: Path) -> dict[str, list[Judged]]:
    """What a file has of each claim; nothing if it is not there.

    Raises:
      InputError: it is another kind of file.
    """
    if not path.exists():
        return {}
    try:
        claims = json.loads(path.read_text(encoding="utf-8"))
        return {claim: [Judged(**one) for one in found] for claim, found in claims.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} ({error})", "a file of research/recheck_claims.py", "Name another file.") from error


def judge(
    graph: OpGraph, case: Case, suite: Suite, placers: Sequence[str], tell: Callable[[str], None]
) -> Iterator[Judged]:
    """Runs placers of a suite again, with seed 0, and asks Grappler what it thinks of what each found.

    With a budget in evaluations the same seed gives the same placement.

    Args:
      graph: extracted in this process, so that it has its TensorFlow form.
      case: of the suite.
      suite: with the budget.
      placers: of the suite's, or those beside it that have budgets of their own.
      tell: called with what is done next.
    """
    problem = problem_of(graph, case)
    with GrapplerEvaluator(problem) as grappler:
        for name in placers:
            tell(f"{case}: {name}")
            placer, budget = name, Budget.parse(suite.budget)
            if name in suite.beside:
                placer, evaluations = own_budget(name)
                budget = Budget(evaluations=evaluations)
            search = Search(problem, budget, 0)
            run = run_placer(search, case, placer, 0, trained=suite.trained.get(name))
            grappler_s = None
            if run.step_s is not None and search.best is not None:
                cost = grappler(search.best)
                grappler_s = None if cost.failure else cost.step_s
            yield Judged(str(case), name, run.step_s, grappler_s)


def judged_tables(found: Sequence[Judged], methods: Sequence[str], rows: Sequence[CaseResults]) -> str:
    """All there is to say.

    Args:
      found: of one claim.
      methods: the placers that it is about.
      rows: its results.
    """
    return "\n\n".join((cases_table(found), opinions_table(found, methods), repeated_text(found, rows)))


def cases_table(found: Sequence[Judged]) -> str:
    """For each case and placer the step over the best single device's, by the simulator and by Grappler.

    Last how the two rank the placers (Spearman's correlation).
    """
    by, names = _by_case(found), _placers(found)
    lines = []
    for case, judged in by.items():
        cells = (_cell(judged.get(name), judged.get(SINGLE)) for name in names)
        lines.append((case, *cells, _agreement(judged.values())))
    return table(("over single: simulated, Grappler", *names, "rank correlation"), lines)


def opinions_table(found: Sequence[Judged], methods: Sequence[str]) -> str:
    """For each placer its median ratios, and in how many cases each method's step is shorter than its.

    By the simulator, by Grappler, and in how many these say the same, of the cases in which Grappler judged both.
    """
    by, names = _by_case(found), _placers(found)
    methods = [name for name in methods if name in names]
    lines = []
    for name in names:
        over = _ratios_of(by, name, SINGLE)
        medians = (f"{statistics.median(side):.2f}" for side in zip(*over, strict=True))
        lines.append((name, str(len(over)), ", ".join(medians) or "-", *(_shorter(by, one, name) for one in methods)))
    head = ("by the simulator, by Grappler", "cases", "medians over single")
    return table((*head, *(f"{name} is shorter in; both say the same in" for name in methods)), lines)


def repeated_text(found: Sequence[Judged], rows: Sequence[CaseResults]) -> str:
    """How many of the placements have the step that the results have of the same seed, and which have another."""
    kept = {
        (str(row.facts.case), run.placer): run.step_s
        for row in rows
        for runs in row.runs.values()
        for run in runs
        if run.seed == 0
    }
    pairs = [(one, kept[one.case, one.placer]) for one in found if (one.case, one.placer) in kept]
    if not pairs:
        return "No results of the claim to compare these steps with"
    others = [(one, step_s) for one, step_s in pairs if one.simulated_s != step_s]
    same = len(pairs) - len(others)
    said = f"{same} of {len(pairs)} steps are, to the last bit, what the results of the claim have of seed 0"
    return "; ".join([said, *(f"{one.placer} in {one.case} {_differs(one, step_s)}" for one, step_s in others)])


def _differs(one: Judged, step_s: float | None) -> str:
    if one.simulated_s is None or not step_s:
        return f"takes {one.simulated_s} s instead of {step_s} s"
    return f"differs by {100 * (one.simulated_s / step_s - 1):+.2g} %"


def _by_case(found: Sequence[Judged]) -> dict[str, dict[str, Judged]]:
    """Case -> placer -> what was judged."""
    by: dict[str, dict[str, Judged]] = {}
    for one in found:
        by.setdefault(one.case, {})[one.placer] = one
    return by


def _placers(found: Sequence[Judged]) -> list[str]:
    return list(dict.fromkeys(one.placer for one in found))


def _cell(one: Judged | None, single: Judged | None) -> str:
    if one is None or single is None or single.simulated_s is None:
        return "-"
    if one.simulated_s is None:
        return "does not fit"
    judged = one.grappler_s and single.grappler_s and f"{one.grappler_s / single.grappler_s:.2f}"
    return f"{one.simulated_s / single.simulated_s:.2f}, {judged or 'failed'}"


def _agreement(judged: Iterable[Judged]) -> str:
    """Spearman's, over the placers."""
    pairs = [(one.simulated_s, one.grappler_s) for one in judged if one.simulated_s and one.grappler_s]
    return f"{spearmanr(*zip(*pairs, strict=True)).statistic:.2f}" if len(pairs) > 2 else "-"


def _ratios_of(by: Mapping[str, Mapping[str, Judged]], name: str, other: str) -> list[tuple[float, float]]:
    """A placer's step over another's by the simulator and by Grappler, of each case in which both were judged."""
    ratios = []
    for judged in by.values():
        mine, theirs = judged.get(name), judged.get(other)
        if mine and theirs and mine.simulated_s and theirs.simulated_s and mine.grappler_s and theirs.grappler_s:
            ratios.append((mine.simulated_s / theirs.simulated_s, mine.grappler_s / theirs.grappler_s))
    return ratios


def _shorter(by: Mapping[str, Mapping[str, Judged]], method: str, name: str) -> str:
    if method == name:
        return "-"
    shorter = [(simulated < 1, judged < 1) for simulated, judged in _ratios_of(by, method, name)]
    simulated, judged = sum(one for one, _ in shorter), sum(one for _, one in shorter)
    return f"{simulated}, {judged}; {sum(one == other for one, other in shorter)}" if shorter else "-"
