"""Policies on graphs that are held out: the suite, tables and curves."""

import math
from dataclasses import replace

import pytest

from research.suites import suites
from research.tables.plots import cumulative
from research.tables.unseen_table import by_seed, curves, goals_text, groups_table, over_optimised, overall_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.registry import PLACERS


def results(graph, topology="2xP100", **step_s):
    case = Case(graph, topology)
    runs = {
        name: [Run(case, name, seed, s, 0 if s else 5, 10, 1.0, 1.0) for seed, s in enumerate(found)]
        for name, found in step_s.items()
    }
    return CaseResults(Facts(case, 10, 8, 3, 0.5, "f"), runs)


ROWS = [
    results("ptb_1", auto=[1.0, 2.0, 3.0], heft=[3.0], single=[4.0], placeto=[2.2, 2.0, 2.1], random=[8.0]),
    results("ptb_2", auto=[1.0], heft=[1.5], single=[None], placeto=[0.9]),
    results("nmt_3", "4xP100", auto=[1.0], heft=[1.0], single=[2.0], placeto=[1.21]),
]


def test_the_suite_is_of_placers_that_there_are():
    assert {*suites.UNSEEN.placers} <= {*PLACERS}
    assert {"auto", "heft", "m_sct", "random", "placeto", "placeto_untrained"} <= {*suites.UNSEEN.placers}
    cases = suites.UNSEEN.cases("ptb_1", ())
    assert not any(case.tight or case.groups for case in cases)
    assert [case.topology for case in cases][-1] == "8xP100"


def test_ratios_are_of_medians_to_autos():
    assert over_optimised(ROWS, "placeto") == pytest.approx([1.05, 0.9, 1.21])
    assert over_optimised(ROWS, "single") == pytest.approx([2.0, math.inf, 2.0])
    assert over_optimised(ROWS, "random") == pytest.approx([4.0])


def test_the_tables_say_geometric_means_and_what_does_not_fit():
    lines = {line.split("|")[1].strip(): line for line in groups_table(ROWS).splitlines()}
    assert "ptb on 2xP100" in lines["step over auto"]
    assert f"{math.sqrt(1.05 * 0.9):.3f}" in lines["placeto"]
    assert "2.000 (1 do not fit)" in lines["single"]
    overall = {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")] for line in overall_table(ROWS).splitlines()
    }
    assert [cell.strip() for cell in lines["bound"].split("|")][2:] == [f"{math.sqrt(0.25 * 0.5):.3f}", "0.500", ""]
    assert overall["bound"][2:8] == ["3", f"{(0.25 * 0.5 * 0.5) ** (1 / 3):.3f}", "-", "0.500", "-", "-"]
    mean, first = (f"{(ratio * 0.9 * 1.21) ** (1 / 3):.3f}" for ratio in (1.05, 1.1))
    assert overall["placeto"][2:8] == ["3", mean, "-", "1.050", "1.21", "2 of 3"]  # but one seed is not in all cases
    assert by_seed(ROWS, "placeto") == pytest.approx([float(first)], abs=1e-3)


def test_the_mean_of_each_seed_is_of_what_fits_with_it():
    rows = [
        results("ptb_1", auto=[1.0, 3.0, 2.0], heft=[3.0], placeto=[2.2, 2.0, 3.0]),
        results("ptb_2", auto=[1.0], placeto=[0.9, None, 1.5]),
        results("ptb_3", auto=[None], placeto=[0.1, 0.1, 0.1]),
    ]
    assert by_seed(rows, "placeto") == pytest.approx([math.sqrt(1.1 * 0.9), 1.0, 1.5])
    assert " 0.995 to 1.500 " in overall_table(rows)
    assert by_seed(rows, "untrained") == []


def test_policies_are_set_against_the_best_constructive_placer():
    ratio = (2.1 / 3.0 * 0.9 / 1.5 * 1.21 / 1.0) ** (1 / 3)
    assert goals_text(ROWS).startswith(f"placeto: {ratio:.3f} of the best of 13")
    assert "faster in 2 of 3 cases; median over auto 1.050" in goals_text(ROWS)
    assert "better of" not in goals_text(ROWS)


