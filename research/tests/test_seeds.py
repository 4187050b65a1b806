"""A seed that does not fit, or could not run, is told and hides no other."""

import pytest

from research.suites.suites import Suite
from tests.comparison.test_page import run
from tfplace.comparison.case_results import CaseResults, seeds_text, troubles
from tfplace.comparison.cells import Case, Facts
from tfplace.comparison.comparison import Comparison
from tfplace.search.budget import Budget

CASE = Case("g", "2xP100")


def of(*found):
    """Runs; a text is a trouble."""
    return [
        run(CASE, "x", None if isinstance(step, str) else step, seed, step if isinstance(step, str) else "")
        for seed, step in enumerate(found)
    ]


def results():
    runs = {
        "single": of(0.004),
        "annealing": of(0.003, None, 0.0025),
        "heft": of("broken pipe", 0.002, 0.0024),
        "metis": of(None, None),
        "scotch": of("not installed", "not installed"),
    }
    return CaseResults(Facts(CASE, 12, 8, 2, 0.001, "f"), runs)


def test_how_many_seeds_there_are():
    for runs, text in (
        (of(1.0), "1"),
        (of(None), "1"),
        (of(None, None), "2"),
        (of(1.0, None, 2.0), "3, of which 1 does not fit"),
        (of(1.0, None, None), "3, of which 2 do not fit"),
        (of(1.0, "lost", 2.0), "2 of 3 ran"),
        (of("lost", None, 2.0), "2 of 3 ran, of which 1 does not fit"),
    ):
        assert seeds_text(runs) == text


def test_placers_have_seeds_of_their_own_unless_others_are_asked_for():
    suite = Suite(("single", "annealing", "seq2seq"), "1s", 1, "x", "x", own_seeds={"annealing": 2, "heft": 3})
    assert suite.runs() == [("single", 0), ("annealing", 0), ("annealing", 1), ("seq2seq", 0)]
    again = [("single", 0), *((name, seed) for name in ("annealing", "seq2seq") for seed in range(3))]
    assert suite.with_seeds(3).runs() == again


def test_those_that_ran_have_their_median():
    row = results()
    assert row.median_s("heft") == pytest.approx(0.0022)
    assert row.ran("scotch") == []
    assert row.best_of(row.runs)[0] == "heft"


def test_every_trouble_has_its_sentence():
    assert troubles(results()) == [
        "heft: 1 of 3 seeds failed: broken pipe",
        "scotch was not run: not installed",
    ]


def test_the_table_has_the_seeds_that_ran():
    found = Comparison(results(), Budget.parse(100), None)
    lines = {line.split()[0]: " ".join(line.split()) for line in found.summary().splitlines() if line.split()}
    assert lines["heft"].startswith("heft 2.20 ms 2 of 3 ran, 2.00 ms to 2.40 ms 2.20 0.55 ")
    assert lines["annealing"].startswith("annealing 3.00 ms 3, of which 1 does not fit 3.00 0.75 ")
    assert lines["metis"].startswith("metis does not fit 2 - - ")
    assert lines["heft:"] == "heft: 1 of 3 seeds failed: broken pipe"
    assert "heft was not run" not in found.summary()
    assert "2 of 3 ran" in found._repr_html_() and "3, of which 1 does not fit" in found._repr_html_()
