"""Comparison of placers: cells, read_case_results, tables."""

import itertools
import json
import math

import numpy as np
import pytest

from research.tables.plots import heat_map
from tests.comparison.results import CASE, HEADER, branches, run
from tfplace.comparison.case_results import goals, over_roomy, placers_of, read_case_results, seed_spread
from tfplace.comparison.cells import (
    CONSTRUCTIVE,
    SEARCHES,
    YARDSTICKS,
    Case,
    Facts,
    Run,
    facts_of,
    problem_of,
    run_cell,
    seeds_of,
)
from tfplace.comparison.incumbents import LONGEST, STRIDE, incumbents_of
from tfplace.comparison.journal import Journal
from tfplace.comparison.placers_table import full_table, goals_table, goals_text, over_all, summary_table
from tfplace.errors import InputError
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.progress import Improvement
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_graph


def test_a_cell_says_what_was_found_and_how():
    problem = problem_of(branches(), CASE)
    found = run_cell(problem, CASE, "local_search", Budget(evaluations=30), seed=1)
    assert found.evaluations <= 30
    assert found.step_s == found.trail[-1][2] == min(step for _, _, step, _ in found.trail)
    assert found.step_s >= facts_of(problem, CASE).bound_s
    assert found == Run.from_dict(json.loads(json.dumps(found.to_dict())))


@pytest.mark.parametrize("name", [n for n in CONSTRUCTIVE if n != "scotch"])
def test_what_a_placer_makes_counts_though_it_evaluates_nothing(name):
    problem = problem_of(branches(), CASE)
    found = run_cell(problem, CASE, name, Budget(evaluations=30), seed=0)
    assert found.step_s is not None
    assert found.step_s == found.trail[-1][2]


def test_a_trail_is_thinned_and_ends_with_the_best():
    problem = problem_of(random_graph(np.random.default_rng(0), 120, variables=6), CASE)
    found = run_cell(problem, CASE, "local_search", Budget(evaluations=3000), seed=0)
    steps = [step for _, _, step, _ in found.trail]
    assert len(steps) > 5
    assert all(b <= a * (1 - STRIDE) for a, b in itertools.pairwise(steps[:-1]))
    assert steps[-1] == found.step_s


def test_a_long_trail_is_thinned_more():
    history = [Improvement(n, n / 10, (0, 16.0 * 0.999**n), "s", float(n)) for n in range(4000)]
    kept, stride = incumbents_of([Improvement(0, 0.0, (8, 1.0), "does not fit"), *history])
    steps = [found.key[1] for found in kept]
    assert LONGEST / 2 < len(kept) <= LONGEST and stride == STRIDE * 128
    assert kept[0].evaluations == 0 and kept[-1] == history[-1]
    assert all(b <= a * (1 - stride) for a, b in itertools.pairwise(steps[:-1]))
    assert incumbents_of(history[:50])[1] == STRIDE
    assert incumbents_of([]) == ([], STRIDE)


def test_a_placer_that_cannot_run_is_a_result():
    class Broken:
        citation = ""

        def place(self, context):
            raise InputError("nothing", "something")

    PLACERS.add("broken", Broken)
    try:
        found = run_cell(problem_of(branches(), CASE), CASE, "broken", Budget(evaluations=3), seed=0)
    finally:
        PLACERS._objects.pop("broken")
    assert found.step_s is None
    assert "expected something" in found.trouble


def test_tight_memory_holds_no_single_device():
    graph = random_graph(np.random.default_rng(0), 60, variables=6)
    roomy, tight = (problem_of(graph, Case("g", "4xP100", tight=t)) for t in (False, True))
    assert np.all(tight.memory_limit[1:] < roomy.memory_limit[1:])
    assert tight.memory_limit[0] == roomy.memory_limit[0]
    simulator = Simulator(tight)
    for d in range(1, 5):
        devices = np.where(tight.allowed[:, d], d, 0).astype(np.int32)
        assert not simulator(devices).feasible


def journal_of(tmp_path, *runs, bound_s=1.0, name="runs"):
    journal = Journal(tmp_path / f"{name}.jsonl", HEADER)
    for case in {r.case for r in runs}:
        journal.add(Facts(case, 8, 8, 3, bound_s, "f"))
    for each in runs:
        journal.add(each)
    return journal