def test_the_better_of_two_policies():
    rows = [
        results("ptb_1", auto=[1.0], heft=[2.0], single=[2.0], placeto=[1.5], gdp=[1.2]),
        results("ptb_2", auto=[1.0], heft=[2.0], single=[2.0], placeto=[1.1], gdp=[3.0]),
    ]
    last = goals_text(rows).splitlines()[-1]
    assert last.startswith(f"the better of placeto and gdp: {math.sqrt(0.6 * 0.55):.3f} of the best")
    assert last.endswith("median over auto 1.150")


def test_policies_at_once_are_set_against_placeto_that_learned_on_each_graph():
    itself = "placeto_scratch_20000"
    rows = [
        results("ptb_1", auto=[1.0], placeto=[1.5], gdp=[None], **{itself: [1.4, 1.6, 1.5]}),
        results("ptb_2", auto=[1.0], placeto=[1.2], gdp=[1.2], **{itself: [1.0]}),
        results("ptb_3", auto=[1.0], placeto=[1.2], gdp=[1.2]),
        results("ptb_4", auto=[1.0], placeto=[1.2], gdp=[1.2], **{itself: [None]}),
    ]
    assert goals_text(rows).splitlines()[-2:] == [
        f"placeto: {math.sqrt(1.2):.3f} of {itself} (geometric mean; median 1.100), within 10 % of it or better in "
        "1 of 2 cases",
        f"gdp: 1.200 (1 do not fit) of {itself} (geometric mean; median inf), within 10 % of it or better in "
        "0 of 2 cases",
    ]
    assert itself in curves(rows)["ptb"]


def test_what_does_not_fit_or_could_not_run_ends_no_table():
    rows = [
        results("ptb_1", auto=[1.0], heft=[None], single=[None], placeto=[1.5], gdp=[None]),
        results("ptb_2", auto=[1.0], heft=[2.0], single=[2.0], placeto=[1.1], gdp=[3.0]),
        results("ptb_3", auto=[None], heft=[2.0], single=[2.0], placeto=[1.1], gdp=[3.0]),
    ]
    assert over_optimised(rows, "placeto") == [1.5, 1.1]
    assert "scotch" not in overall_table(rows) and "| gdp " in overall_table(rows)
    placeto, gdp, better = goals_text(rows).splitlines()
    assert "0.550 of the best" in placeto and "faster in 2 of 2 cases" in placeto
    assert "faster in 0 of 2 cases" in gdp and "faster in 2 of 2" in better


def test_a_policy_that_could_not_run_is_not_one_that_does_not_fit():
    row = results("ptb_4", auto=[1.0], heft=[2.0], single=[2.0], placeto=[None, 1.1], gdp=[1.2])
    row.runs["placeto"][0] = replace(row.runs["placeto"][0], trouble="no memory")
    first, *_, last = goals_text([row]).splitlines()
    assert "faster in 1 of 1 cases; median over auto 1.100" in first
    assert last == "ptb_4 on 2xP100: placeto, 1 of 2 seeds failed"
    row.runs["placeto"].pop()
    assert goals_text([row]).startswith("gdp: ") and "better of" not in goals_text([row])


def test_curves_are_a_picture(tmp_path):
    found = curves(ROWS)
    assert list(found) == list(dict.fromkeys(row.facts.case.graph.rpartition("_")[0] for row in ROWS))
    for family, own in found.items():
        rows = [row for row in ROWS if row.facts.case.graph.startswith(family)]
        assert own == {name: over_optimised(rows, name) for name in ("random", "heft", "placeto")}
    found["other"] = {"random": [], "heft": [2.0, math.inf], "placeto": [1.0]}
    cumulative(tmp_path / "curves.png", found, axes=("step", "part"))
    assert (tmp_path / "curves.png").stat().st_size > 5000
