"""What claims say of results that are known."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from research.claims import baechi, colocrl, hierarchical, hold_out, post
from research.claims.claims import CLAIMS
from research.suites.suite_runs import SuiteRun
from research.suites.suites import FULL, SUITES
from research.suites.time_to_target import best_within_s
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.learned.training.pretrained import SHIPPED
from tfplace.registry import PLACERS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = [sys.executable, "-m", "research.reproduce_claims"]
ASKED = [*SUITES.values(), *(claim.suite for claim in CLAIMS.values())]
COMMITTED = sorted({suite.out for suite in ASKED} - {FULL.out})  # that is not finished


def run(case, placer, step_s, seed=0, *, cpu_s=2.0, trail=None, ran_s=()):
    trail = trail or (() if step_s is None else ((40, 0.3, step_s, "x"),))
    return Run(case, placer, seed, step_s, 0, 100, 1.0, cpu_s, trail, ran_s=ran_s)


def results(graph="nmt_2", topology="2xP100", ops=30_000, **steps):
    """One run of each placer, or those that are given."""
    case = Case(graph, topology)
    runs = {n: s if isinstance(s, list) else [run(case, n, s)] for n, s in steps.items()}
    return CaseResults(Facts(case, ops, 8, 3, 0.5, "f"), runs)


def cells(text, name):
    """The cells of the line that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_about_placers_that_are_run_for_it(name):
    claim = CLAIMS[name]
    for suite in (claim.suite, claim.quick):
        assert claim.methods and {*claim.methods} <= {*suite.placers, *suite.beside}
    assert claim.run_of(quick=False) is claim.suite
    quick = claim.run_of(quick=True)
    assert replace(quick, models=claim.quick.models) == claim.quick and quick.models


def test_colocrl_is_compared_with_the_best_of_its_baselines():
    rows = [
        results(single=4.0, scotch=9.0, min_cut=None, expert=2.0, seq2seq=1.5, random_search=3.0, annealing=1.0),
        results("rnnlm_2", single=1.0, scotch=9.0, min_cut=9.0, expert=2.0, seq2seq=1.25, random_search=1.25),
        results("inception_v3", single=1.0, expert=2.0),
    ]
    table = colocrl.gains_table(rows)
    assert cells(table, "nmt_2")[1:] == ["expert", "25.0 %", "19.0 %"]  # 4.99 s and 4.04 s
    assert cells(table, "rnnlm_2")[1:] == ["single", "-25.0 %", "0.0 %"]
    assert cells(table, "inception")[1:] == ["single", "-", "0.0 %"]
    said = colocrl.verdict(rows)
    assert "in 1 of 2 cases, by 0.0 % in the median case, 25.0 % at most" in said
    assert (
        "0.71 times the step of random_search (geometric mean; 0.75 times in the median case), faster in 1 of 2" in said
    )
    assert "1.50 times the step of annealing (geometric mean; 1.50 times in the median case), faster in 0 of 1" in said
    assert "no case yet" in colocrl.verdict(rows[2:])


def test_the_hierarchical_planner_is_told_by_size():
    rows = [
        results(single=4.0, expert=2.0, hierarchical=1.0, random_search=2.0, ops=15_000),
        results("nmt_4", single=4.0, expert=2.0, hierarchical=3.0, random_search=None, ops=25_000),
    ]
    table = hierarchical.gains_table(rows)
    assert table.index("nmt_4") < table.index("nmt_2")  # the largest first
    assert cells(table, "nmt_4")[1:] == ["25,000", "expert", "-50.0 %", "only it fits", "2.00 s", "53.7 % (4 GPUs)"]
    assert cells(table, "nmt_2")[3:5] == ["50.0 %", "50.0 %"]
    said = hierarchical.verdict(rows)
    assert "all graphs: faster than the best baseline in 1 of 2, 50.0 % at most" in said
    assert "over 20,000 ops: faster than the best baseline in 0 of 1, -50.0 % at most" in said
    assert "within 1 % of the step of one device in 0 of 2" in said
    (over,) = (line for line in said.splitlines() if "random_search" in line)
    assert over.startswith(
        "hierarchical takes 0.50 times the step of random_search (geometric mean of 1 cases in which "
    )
    assert over.endswith("0.50 times in the median case), faster in 2 of 2")
    near = [results(single=4.0, hierarchical=h) for h in (3.97, 4.03, 4.05, None)]
    assert "one device in 2 of 3" in hierarchical.verdict(near)


