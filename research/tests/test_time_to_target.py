"""How soon runs had what they found, and the tables of two papers that are made of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from research.suites import suites
from research.suites.time_to_target import (
    earliest_s_until,
    earliest_until,
    evaluations_until,
    median_until,
    processor_s_until,
)
from research.tables.gdp_table import gdp_text, zoo_table
from research.tables.samples_table import PUBLISHED, samples_tables, soon_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.registry import PLACERS

CASE = Case("inception_v3", "4xP100", groups=256)
TRAIL = ((3, 0.1, 5.0, "x"), (9, 0.2, 2.0, "x"), (40, 0.3, 1.0, "x"))


def run(placer, step_s, trail=(), seed=0, cpu_s=2.0):
    return Run(CASE, placer, seed, step_s, 0, 100, 1.0, cpu_s, trail)


def results(**runs):
    return CaseResults(Facts(CASE, 10, 8, 2, 1.0, "f"), {"single": [run("single", 4.0)], **runs})


def cells(text, line):
    return [cell.strip() for cell in text.splitlines()[line].strip("|").split("|")]


def test_evaluations_and_seconds_until_a_value():
    found = run("post", 1.0, TRAIL)
    assert [evaluations_until(found, s) for s in (6.0, 5.0, 2.5, 1.0, 0.9)] == [3, 3, 9, 40, math.inf]
    assert processor_s_until(found, 2.5) == pytest.approx(0.18)


def test_what_a_trail_leaves_out_may_have_been_enough():
    found = run("post", 1.0, ((100, 0.1, 1.0195, "x"), (19_000, 0.2, 1.0, "x"), (19_500, 0.3, 0.98, "x")))
    between = {s: (earliest_until(found, s), evaluations_until(found, s)) for s in (1.02, 1.01, 1.005, 1.0, 0.99, 0.9)}
    assert between == {
        1.02: (100, 100),
        1.01: (101, 19_000),  # 1.0099 is not a hundredth below 1.0195
        1.005: (19_000, 19_000),  # which is, so that it would be there
        1.0: (19_000, 19_000),
        0.99: (19_500, 19_500),
        0.9: (math.inf, math.inf),
    }
    assert earliest_until(replace(found, stride=0.001), 1.01) == 19_000
    close = run("post", 1.0, ((1, 0.1, 1.004, "x"), (50, 0.2, 1.0, "x")))
    assert earliest_until(close, 1.0) == 50  # all that is left out was slower than the last
    assert earliest_s_until(found, 1.01) == pytest.approx(2.02)


def test_runs_that_never_had_it_count():
    row = results(post=[run("post", 1.0, TRAIL), run("post", 2.0, TRAIL[:2], 1), run("post", 5.0, TRAIL[:1], 2)])
    assert [median_until(row, "post", s) for s in (5.0, 2.0, 1.0)] == [3, 9, math.inf]


def test_samples_until_the_best_value_that_both_reach():
    late = ((50, 0.1, 2.08, "x"), (80, 0.2, 2.0, "x"))
    row = results(placeto_scratch=[run("placeto_scratch", 1.0, TRAIL)], seq2seq=[run("seq2seq", 2.0, late)])
    found = cells(soon_table([row]), 2)
    assert found == [str(CASE), "9", "80", "8.9x", "9", "50", "5.6x", *PUBLISHED["inception_v3", "4xP100"]]


def test_a_count_is_told_as_the_range_in_which_it_is():
    trail = ((1000, 0.1, 1.015, "x"), (3000, 0.2, 1.0, "x"))
    row = results(
        placeto_scratch=[run("placeto_scratch", 1.0, ((2000, 0.1, 1.0, "x"),))], seq2seq=[run("seq2seq", 1.0, trail)]
    )
    assert cells(soon_table([row]), 2)[1:7] == ["2,000", "1,001 to 3,000", "0.5x to 1.5x", "2,000", "1,000", "0.5x"]


def test_what_was_not_run_is_told_in_place_of_counts():
    mine, broken = [run("placeto_scratch", 1.0, TRAIL)], [replace(run("seq2seq", None), trouble="no memory")]
    for row in (results(placeto_scratch=mine), results(placeto_scratch=mine, seq2seq=broken)):
        assert cells(soon_table([row]), 2)[1:7] == ["-", "not run", "-"] * 2


def test_all_of_a_claim_of_samples_has_who_ends_ahead():
    steps = {"placeto_scratch": 1.0, "seq2seq": 2.0, "annealing": 0.5}
    text = samples_tables([results(**{name: [run(name, step_s)] for name, step_s in steps.items()})])
    assert "placeto_scratch takes 0.50 times the step of seq2seq" in text and "faster in 1 of 1" in text
    assert "placeto_scratch takes 2.00 times the step of annealing" in text and "untrained (" not in text


def test_a_policy_without_what_fits_has_no_line():
    row = results(placeto_scratch=[run("placeto_scratch", None)], seq2seq=[run("seq2seq", 2.0)])
    assert len(soon_table([row]).splitlines()) == 2


def test_gdp_beside_experts_and_the_hierarchical_policy():
    runs = {"expert": [run("expert", 4.0)], "gdp_scratch": [run("gdp_scratch", 1.0, TRAIL, cpu_s=1.0)]}
    row = results(**runs, hierarchical=[run("hierarchical", 2.0, ((18, 0.1, 2.0, "x"),), cpu_s=4.0)])
    text = gdp_text([row])
    assert "75.0 % faster than expert (geometric mean; 75.0 % in the median case), faster in 1 of 1" in text
    assert "50.0 % faster than hierarchical" in text
    assert "in 1 of 1 cases, in these after 0.50 times the evaluations and 0.12 times the processor seconds" in text
    assert cells(zoo_table([row]), 2)[1:] == ["10", "0.25", "1.00", "1.00", "0.25", "0.50"]


def test_gdp_that_never_has_what_the_other_has():
    runs = {"expert": [run("expert", 4.0)], "gdp_scratch": [run("gdp_scratch", 5.0, TRAIL[:1])]}
    text = gdp_text([results(**runs, hierarchical=[run("hierarchical", 2.0, ((18, 0.1, 2.0, "x"),))])])
    assert "-25.0 % faster than expert" in text and "faster in 0" in text
    assert "in 0 of 1 cases\n" in text


def test_what_does_not_fit_is_counted_as_behind():
    trails = {"gdp_scratch": [run("gdp_scratch", 1.0, TRAIL)], "hierarchical": [run("hierarchical", None)]}
    unfit = {"gdp_scratch": [run("gdp_scratch", None)], "hierarchical": [run("hierarchical", 2.0, TRAIL[:2])]}
    text = gdp_text([results(expert=[run("expert", 4.0)], **found) for found in (trails, unfit)])
    assert (
        "faster than expert (geometric mean of 1 cases in which both fit; 75.0 % in the median case), faster in 1 of 2"
        in text
    )
    none = "(geometric mean of 0 cases in which both fit; - in the median case), faster in 1 of 2"
    assert f"- faster than hierarchical {none}" in text


def test_runs_that_failed_are_not_counted():
    broken = [replace(run(name, None, seed=1), trouble="no memory", evaluations=0) for name in ("gdp_scratch", "x")]
    runs = {"expert": [run("expert", 4.0)], "hierarchical": [run("hierarchical", 2.0, ((18, 0.1, 2.0, "x"),))]}
    row = results(**runs, gdp_scratch=[run("gdp_scratch", 1.0, TRAIL), broken[0]])
    assert "in 1 of 1 cases, in these after 0.50 times the evaluations and 0.50 times" in gdp_text([row])
    assert cells(zoo_table([row]), 2)[5] == "0.25, 1 of 2 seeds failed"
    for name in ("hierarchical", "gdp_scratch"):
        other = {**row.runs, name: [broken[1]]}
        assert gdp_text([CaseResults(row.facts, other)]).startswith("no case yet")


def test_what_was_not_run_is_not_what_does_not_fit():
    rows = [results(heft=[run("heft", None)]), results(heft=[])]
    rows.append(CaseResults(rows[0].facts, {"heft": [run("heft", 2.0)]}))
    assert [cells(zoo_table(rows), line)[2:] for line in (2, 3, 4)] == [
        ["0.25", "1.00", "does not fit"],
        ["0.25", "1.00", "not run"],
        ["single not run", "not run", "single not run"],
    ]


def test_the_range_of_how_much_sooner():
    trail = ((10, 0.1, 2.01, "x"), (40, 0.3, 1.0, "x"))
    runs = {"expert": [run("expert", 4.0)], "hierarchical": [run("hierarchical", 2.0, ((20, 0.1, 2.0, "x"),))]}
    text = gdp_text([results(**runs, gdp_scratch=[run("gdp_scratch", 1.0, trail)])])
    assert "after 0.55 to 2.00 times the evaluations and 0.55 to 2.00 times the processor seconds" in text


def test_of_two_runs_the_slower_has_what_both_have():
    late = ((50, 0.1, 2.08, "x"), (80, 0.2, 2.0, "x"))
    two = [run("hierarchical", 2.0, late), run("hierarchical", 1.0, TRAIL, 1)]
    row = results(expert=[run("expert", 4.0)], gdp_scratch=[run("gdp_scratch", 1.0, TRAIL)], hierarchical=two)
    assert (row.median_s("hierarchical"), row.end_s("hierarchical")) == (1.5, 2.0)
    assert "in 1 of 1 cases, in these after 0.20 times the evaluations" in gdp_text([row])  # 9 of (80 + 9) / 2


def test_a_part_of_the_suite_has_its_words_too():
    assert gdp_text([results(expert=[run("expert", 4.0)])]).startswith("no case yet")


@pytest.mark.parametrize("suite", [suites.SAMPLES, suites.GDP, suites.UNSEEN])
def test_suites_name_placers_that_there_are(suite):
    assert {*suite.placers} <= {*PLACERS}


def test_the_cases_of_the_papers_table_are_all_tried():
    cases = [case for model in suites.SAMPLES.models for case in suites.SAMPLES.cases(model, ())]
    assert {(case.graph, case.topology) for case in cases} == {*PUBLISHED}