def test_goals_by_hand(tmp_path):
    other, narrow = Case("other", "2xP100"), Case("narrow", "2xP100")
    runs = [
        *(run("auto", s, seed) for seed, s in enumerate((2.0, 1.5, 9.0))),
        run("heft", 4.0),
        run("annealing", 1.9),
        run("auto", 1.5, case=other),
        run("single", None, case=other, trail=()),
        run("metis", 6.0, case=other),
        run("auto", 1.1, case=narrow),
        run("single", 1.1, case=narrow),
    ]
    found = goals(read_case_results(journal_of(tmp_path, *runs)))
    assert found.cases == 3
    assert [(str(c), p, round(f, 3)) for c, p, f in found.beaten] == [("branches on 2xP100", "annealing", 1.053)]
    assert found.behind == 1
    assert sorted(found.over_constructive) == [1.5 / 6, 2 / 4]
    assert sorted(found.over_bound) == [1.1, 1.5, 2.0]
    assert not found.unplaced


def test_what_comes_nearest_on_a_graph_by_hand(tmp_path):
    narrow, other = Case("branches", "2xP100"), Case("other", "2xP100")
    wide, free = Case("branches", "4xP100", tight=True), Case("free", "2xP100")
    runs = [
        *(run(name, s, case=narrow) for name, s in (("auto", 3.0), ("heft", 2.0), ("etf", 3.0), ("metis", 1.0))),
        *(run(name, s, case=wide) for name, s in (("auto", 2.0), ("heft", 4.0), ("etf", 2.5), ("metis", None))),
        *(run(name, s, case=other) for name, s in (("auto", 8.0), ("heft", 4.0))),
        *(run(name, s, case=free) for name, s in (("auto", 0.0), ("heft", 4.0))),
    ]
    rows = read_case_results(journal_of(tmp_path, *runs))
    found = {graph: (name, round(over, 6)) for graph, name, over in goals(rows).nearest}
    assert found == {"branches": ("etf", round(0.8**0.5, 6)), "other": ("heft", 2.0)}
    assert [(graph, name) for graph, name, _ in goals(rows).graphs_behind] == [("other", "heft")]
    text = goals_text([row for row in rows if row.facts.case != free])
    assert "beaten on 1 of 2 graphs by the geometric mean over all of their cases:\n  other: heft, auto" in text
    none = read_case_results(journal_of(tmp_path, run("auto", None), run("heft", 1.0), name="none"))
    assert goals(none).nearest == (("branches", "heft", math.inf),)


def test_only_cases_in_which_auto_was_run_are_counted(tmp_path):
    other = Case("other", "2xP100")
    runs = [run("auto", None), run("heft", 2.0), run("etf", None), run("heft", 2.0, case=other)]
    found = goals(read_case_results(journal_of(tmp_path, *runs)))
    assert (found.cases, found.cells, found.behind) == (1, 2, 1)
    assert found.beaten == ((CASE, "heft", math.inf),) and found.unplaced == (CASE,)
    text = goals_text(read_case_results(journal_of(tmp_path, *runs, name="again")))
    assert "auto is beaten in 1 of 2 cells, in 1 of 1 cases" in text and "heft, auto's does not fit" in text
    without = goals_text(read_case_results(journal_of(tmp_path, runs[1], name="without")))
    assert "auto was not run" in without and "beaten" not in without


def test_a_seed_that_failed_hides_no_other(tmp_path):
    broken = run("auto", None, 1, trouble="no memory")
    journal = journal_of(tmp_path, run("auto", 2.0), broken, run("auto", 4.0, 2), run("single", 4.0))
    (row,) = read_case_results(journal)
    assert (row.median_s("auto"), row.spread_s("auto"), row.end_s("auto")) == (3.0, (2.0, 4.0), 4.0)
    assert row.found_s("auto") == [2.0, 4.0] and row.trouble("auto") == "1 of 3 seeds failed: no memory"
    assert "3.00 (2.00..4.00), 1 of 3 seeds failed" in full_table([row])
    assert "branches on 2xP100: auto, 1 of 3 seeds failed" in goals_text([row])
    (none,) = read_case_results(journal_of(tmp_path, broken, name="none"))
    assert all(map(math.isnan, (none.median_s("auto"), *none.spread_s("auto"), none.end_s("auto"))))
    assert none.trouble("auto") == "no memory" and none.found_s("auto") == none.found_s("heft") == []