def test_a_policy_that_finds_nothing_that_fits_is_behind():
    rows = [
        results(single=4.0, expert=2.0, seq2seq=None, random_search=3.0),
        results("rnnlm_2", single=None, expert=None, seq2seq=1.0, random_search=None),
        results("gnmt_4", single=None, expert=None, seq2seq=None, random_search=None),
    ]
    table = colocrl.gains_table(rows)
    assert [cells(table, name)[2] for name in ("nmt_2", "rnnlm_2", "gnmt_4")] == ["does not fit", "only it fits", "-"]
    said = colocrl.verdict(rows)
    assert "faster than the best baseline in 1 of 2 cases" in said
    assert "random_search (geometric mean of 0 cases in which both fit; - in the median case), faster in 1 of 3" in said


def test_what_is_found_within_a_learning_time():
    trail = ((3, 0.1, 5.0, "x"), (9, 0.2, 2.0, "x"), (40, 0.3, 1.0, "x"))
    found = run(Case("g", "2xP100"), "post", 1.0, trail=trail, ran_s=(15.0, 45.0, 100.0, 120.0))
    assert [best_within_s(found, s) for s in (14.0, 15.0, 60.0, 100.0, 500.0)] == [math.inf, 5.0, 2.0, 1.0, 1.0]


def test_post_after_the_learning_time_of_another():
    case = Case("nmt_2", "2xP100")
    trail = ((3, 0.1, 4.0, "x"), (9, 0.2, 1.0, "x"))
    mine = [run(case, "post", 1.0, trail=trail, ran_s=(10.0, 50.0, 90.0))]
    theirs = [run(case, "policy_gradient", 2.0, trail=((5, 0.1, 2.0, "x"),), ran_s=(20.0, 60.0))]
    row = results(single=8.0, post=mine, policy_gradient=theirs, seq2seq=1.0)
    assert post.gain_at(row, "policy_gradient", 1.0) == pytest.approx(50.0)
    assert post.gain_at(row, "policy_gradient", 0.5) == pytest.approx(-100.0)
    assert post.gain_at(row, "policy_gradient", 0.1) is None  # neither has anything
    assert post.gain_at(row, "seq2seq", 1.0) is None  # of which nothing tells what it took
    assert "up to 50.0 % shorter steps, shorter in 1 of 1 cases" in post.verdict([row])
    assert cells(post.time_table([row]), "than policy_gradient")[1] == "1"
    assert "no results yet" in post.verdict([])


def test_post_where_one_of_the_two_does_not_fit(recwarn):
    def row(mine, theirs):
        return results(
            post=[run(Case("g", "2xP100"), "post", mine, ran_s=(1.0, 2.0))],
            seq2seq=[run(Case("g", "2xP100"), "seq2seq", theirs, ran_s=(1.0, 2.0))],
        )

    def said(*rows):
        return cells(post.time_table(rows), "than seq2seq")[-1]

    only, not_it, faster, slower = row(1.0, None), row(None, 1.0), row(1.0, 2.0), row(2.0, 1.0)
    assert said(only) == "only it fits" and said(not_it) == "does not fit" and said(only, not_it) == "-"
    assert said(only, faster, slower) == "50.0 % (-100.0 to 50.0; most only it fits)"
    assert said(not_it, slower, only) == "-100.0 % (-100.0 to -100.0; most only it fits)"
    assert said(only, only, faster) == "only it fits (50.0 to 50.0; most only it fits)"
    assert "up to 50.0 % shorter steps, shorter in 2 of 2 cases" in post.verdict([only, faster])
    assert not recwarn


def test_post_is_told_of_the_seeds_that_could_run():
    case = Case("g", "2xP100")
    broken = replace(run(case, "post", None, 1, ran_s=(0.0,)), trouble="no memory")
    mine = [run(case, "post", 1.0, ran_s=(1.0, 2.0)), broken]
    row = results(post=mine, seq2seq=[run(case, "seq2seq", 2.0, ran_s=(1.0, 2.0))])
    assert post.gain_at(row, "seq2seq", 1.0) == pytest.approx(50.0)


def test_large_graphs_that_were_held_out():
    case = Case("gnmt_8", "4xP100")
    tuned = [run(case, "gdp_tuned", 1.0, trail=((1, 0.0, 3.0, "x"), (70, 0.1, 1.0, "x")))]
    row = results("gnmt_8", "4xP100", 51_396, single=4.0, expert=2.0, gdp=1.5, gdp_tuned=tuned, gdp_scratch=3.0)
    said = hold_out.verdict([row])
    assert "gdp: 25.0 % faster than expert (geometric mean; 25.0 % in the median case), faster in 1 of 1" in said
    assert "gdp_tuned: 50.0 % faster" in said
    assert "has what gdp_scratch has in the end in 1 of 1 cases, after 1 evaluations at the latest" in said
    assert cells(hold_out.steps_table([row]), "gdp_scratch")[1] == "0.75; 100; 2.00 s"
    unlike = results("gnmt_8", "8xP100", gdp=1.5, gdp_tuned=None)
    lines = hold_out.steps_table([row, unlike])
    assert [cells(lines, name)[2] for name in ("bound", "gdp ", "gdp_tuned", "gdp_scratch")] == [
        "single not run",
        "single not run; 100; 2.00 s",
        "does not fit; 100; 2.00 s",
        "not run",
    ]


