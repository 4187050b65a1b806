"""Suites of cases, and the tables of policies."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from research.suites import suites
from research.tables.policies_table import bootstrap, costs_table, post_text, spread, steps_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import AT_ONCE, Case, Facts, Run, problem_of, run_cell
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.testing import make_graph

CASE = Case("g", "2xP100", groups=8)


def run(placer, step_s, seed=0, trail=(), evaluations=100):
    return Run(CASE, placer, seed, step_s, 0, evaluations, 1.0, 2.0, trail)


def results(**runs):
    runs = {"single": [run("single", 4.0)], **runs}
    return CaseResults(Facts(CASE, 10, 8, 2, 1.0, "f"), runs)


def test_cases_of_suites():
    assert suites.FULL.cases("nmt_2", (2, 4)) == [
        Case("nmt_2", name, tight) for name in ("2xP100", "4xP100") for tight in (False, True)
    ]
    assert [c.topology for c in suites.FULL.cases("vit", ())] == ["4xP100", "4xP100"]
    assert suites.POLICIES.cases("gnmt_4", (4,)) == [Case("gnmt_4", n, groups=256) for n in ("2xP100", "4xP100")]
    tight = [c for c in suites.POLICIES.cases("nmt_2", (2,)) if c.tight]
    assert [(c.topology, c.spare) for c in tight] == [("2xP100", 1.5), ("4xP100", 3.0)]
    unlike = replace(suites.POLICIES, topologies=("2xV100-PCIe+2xP100",))
    assert [c.spare for c in unlike.cases("nmt_2", ()) if c.tight] == [3.0]
    assert str(tight[1]) == "nmt_2 on 4xP100, 3 shares of memory, 256 groups"


@pytest.mark.parametrize("suite", [suites.FULL, suites.QUICK, suites.POLICIES, suites.QUICK_POLICIES])
def test_suites_name_placers_that_there_are(suite):
    assert {*suite.placers} <= {*PLACERS}
    learned = {name for name in suite.placers if getattr(PLACERS[name], "learned", False)} - {*AT_ONCE}
    every = {name for name in PLACERS if getattr(PLACERS[name], "learned", False)} - {*AT_ONCE}
    assert learned in (set(), every)


def test_a_grouped_case_has_its_groups_and_its_memory():
    names = [f"{c}{i}" for c in "ab" for i in range(10)]
    graph = make_graph(dict.fromkeys(names, 10**6), [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(9)])
    assert problem_of(graph, Case("g", "2xP100")).num_units == 20
    assert problem_of(graph, Case("g", "2xP100", groups=4)).num_units == 2  # single consumers alone lead there
    one, other = (problem_of(graph, Case("g", "4xP100", True, spare)).memory_limit[1:] for spare in (1.5, 3.0))
    np.testing.assert_allclose(other / one, 2.0, rtol=1e-3)


def test_bootstrap_intervals_hold_the_median_and_shrink():
    values = np.random.default_rng(0).normal(10.0, 1.0, 100)
    few, many = bootstrap(values[:5]), bootstrap(values)
    for (low, high), part in ((few, values[:5]), (many, values)):
        assert low <= np.median(part) <= high
    assert many[1] - many[0] < few[1] - few[0]
    assert bootstrap([3.0]) == (3.0, 3.0) and bootstrap(values) == many


def test_of_few_values_the_least_and_the_most_are_told():
    values = np.random.default_rng(0).normal(10.0, 1.0, 20)
    assert spread([2.0, 4.0, 1.0, 3.0]) == (1.0, 4.0)
    assert spread(values) == bootstrap(values) != (min(values), max(values))


def test_the_table_of_steps_is_over_the_single_device():
    text = steps_table([results(post=[run("post", s, i) for i, s in enumerate((2.0, 3.0, 4.0))])])
    drawn, said = text.split("\n\n")
    assert said.endswith("of fewer than 5 seeds the least and the most.")
    lines = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in drawn.splitlines()}
    assert lines["bound"] == "0.25" and lines["single"] == "1.00"
    assert lines["post"] == "0.75 (0.50..1.00)"


def test_what_was_not_run_is_not_what_does_not_fit():
    unfit, other = results(post=[run("post", None)], heft=[run("heft", 3.0)]), results(post=[])
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in steps_table([unfit, other]).splitlines()]
    assert {line[0]: line[1:] for line in lines[2:6]} == {
        "bound": ["0.25", "0.25"],
        "single": ["1.00", "1.00"],
        "heft": ["0.75", "not run"],
        "post": ["does not fit", "not run"],
    }
    no_single = CaseResults(unfit.facts, {"heft": [run("heft", 3.0)]})
    assert steps_table([no_single]).count("single not run") == 2 and "nan" not in steps_table([no_single])


def test_a_seed_that_failed_hides_no_other_and_is_told():
    broken = replace(run("post", None, 1, evaluations=0), trouble="no memory")
    text = steps_table([results(post=[run("post", 2.0), broken, run("post", 3.0, 2)])])
    assert "| 0.62 (0.50..0.75), 1 of 3 seeds failed |" in text
    assert "not run" in steps_table([results(post=[broken])])


def test_runs_that_fit_nothing_are_said():
    row = results(post=[run("post", None, 0), run("post", None, 1), run("post", 3.0, 2)])
    assert "| does not fit" in steps_table([row])
    assert "| 1 of 3" in costs_table([row])


def test_what_part_of_the_evaluations_does_not_fit_is_told_of_tight_memory():
    tight = Case("g", "2xP100", tight=True, groups=8)
    runs = [replace(run("post", 2.0, i), case=tight, failed=failed) for i, failed in enumerate((10, 25, 90))]
    row = CaseResults(replace(results().facts, case=tight), {"post": runs})
    assert "| 25 %" in costs_table([row])
    assert "%" not in costs_table([results(post=[run("post", 2.0)])])


def test_failed_evaluations_are_counted():
    halves = [f"{c}{i} -> {c}" for c in "ab" for i in range(10)]  # each needs its own ten all at once
    ops = [*(edge.split(" -> ")[0] for edge in halves), "a", "b"]
    graph = make_graph(dict.fromkeys(ops, 10**6), halves)
    case = Case("g", "2xP100", tight=True)
    found = run_cell(problem_of(graph, case), case, "random_search", Budget(evaluations=200), 0)
    assert 0 < found.failed < found.evaluations
    assert Run.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_post_beside_policy_gradient():
    plain = [run("policy_gradient", s, i) for i, s in enumerate((2.0, 2.0, 2.0))]
    trail = ((10, 0.1, 3.0, "x"), (30, 0.2, 1.9, "x"), (60, 0.3, 1.0, "x"))
    text = post_text([results(policy_gradient=plain, post=[run("post", 1.0, i, trail) for i in range(3)])])
    assert "after 30 of 100 evaluations, and ends lower by 50.0 %" in text
    loose = ((10, 0.1, 2.01, "x"), (60, 0.3, 1.0, "x"))
    text = post_text([results(policy_gradient=plain, post=[run("post", 1.0, i, loose) for i in range(3)])])
    assert "after 60 of 100 evaluations at the latest, and" in text and "half the evaluations in 0 at least" in text
    text = post_text([results(policy_gradient=plain, post=[run("post", 1.0, i, trail) for i in range(3)])])
    worse = post_text([results(policy_gradient=plain, post=[run("post", 3.0, i, trail[:1]) for i in range(3)])])
    assert "not in most runs, and ends lower by -50.0 %" in worse
    assert "with half the evaluations in 1, and in the end no worse in 1 of 1 cases" in text
    assert "with half the evaluations in 0, and in the end no worse in 0 of 1 cases" in worse
    none = [run("policy_gradient", None, i) for i in range(3)]
    assert "policy gradient found nothing that fits" in post_text([results(policy_gradient=none, post=plain)])


def test_post_counts_only_where_both_were_run():
    row = results(policy_gradient=[run("policy_gradient", 2.0)], post=[run("post", 1.0, 0, ((30, 0.1, 1.0, "x"),))])
    broken = [replace(run("post", None, evaluations=0), trouble="no memory")]
    others = [
        results(),
        results(post=[run("post", 1.0)]),
        results(policy_gradient=[run("policy_gradient", None)]),
        results(policy_gradient=[run("policy_gradient", None)], post=broken),
    ]
    assert post_text([row, *others]) == post_text([row])
    assert post_text(others).startswith("no case yet")