def test_a_bound_of_nothing_has_no_ratios(tmp_path):
    rows = read_case_results(journal_of(tmp_path, run("auto", 2.0), run("auto", 3.0, 1), run("heft", 2.5), bound_s=0.0))
    rows += read_case_results(journal_of(tmp_path, run("auto", 3.0, case=Case("other", "2xP100")), name="other"))
    lines = {line[0]: line[2:] for line in over_all(rows)}
    assert lines["auto"] == ("2", "1.000", "3.000", "2") and lines["heft"] == ("1", "1.000", "-", "1")
    assert goals(rows).over_bound == (3.0,)
    assert summary_table(rows) and full_table(rows)
    free = read_case_results(journal_of(tmp_path, run("auto", 0.0), run("heft", 1.0), bound_s=0.0, name="free"))
    assert [line[3:] for line in over_all(free)] == [("-", "-", "0"), ("-", "-", "1")]
    assert goals(free, "heft").beaten == ((CASE, "auto", math.inf),)


def test_what_memory_costs_by_hand(tmp_path):
    tight = Case("branches", "2xP100", tight=True)
    runs = [run("auto", 2.0), run("auto", 3.0, case=tight), run("auto", 9.0, case=Case("other", "2xP100", tight=True))]
    rows = read_case_results(journal_of(tmp_path, *runs))
    assert over_roomy(rows) == (1.5,)
    assert over_roomy(read_case_results(journal_of(tmp_path, run("auto", None), runs[1], name="full"))) == ()
    assert "auto with tight memory over auto without: 1.50 (1.50..1.50)" in goals_text(rows)
    lines = [line.split("|")[1:4] for line in goals_table(rows).splitlines()]
    assert {line[0].strip(): line[1].strip() for line in lines[2:]} == {"all": "3", "2xP100": "1", "2xP100, tight": "2"}


def test_what_fits_nothing_is_said(tmp_path):
    runs = [run("auto", None), run("single", None), run("exact", None, trouble="needs ortools")]
    rows = read_case_results(journal_of(tmp_path, *runs))
    assert goals(rows).unplaced == (CASE,)
    assert "found nothing that fits: branches on 2xP100" in goals_text(rows)
    line = summary_table(rows).splitlines()[-1]
    assert line.count("does not fit") >= 3
    assert full_table(rows).splitlines()[-1].split("|")[2:-1] == [" does not fit ", " does not fit ", " -     "]


def test_tables_show_medians_and_spread(tmp_path):
    runs = [run("auto", s, seed) for seed, s in enumerate((1.25, 1.5, 2.0))] + [run("single", 3.0)]
    rows = read_case_results(journal_of(tmp_path, *runs))
    assert placers_of(rows) == ["single", "auto"]
    assert "1.50 (1.25..2.00)" in full_table(rows)
    assert seed_spread(rows, "auto") == (2.0 / 1.25,)
    assert seed_spread(rows, "single") == seed_spread(rows, "heft") == ()
    assert "auto's slowest seed over its fastest: 1.60 (1.60..1.60), of 1 with several seeds" in goals_text(rows)
    assert "3.00 s (single)" in summary_table(rows)


def test_the_heat_map_is_a_picture(tmp_path):
    heat_map(tmp_path / "map.png", ["a", "b"], ["x", "y"], [[1.0, 7.0], [math.inf, math.nan]], what="over bound")
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


def test_every_registered_placer_is_in_the_comparison():
    whole = {name for name in PLACERS if not PLACERS[name].needs_slices}
    assert {name for name in whole if not PLACERS[name].learned} <= {*CONSTRUCTIVE, *SEARCHES, *YARDSTICKS}
    assert [*seeds_of("heft", 3)] == [0]
    assert [*seeds_of("auto", 3)] == [0, 1, 2]