def test_how_much_sooner_list_scheduling_is_done():
    case = Case("nmt_2", "2xP100")
    quick = {name: [run(case, name, 2.1, cpu_s=0.5)] for name in baechi.BAECHI}
    slow = {name: [run(case, name, 2.0, cpu_s=50.0, ran_s=(1.0, 200.0))] for name in baechi.LEARNED}
    said = baechi.verdict([results(expert=2.0, **quick, **slow)])
    assert "m_etf: 100 to 100 times (median 100) sooner" in said
    assert "4,100 to 4,100 times (median 4,100) with 10 simulated steps of each placement" in said
    assert "step against the expert's +5.0 % (median), +5.0 % at most\n" in said
    unfit = {**quick, "m_topo": [run(case, "m_topo", None)]}
    said = baechi.verdict([results(expert=2.0, **quick, **slow), results(expert=2.0, **unfit, **slow)])
    assert "+5.0 % at most in the 1 of 2 cases in which both fit\nm_etf" in said
    assert "+5.0 % at most\nm_sct" in said
    assert "654" in baechi.verdict([])


def test_list_scheduling_that_failed_is_left_out():
    case = Case("nmt_2", "2xP100")
    quick = {name: [run(case, name, 2.1, cpu_s=0.5)] for name in baechi.BAECHI}
    slow = {name: [run(case, name, 2.0, cpu_s=50.0, ran_s=(1.0, 200.0))] for name in baechi.LEARNED}
    broken = replace(run(case, "gdp_scratch", None, 1, cpu_s=1.0), trouble="no memory")
    slow["gdp_scratch"].append(broken)
    row = results(expert=2.0, **quick, **slow)
    assert "m_etf: 100 to 100 times" in baechi.verdict([row])
    assert "nmt_2 on 2xP100: gdp_scratch, 1 of 2 seeds failed" in baechi.verdict([row])
    slow["gdp_scratch"].pop(0)
    assert "m_etf" not in baechi.verdict([row]) and len(baechi.times_table([row]).splitlines()) == 2


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_can_be_run_and_have_what_they_need(name):
    claim = CLAIMS[name]
    for suite in (claim.suite, claim.quick):
        assert all(placer in suite.trained or PLACERS[placer] for placer in suite.placers)
        assert "single" in suite.placers and {"heft", "m_sct"} & {*suite.placers}
        assert suite.seeds >= 3 or suite is claim.quick
    assert claim.suite.out.startswith("research/data/") and claim.quick.out.startswith("out/")
    assert claim.tables([])  # before anything was run


@pytest.mark.parametrize("out", COMMITTED)
def test_committed_results_are_those_that_the_commands_ask_for(out):
    asked, beside = set(), set()
    for suite in (suite for suite in ASKED if suite.out == out):
        # of weights that are not shipped only results are committed
        ours = all(trained.weights == SHIPPED for trained in suite.trained.values())
        asks = suite if ours else replace(suite, trained={})
        run = SuiteRun(asks, ROOT / "no graphs", ROOT / out, lambda: None)
        cases = {case for _, case in run.cases()}
        its = {(case, *one) for case in cases for one in suite.runs()}
        assert its == {key for key in run.journal.runs if key[0] in cases and key[1] in suite.placers}
        assert cases <= {*run.journal.facts}
        for found in run.journal.runs.values():
            trained = suite.trained.get(found.placer)
            if ours:
                assert found.stands("" if trained is None else trained.code(found.case.graph))
            else:
                assert bool(found.code) == (trained is not None) and found.stands(found.code)
        asked |= its
        beside |= {*suite.beside}
    assert asked == {key for key in run.journal.runs if key[1] not in beside}


def test_without_a_claim_all_are_listed():
    listed = subprocess.run(SCRIPT, cwd=ROOT, check=True, capture_output=True, text=True, timeout=200).stdout
    assert all(name in listed for name in (*CLAIMS, "tarnawski"))
    assert "| verdict " in listed
    wrong = subprocess.run([*SCRIPT, "--claim=x"], cwd=ROOT, check=False, capture_output=True, text=True, timeout=200)
    assert wrong.returncode == 1 and "no claim 'x'" in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLAIMS, "tarnawski"])
def test_quick_runs(name, tmp_path):
    command = [*SCRIPT, f"--claim={name}", "--quick", f"--out={tmp_path / 'runs'}"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600).stdout
    wanted = [CLAIMS[name].paper, "Quick: "] if name in CLAIMS else ["contiguous", "load_search", "exact", "auto"]
    assert all(text in said for text in wanted)
    assert re.search(r"^\| .+ \d", said, re.M)  # a line of a table with a number
