"""The placements of a claim, judged once more by Grappler's cost model, which shares nothing with the simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from tfplace.compare.cells import Case, problem_of, run_placer
from tfplace.compare.suites import Suite
from tfplace.compare.tables import table
from tfplace.core.graph import OpGraph
from tfplace.errors import InputError
from tfplace.measure.grappler import GrapplerEvaluator
from tfplace.search.budget import Budget
from tfplace.search.search import Search


@dataclass(frozen=True)
class Judged:
    """A placement's step seconds by both.

    Attributes:
      case: where.
      placer: who made it, with seed 0.
      simulated_s: the simulator's.
      grappler_s: Grappler's with transfers; None if it failed there.
    """

    case: str
    placer: str
    simulated_s: float
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
        raise InputError(f"{path} ({error})", "a file of scripts/recheck.py", "Name another file.") from error


def judge(graph: OpGraph, case: Case, suite: Suite, tell: Callable[[str], None]) -> list[Judged]:
    """Runs each placer of a suite again, with seed 0, and asks Grappler what it thinks of what was found.

    With a budget in evaluations the same seed gives the same placement. What fits nowhere is left out.

    Args:
      graph: extracted in this process, so that it has its TensorFlow form.
      case: of the suite.
      suite: whose placers and budget.
      tell: called with what is done next.
    """
    problem, found = problem_of(graph, case), []
    with GrapplerEvaluator(problem) as grappler:
        for name in suite.placers:
            tell(f"{case}: {name}")
            search = Search(problem, Budget.parse(suite.budget), 0)
            run = run_placer(search, case, name, 0, trained=suite.trained.get(name))
            if run.step_s is not None and search.best is not None:
                cost = grappler(search.best)
                found.append(Judged(str(case), name, run.step_s, None if cost.failure else cost.step_s))
    return found


def judged_table(found: Sequence[Judged]) -> str:
    """For each case and placer the step over the best single device's, by the simulator and by Grappler."""
    cases = list(dict.fromkeys(one.case for one in found))
    by = {(one.case, one.placer): one for one in found}
    lines = []
    for name in dict.fromkeys(one.placer for one in found):
        cells = []
        for case in cases:
            one, alone = by.get((case, name)), by.get((case, "single"))
            cells.append("-" if one is None or alone is None else _ratios(one, alone))
        lines.append((name, *cells))
    agreement = ("rank correlation", *(_agreement([one for one in found if one.case == case]) for case in cases))
    return table(("over single: simulated, Grappler", *cases), [*lines, agreement])


def _ratios(one: Judged, alone: Judged) -> str:
    judged = one.grappler_s and alone.grappler_s and f"{one.grappler_s / alone.grappler_s:.2f}"
    return f"{one.simulated_s / alone.simulated_s:.2f}, {judged or 'failed'}"


def _agreement(found: Sequence[Judged]) -> str:
    """Spearman's, over the placers."""
    ran = [one for one in found if one.grappler_s is not None]
    if len(ran) < 3:
        return "-"
    return f"{spearmanr([one.simulated_s for one in ran], [one.grappler_s for one in ran]).statistic:.2f}"
