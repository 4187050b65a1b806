"""Further seeds of `auto` and what comes nearest to it in `compare.jsonl`: is it ahead, or are three seeds too few?

    python -m research.benchmarks.more_seeds --graphs=out/graphs            # four hours on two processors
    python -m research.benchmarks.more_seeds --page=docs/research/comparison_seeds.md  # puts its tables there

adds what is missing to more_seeds.jsonl: seeds that the comparison has not, with the same minute, five of `auto` and of
every placer whose median is lower there; elsewhere one, of `auto` and of the best other placer, and where `auto` is
behind by that, four more. As cases and placers were chosen for what earlier seeds found, only later ones are counted,
but for graphs as a whole. Cases that are compared with other costs since, as their bound tells, are left out. Graphs
are those of `python scripts/make_zoo.py`; steps are simulated.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from absl import app, flags

from research.suites import suites
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.cells import Case
from tfplace.comparison.tables import Page, table

ROOT = Path(__file__).resolve().parents[2]

BEHIND, AHEAD = 5, 1
"""Further seeds where `auto` is behind by what there is, and where it is not."""

BANDS = 0.95, 0.97, 0.99, 1.0
"""Of the median of `auto` over the other's by the first seeds: up to which each goes."""

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "more_seeds.jsonl"), "The results.")
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_PAGE = flags.DEFINE_string("page", None, "A page whose tables are rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    with script(argv):
        _page() if _PAGE.value else _run()


@dataclass(frozen=True)
class Pair:
    """`auto` beside another placer in a case.

    Attributes:
      case: which.
      other: whose median is lower by the first seeds, or the nearest to it where none is.
      first: the median of `auto` over the other's by the first seeds.
      steps_s: the further seeds' steps of `auto`, and of the other, seed by seed.
    """

    case: Case
    other: str
    first: float
    steps_s: tuple[list[float], list[float]]

    @property
    def again(self) -> bool:
        """Whether `auto` is behind by the further seeds that all cases have, and not by the first."""
        return self.first <= 1 and bool(all(self.steps_s)) and over(*self.earlier_s) > 1

    @property
    def seeds(self) -> range:
        """The further ones."""
        return range(suites.FULL.seeds, suites.FULL.seeds + (BEHIND if self.first > 1 or self.again else AHEAD))

    @property
    def earlier_s(self):
        """Of `steps_s` what all cases have."""
        return [steps[:AHEAD] for steps in self.steps_s]

    @property
    def later_s(self):
        """Of `steps_s` what no choice of cases depends on."""
        return [steps[AHEAD:] for steps in self.steps_s] if self.again else list(self.steps_s)


def pairs():
    """Of the comparison: where `auto` is behind with each placer that is ahead of it, then all other cases."""
    from tfplace.comparison.case_results import goals, read_case_results

    more = {row.facts.case: row for row in read_case_results(_journal(Path(_OUT.value)))}
    rows = _first(more)
    chosen = list(goals(rows).beaten)
    behind = {case for case, *_ in chosen}
    for row in rows:
        if row.facts.case not in behind and row.ran("auto"):
            other, median_s = row.best_of(name for name in row.runs if name != "auto")
            chosen.append((row.facts.case, other, row.median_s("auto") / median_s))
    steps_s = {
        (case, name): more[case].found_s(name) if case in more else []
        for case, other, _ in chosen
        for name in ("auto", other)
    }
    return [Pair(case, other, first, (steps_s[case, "auto"], steps_s[case, other])) for case, other, first in chosen]


def _first(more):
    """The comparison's cases, but for those with other costs than their further seeds have."""
    from tfplace.comparison.case_results import read_case_results

    rows = read_case_results(_journal(ROOT / suites.FULL.out))
    return [
        row for row in rows if row.facts.case not in more or more[row.facts.case].facts.bound_s == row.facts.bound_s
    ]


def _journal(path):
    from tfplace.comparison.journal import Journal
    from tfplace.search.budget import Budget

    return Journal(path, {"budget": str(Budget.parse(suites.FULL.budget)), "simulated": True})


def _run():
    from research.suites.running import run_all, tasks
    from tfplace.report.progress import Stages
    from tfplace.search.budget import Budget

    journal, budget, graphs = _journal(Path(_OUT.value)), Budget.parse(suites.FULL.budget), Path(_GRAPHS.value)

    def missing():
        todo = []
        for pair in pairs():
            runs = [(name, seed) for seed in pair.seeds for name in ("auto", pair.other)]
            todo += tasks([(graphs / f"{pair.case.graph}.npz", pair.case)], runs, budget, journal)
        return sorted(dict.fromkeys(todo), key=lambda task: task.seed)  # everything once before anything twice

    load = functools.partial(load_tensorflow, gpus=False)
    while todo := missing():  # what is behind by one seed is run again
        with Stages(quiet=False) as stages:
            stages.stage(f"{len(todo)} cells of {budget}")
            failed = run_all(todo, journal, jobs=_JOBS.value, progress=stages.part, prepare=load)
        for task, error in failed:
            print(f"{task}: {error!r}", file=sys.stderr)
        if failed:
            raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")
    print(of_each(complete()))


def _page():
    found = complete()
    Page(_PAGE.value, "more-seeds").write(of_each(pair for pair in found if pair.first > 1))
    Page(_PAGE.value, "more-seeds-ahead").write(of_bands(found))
    Page(_PAGE.value, "more-seeds-again").write(of_each(pair for pair in found if pair.again))
    Page(_PAGE.value, "more-seeds-graphs").write(of_graphs())


def complete():
    """Every pair, with all of its seeds."""
    found = pairs()
    for pair in found:
        if any(len(steps) < len(pair.seeds) for steps in pair.steps_s):
            raise SystemExit(
                f"{pair.case}: not all seeds of auto and {pair.other} are in {_OUT.value}; run them, without --page."
            )
    return found


def over(auto, others):
    """How many times the other's median step that of `auto` is."""
    return statistics.median(auto) / statistics.median(others)


def ahead(auto, others):
    """In how many pairs of a seed of each `auto` is faster, of how many."""
    return sum(mine < its for mine in auto for its in others), len(auto) * len(others)


def of_each(found):
    """A line for each pair."""
    head = ("graph", "devices", "another placer", "auto over it, first seeds", "further seeds", "auto ahead in")
    return table(
        head,
        [
            (
                pair.case.graph,
                pair.case.topology + (", tight" if pair.case.tight else ""),
                pair.other,
                f"{pair.first:.4f}",
                f"{over(*pair.later_s):.4f}",
                "{} of {} pairs".format(*ahead(*pair.later_s)),
            )
            for pair in found
        ],
    )


def of_bands(found):
    """Pairs by how far `auto` is ahead by the first seeds."""
    head = ("auto over the other, first seeds", "cases", "further seeds", "least", "most", "auto ahead in")
    lines, low = [], 0.0
    for high in BANDS:
        ratios = [over(*pair.earlier_s) for pair in found if low < pair.first <= high]
        if ratios:
            lines.append(
                (
                    f"{low:.2f} to {high:.2f}" if low else f"up to {high:.2f}",
                    str(len(ratios)),
                    f"{statistics.geometric_mean(ratios):.4f}",
                    f"{min(ratios):.4f}",
                    f"{max(ratios):.4f}",
                    f"{sum(ratio < 1 for ratio in ratios)} cases",
                )
            )
        low = high
    return table(head, lines)


def of_graphs():
    """What comes nearest to `auto` on each graph over all of its cases, by the first seeds and by all."""
    from tfplace.comparison.case_results import CaseResults, goals, read_case_results

    found = {row.facts.case: row for row in read_case_results(_journal(Path(_OUT.value)))}
    first, more = _first(found), {case: row.runs for case, row in found.items()}
    both = [
        CaseResults(
            row.facts, {name: [*runs, *more.get(row.facts.case, {}).get(name, [])] for name, runs in row.runs.items()}
        )
        for row in first
    ]
    cases = Counter(row.facts.case.graph for row in first)
    by_first = {graph: (other, over) for graph, other, over in goals(first).nearest}
    head = ("graph", "cases", "nearest, first seeds", "auto over it", "nearest, all seeds", "auto over it")
    return table(
        head,
        [
            (graph, str(cases[graph]), by_first[graph][0], f"{by_first[graph][1]:.4f}", other, f"{over:.4f}")
            for graph, other, over in goals(both).nearest
        ],
    )


if __name__ == "__main__":
    app.run(main)
