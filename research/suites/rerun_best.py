"""The best placement of each case, found again: results have the steps of placements, and not their devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from research.suites.merge_results import MergedResults
from research.suites.suite_runs import family_of
from tfplace.comparison.cells import Case, Facts, Run, problem_of, run_placer
from tfplace.comparison.found import found_placement
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.errors import InputError
from tfplace.formatting import format_seconds
from tfplace.options import BASELINES
from tfplace.registry import OBJECTIVES, PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import baseline_costs
from tfplace.search.progress import Progress
from tfplace.search.search import Search


def rerun_best(
    found: MergedResults,
    graphs: Path,
    *,
    loads: Callable[[], None],
    stage: Callable[[str], None],
    progress: Callable[[Progress], None] | None = None,
) -> dict[Case, Placement | str]:
    """Runs, for each case, the run with the shortest step once more, with its seed and its budget.

    Of equal steps it is the run that took least. With a budget in evaluations the placement is the same as it was; what
    its step is beside that of the results is among its notes.

    Args:
      found: the results.
      graphs: directory of extracted graphs.
      loads: loads TensorFlow, which policies need.
      stage: told what begins.
      progress: called a few times a second while a placer runs.

    Returns:
      Of each case its best placement, or why there is none.

    Raises:
      InputError: a graph is not there, or is another one; or the results do not tell their budget.
      UnknownNameError: a topology is no preset.
    """
    budget = Budget.parse(found.budget)
    stage("reading the graphs")
    wanted = {row.facts.fingerprint: row.facts for row in found.rows}
    files = {fingerprint: graph_file(facts, graphs) for fingerprint, facts in wanted.items()}  # all, before any run
    best: dict[Case, Placement | str] = {}
    for n, row in enumerate(found.rows):
        facts = row.facts
        fits = sorted((run for name in row.runs for run in row.ran(name) if run.step_s is not None), key=_least)
        # one whose name says all; and a module that is named in a file of results is none to import
        run = next((run for run in fits if run.placer in {*PLACERS} and not run.code), None)
        if run is None:
            best[facts.case] = _by_name(fits) if fits else "nothing fits"
            continue
        stage(f"{facts.case}: {run.placer}, seed {run.seed} ({n + 1} of {len(found.rows)} cases)")
        if PLACERS[run.placer].learned:
            loads()
        problem = problem_of(OpGraph.load(files[facts.fingerprint]), facts.case)
        search = Search(problem, budget, run.seed, progress, OBJECTIVES[facts.case.objective](problem))
        shorter = [one for one in fits if _least(one)[0] < _least(run)[0]]
        best[facts.case] = _again(search, facts, run, shorter)
    return best


def graph_file(facts: Facts, graphs: Path) -> Path:
    """The file of a case's graph: NAME.npz, of a model with other parameters than its own in a folder of theirs.

    Which parameters the results are of, only the fingerprint tells.

    Args:
      facts: of the case.
      graphs: directory of such files, as scripts/make_zoo.py and research/compare_placers.py keep them.

    Raises:
      InputError: there is no such file, or only of other graphs.
      SourceError: a file is damaged.
    """
    name = facts.case.graph
    folders = (graphs, *sorted(path for path in graphs.glob("*") if path.is_dir()))
    there = {}
    for path in (folder / f"{name}.npz" for folder in folders):
        if path.is_file():
            there[path] = OpGraph.load(path).fingerprint
            if there[path] == facts.fingerprint:
                return path
    if not there:
        raise InputError(
            f"{graphs / name}.npz, which does not exist",
            f"the graph of {name}, of which there are results",
            f"Make it: {_made_by(name, graphs)}",
        )
    raise InputError(
        " and ".join(f"graph {is_now} in {path}" for path, is_now in there.items()),
        f"graph {facts.fingerprint} of {name}, of which there are results",
        "Extract it as it was then, or name other cases with --cases.",
    )


def _again(search: Search, facts: Facts, run: Run, shorter: list[Run]) -> Placement | str:
    now = run_placer(search, facts.case, run.placer, run.seed)
    if now.trouble:
        return f"{run.placer} could not be run again: {now.trouble.rstrip('.')}"
    if now.step_s is None:
        return f"{run.placer}, run again with seed {run.seed}, found nothing that fits"
    baselines = baseline_costs(search.problem, 0, search.evaluator, BASELINES)
    note = f"{_compared(run, now.step_s, search.budget)}; {_rank(shorter)}"
    return found_placement(search, facts, run.placer, run.seed, baselines=baselines, notes=(note,))


def _least(run: Run) -> tuple[float, float]:
    assert run.step_s is not None
    return run.step_s, run.seconds


def _compared(run: Run, now_s: float, budget: Budget) -> str:
    assert run.step_s is not None
    if now_s == run.step_s:
        return f"found again: {format_seconds(now_s)}, as in the results"
    change = f" ({100 * (now_s / run.step_s - 1):+.2g} %)" if run.step_s > 0 else ""
    clock = "" if budget.seconds is None else ", as no search by the clock is the same twice"
    return f"found again: {format_seconds(now_s)} instead of {format_seconds(run.step_s)}{change}{clock}"


def _rank(shorter: list[Run]) -> str:
    """What the run is among those of its case."""
    if not shorter:
        return "the best of the runs on this page"
    least_s, _ = _least(shorter[0])
    return f"the best on this page is {format_seconds(least_s)} by {shorter[0].placer}, but {_by_name(shorter)}"


def _by_name(runs: list[Run]) -> str:
    return f"{', '.join(dict.fromkeys(run.placer for run in runs))} cannot be run again by name"


def _made_by(graph: str, graphs: Path) -> str:
    """The command that makes a graph's file."""
    from tfplace_zoo import zoo

    if graph in zoo.names():
        return f"python scripts/make_zoo.py --only={graph} --nofacts --graphs={graphs}"
    if family := family_of(graph):
        return f"python scripts/make_families.py --only={family} --graphs={graphs}"
    return f"tfplace extract MODEL --output={graphs / graph}.npz"
