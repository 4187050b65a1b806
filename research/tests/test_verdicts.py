"""Which claims hold, by results that are known."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from research.claims import tarnawski
from research.claims.claims import CLAIMS
from research.claims.criteria import Finding, Published
from research.claims.verdicts import OF_ROWS, findings
from research.tables.gdp_table import times_as_soon
from research.tables.samples_table import times_fewer
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run

ROOT = Path(__file__).resolve().parents[2]


def run(case, placer, step_s, trail=(), **measured):
    return Run(case, placer, 0, step_s, 0, 100, 1.0, measured.pop("cpu_s", 2.0), trail, **measured)


def results(graph="nmt_2", topology="2xP100", **steps):
    """One run of each placer, of so many seconds or the ones given."""
    case = Case(graph, topology)
    runs = {n: [run(case, n, **s) if isinstance(s, dict) else run(case, n, s)] for n, s in steps.items()}
    return CaseResults(Facts(case, 30_000, 8, 2, 0.5, "f"), runs)


def exactly(*values):
    return [(value, value) for value in values]


def found_of(claim, *rows):
    """What is compared -> verdict, and what is said of our number."""
    return {one.compared: (one.verdict, one.here) for one in OF_ROWS[claim](rows)}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((25, 1, -3), "holds"),
        ((20, 1, -3), "holds"),  # reached exactly
        ((19, 1, -3), "direction only"),
        ((25, 0, -3), "number only"),
        ((19, 1, -3, 0), "does not hold"),  # half is not more than half
        ((math.inf, 1, -3), "direction only"),  # that only it fits is no percent
        ((-math.inf, -math.inf), "does not hold"),
    ],
)
def test_a_claim_of_the_best_case(values, verdict):
    assert Published(20, "%", "most", "abstract").verdict(values) == verdict


def test_as_large_a_part_is_ahead_as_in_the_paper_where_that_is_known():
    published = Published(6, "x", "most", "memory", (3, 6))
    assert published.verdict((7, 1, 1, 2)) == "holds"
    assert published.verdict((7, 1, 1, 1)) == "number only"
    assert published.verdict((5, 2, 1, 1)) == "direction only"


def test_a_claim_of_the_mean():
    published = Published(20, "%", "mean", "abstract")
    assert published.reached_by((75, 0)) == pytest.approx(50)
    assert published.verdict((75, 1, -50)) == "holds"  # geometric: 0.25 * 0.99 * 1.5
    assert published.verdict((75, 1, -500)) == "direction only"
    assert published.verdict((30, 5, -math.inf)) == "direction only"
    times = Published(15, "x", "mean", "abstract")
    assert times.reached_by((0, 4, 9)) == pytest.approx(6)  # of those that get there
    assert times.verdict((0, 0)) == "does not hold"


def test_a_limit_is_for_every_case():
    limit = Published(-6.2, "%", "least", "abstract")
    assert limit.verdict((-6.2, 3)) == "holds"
    assert limit.verdict((-6.3, 3, 4)) == "mostly"
    assert limit.verdict((-6.3, 3)) == "does not hold"
    assert limit.verdict((-math.inf, 3, 4)) == "mostly"


def test_what_is_not_known_is_not_judged():
    published = Published(2, "x", "most", "abstract")
    missing = Finding("a against b", published, [])
    assert (missing.verdict, missing.here) == ("not known", "not run")
    assert Finding("a against b", published, [(0.5, 3.0)]).verdict == "open"
    surely = Finding("a against b", published, [(1.5, 3.0), (4.0, 4.0), (0.5, 1.5)])
    assert surely.verdict == "holds"
    assert surely.here == "1.5x to 3x (0.5x to 4x), 2 to 3 of 3"


def test_what_is_said_of_numbers():
    assert Published(20, "%", "most", "memory", (3, 6)).text == "up to 20.0 %, ahead in 3 of 6 (memory)"
    read = Published(-10, "%", "least", "a figure", words="almost as well")
    assert read.text == "almost as well, read as at least -10.0 % (a figure)"
    mean = Finding("a", Published(15, "%", "mean", "abstract"), exactly(75, 0, -math.inf))
    assert mean.here == "mean 50.0 %, 0.0 % (does not fit to 75.0 %), 1 of 3"


def test_steps_against_the_best_baseline():
    ahead, behind = results(single=4.0, expert=2.0, seq2seq=1.0), results(single=4.0, expert=2.0, seq2seq=3.0)
    assert found_of("colocrl", ahead, behind) == {
        "seq2seq's step against the best baseline's": ("holds", "0.0 % (-50.0 % to 50.0 %), 1 of 2")
    }
    ((verdict, _),) = found_of("hierarchical", results(expert=2.0, hierarchical=1.0)).values()
    assert verdict == "direction only"


def test_on_two_gpus_the_paper_is_ahead_in_two_of_four():
    (one,) = OF_ROWS["hierarchical-two"]([results(expert=4.0, hierarchical=1.0), results(expert=1.0, hierarchical=4.0)])
    assert (one.published.ahead, one.verdict) == ((2, 4), "holds")


def test_placeto_against_itself_where_that_was_run():
    assert set(found_of("placeto-unseen", results(placeto_49=1.0, auto=1.0)).values()) == {("not known", "not run")}
    near, far = (results(placeto_49=step_s, placeto_scratch_20000=1.0) for step_s in (1.0, 1.2))
    ((verdict, here),) = found_of("placeto-unseen", near, near, far).values()
    assert (verdict, here) == ("mostly", "0.0 % (-20.0 % to 0.0 %), 2 of 3")


def test_post_after_the_same_learning_time():
    mine, theirs = ({"step_s": s, "trail": ((1, 0.1, s, "x"),), "ran_s": (s,)} for s in (1.0, 2.0))
    found = found_of("post", results(post=mine, policy_gradient=theirs))
    assert found["post's step against policy_gradient's, learning as long"][0] == "direction only"
    assert found["post's step against seq2seq's, learning as long"] == ("not known", "not run")


def test_gdp_has_three_numbers():
    trail = ((10, 0.1, 2.0, "x"), (20, 0.2, 1.0, "x"))
    gdp, hdp = {"step_s": 1.0, "trail": trail}, {"step_s": 2.0, "trail": ((300, 0.1, 2.0, "x"),)}
    row = results(expert=0.5, gdp_scratch=gdp, hierarchical=hdp)
    assert times_as_soon(row) == (30.0, 30.0)
    assert [verdict for verdict, _ in found_of("gdp", row).values()] == ["does not hold", "holds", "holds"]
    never = results(expert=0.5, gdp_scratch=hdp, hierarchical=gdp)
    assert times_as_soon(never) == (0.0, 0.0)
    assert times_as_soon(results(hierarchical=hdp)) is None
    assert times_as_soon(results(gdp_scratch=gdp, hierarchical=None)) is None


def test_how_many_fewer_placements_are_tried():
    mine, theirs = ({"step_s": 1.0, "trail": ((n, 0.1, 1.0, "x"),)} for n in (10, 70))
    row = results(placeto_scratch=mine, seq2seq=theirs)
    assert times_fewer(row, 0.01) == (7.0, 7.0)
    assert {verdict for verdict, _ in found_of("placeto-samples", row).values()} == {"holds"}
    assert times_fewer(results(placeto_scratch=mine), 0.01) is None
    assert times_fewer(results(placeto_scratch=mine, seq2seq=None), 0.01) is None


def test_held_out_graphs_have_no_number():
    found = found_of("gdp-hold-out", results(expert=2.0, gdp=3.0, gdp_tuned=1.0))
    assert [verdict for verdict, _ in found.values()] == ["does not hold", "holds"]


def test_list_scheduling_against_learning_and_experts():
    quick = {name: {"step_s": 2.1, "cpu_s": 0.5} for name in ("m_topo", "m_etf")}
    slow = {name: {"step_s": 2.0, "cpu_s": 50.0, "ran_s": (200.0,)} for name in ("hierarchical", "gdp_scratch")}
    row = results(expert=2.0, m_sct={"step_s": None, "cpu_s": 0.5}, **quick, **slow)
    sooner, *steps = found_of("baechi", row).values()
    assert sooner == ("holds", "4,100x (4,100x to 4,100x), 6 of 6")
    assert [verdict for verdict, _ in steps] == ["holds", "holds", "does not hold"]


def test_pipelines_against_the_published():
    reference = {name: {"values": {"msr_dp": {"value": 2.0}}} for name in ("a", "b", "c")}
    results = {"throughput a contiguous 0": {"value_ms": 2.000001}, "throughput b contiguous 0": {"value_ms": 2.2}}
    assert tarnawski.gains(results, reference) == pytest.approx([0.0, -10.0])
    assert tarnawski.gains({}, reference) == []


def test_every_claim_has_a_verdict():
    assert {*OF_ROWS} == {*CLAIMS}  # tarnawski's results are of another form


def test_without_results_nothing_is_known(tmp_path):
    found = [one for ones in findings(tmp_path).values() for one in ones]
    assert {one.verdict for one in found} == {"not known"}


def test_a_page_gets_the_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- tables: verdicts -->\n<!-- end -->\n")
    command = [sys.executable, "-m", "research.reproduce_claims", f"--page={page}"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=200).stdout
    table = page.read_text().removeprefix("<!-- tables: verdicts -->\n\n").removesuffix("\n\n<!-- end -->\n")
    assert table.startswith("| claim ") and table in printed
