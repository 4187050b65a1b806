"""The page of results is whole, escaped, and needs nothing from elsewhere."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

import tfplace
from tests.report.browser import needs_chromium, seen
from tests.report.test_html import Outline
from tfplace.comparison import page
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.comparison.page import comparison_page
from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.report.charts import _best_so_far, cumulative_chart, curves_chart, steps_chart
from tfplace.testing import random_problem

ROOT = Path(__file__).resolve().parents[2]


def run(case, placer, step_s, seed=0, trouble=""):
    trail = () if step_s is None else ((1, 0.1, 2 * step_s, "x"), (80, 0.2, step_s, "x"))
    return Run(case, placer, seed, step_s, 0, 100, 1.0, 2.0, trail, trouble)


def results(name="g", objective=STEP_TIME):
    case = Case(name, "2xP100", objective=objective)
    runs = {
        "single": [run(case, "single", 0.004)],
        "random_search": [run(case, "random_search", s, i) for i, s in enumerate((0.003, 0.0025, 0.0035))],
        "metis": [run(case, "metis", None)],
        "scotch": [run(case, "scotch", None, trouble="<not installed>")],
    }
    return CaseResults(Facts(case, 1234, 8, 2, 0.001, "f"), runs)


def test_the_page_has_every_cell_and_closes_every_tag():
    made = comparison_page([results("one"), results("other")], "<results>")
    outline = Outline(made)
    text = " ".join(outline.words)
    assert outline.open == []
    assert "http" not in made and "<results>" not in made
    assert text.count("one on 2xP100") == 1
    assert "1,234 ops, bound 1.00 ms, best 3.00 ms by random_search" in text
    assert text.count("scotch was not run: <not installed>") == 2
    assert text.count("does not fit") == 2
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("img") == 1 + 2 * 2 and tags.count("details") == 2
    assert all(dict(attrs)["src"].startswith("data:image/png;base64,") for tag, attrs in outline.tags if tag == "img")


def with_runs(placer, *runs):
    row = results()
    return CaseResults(row.facts, {**row.runs, placer: list(runs)})


def placed():
    problem = random_problem(np.random.default_rng(0), 12, 2, unit=1e-3, ties=False)
    return tfplace.place(problem, placer="random", budget=5, progress=False)


def text_of(*rows):
    return re.sub(r"\s+", " ", " ".join(Outline(comparison_page(rows, "x")).words))


def test_a_style_is_in_the_head_only():
    head, body = comparison_page([results()], "x", {results().facts.case: placed()}).split("</head>")
    assert head.count("<style>") == 1 and "<style" not in body and "The best placement" in body


def test_a_seed_that_does_not_fit_is_told():
    case = Case("g", "2xP100")
    row = with_runs("annealing", *(run(case, "annealing", s, i) for i, s in enumerate((0.003, None, 0.002))))
    assert "annealing 3.00 ms 3.00 0.75 3, of which 1 does not fit 100 " in text_of(row)


def test_a_seed_that_failed_hides_no_other():
    case = Case("g", "2xP100")
    lost = run(case, "annealing", None, 1, "worker lost")
    row = with_runs("annealing", run(case, "annealing", 0.002), lost, run(case, "annealing", 0.0024, 2))
    text = text_of(row)
    assert "annealing 2.20 ms 2.20 0.55 2 of 3 ran 100 " in text
    assert "annealing: 1 of 3 seeds failed: worker lost" in text and "annealing was not run" not in text
    assert "best 2.20 ms by annealing" in text
    overall = text_of(row, with_runs("annealing", lost, lost))
    assert re.search(r"annealing 1 1 1\.000 2\.200 1 ", overall)
    assert "annealing was not run: worker lost" in overall


def test_loads_are_called_loads(monkeypatch):
    axes = []
    monkeypatch.setattr(page, "cumulative_chart", lambda numbers, what, names: axes.append(what) or "")
    loads = text_of(results("one", THROUGHPUT), results("other", THROUGHPUT))
    assert "Largest loads, geometric means over the cases that fit" in loads and "step" not in loads.lower()
    both = text_of(results("one", THROUGHPUT), results("other"))
    assert "Largest loads and step times, geometric means over the cases that fit" in both
    text_of(results("one"), results("other"))
    assert axes == [f"{what} over the best of all" for what in ("largest load", "largest load or step", "step")]


def test_processor_seconds_that_are_too_few_to_be_known():
    case = Case("g", "2xP100")
    for cpu_s, shown in ((0.0, "< 10 ms"), (0.004, "4.00 ms"), (-3.0, "-")):
        row = with_runs("heft", dataclasses.replace(run(case, "heft", 0.002), cpu_s=cpu_s))
        assert f"heft 2.00 ms 2.00 0.50 1 100 {shown} " in text_of(row)


def test_over_all_cases_placers_are_compared_with_the_best():
    text = " ".join(Outline(comparison_page([results("one"), results("other")], "x")).words)
    assert re.search(r"single 2 2 1\.333 4\.000 0", re.sub(r"\s+", " ", text))
    assert re.search(r"metis 2 0 - - 0", re.sub(r"\s+", " ", text))


def test_many_placers_have_several_pictures_with_those_ahead_in_the_first(monkeypatch):
    shown = []
    monkeypatch.setattr(page, "cumulative_chart", lambda numbers, what, names: shown.append(names) or "")
    ratios = dict(zip((f"p{i}" for i in range(9)), (5, 2, 1, math.inf, 3, 9, 20, 4, 6), strict=True))
    rows = []
    for name in ("one", "other"):
        case = Case(name, "2xP100")
        runs = {p: [run(case, p, None if math.isinf(r) else r * 0.001)] for p, r in ratios.items()}
        rows.append(CaseResults(Facts(case, 10, 8, 3, 0.0005, "f"), runs))
    text = comparison_page(rows, "x")
    assert shown == [["p2", "p1", "p4", "p7"], ["p0", "p8", "p5", "p3", "p6"]]
    assert "(picture 1 of 2; the others&#x27; curves are pale)" in text and "(picture 2 of 2;" in text


def test_the_best_so_far():
    found = _best_so_far([(2, 5.0), (10, 3.0)], np.array([1, 2, 9, 10, 99]))
    assert found.tolist() == [math.inf, 5.0, 5.0, 3.0, 3.0]
    assert _best_so_far([], np.array([1, 2])).tolist() == [math.inf, math.inf]


def test_charts_of_what_does_not_fit():
    for chart in (
        steps_chart({"a": [math.inf], "b": [0.1, math.inf]}, 0.01),
        steps_chart({"a": [math.inf]}, 0.01),
        curves_chart({"a": [[], [(3, 0.1)]], "b": [[]]}, 50),
        cumulative_chart({"a": [math.inf], "b": [1.0, 2.0]}, "x", ["a", "b"]),
        cumulative_chart({"a": [math.inf], "b": [1.0, 2.0]}, "x", ["b"]),
        cumulative_chart({}, "x", []),
    ):
        assert chart.startswith("<img ")


SEEN = """
view => {
  const inside = view.document;
  const all = [...inside.body.querySelectorAll("*")], free = all.filter(one => !one.closest(".wide, svg"));
  const scrolls = one => !["visible", "clip"].includes(view.getComputedStyle(one).overflowX);
  const cells = [...inside.querySelectorAll("td:not(:first-child)")], range = inside.createRange();
  const height = one => (range.selectNodeContents(one), range.getBoundingClientRect().height);
  const wide = inside.querySelector("details .wide"), first = wide.querySelector("td");
  const from = first.getBoundingClientRect().left;
  wide.scrollLeft = 50;
  return {
    broken: [...inside.images].filter(one => one.naturalWidth == 0).length,
    charts: inside.images.length, pictures: inside.querySelectorAll("figure svg").length,
    least: Math.min(...[...inside.images].map(one => one.clientWidth)),
    beyond: free.filter(one => one.getBoundingClientRect().right > inside.documentElement.clientWidth + 0.5).length,
    scrolling: free.filter(scrolls).length,
    page: inside.documentElement.scrollWidth,
    cells: Math.max(...cells.map(height)) / height(inside.querySelector("summary b")),
    moved: wide.scrollLeft,
    first: first.getBoundingClientRect().left - from,
  };
}
"""
"""What there is on a page: that no text or picture is beyond its edge, how many lines a cell has, what scrolls."""


@needs_chromium
@pytest.mark.parametrize("width", [1280, 400])
def test_in_a_browser_nothing_but_tables_scrolls_sideways(tmp_path, width):
    inside = comparison_page([results("one"), results("other")], "x", {results("one").facts.case: placed()})
    found = seen(inside, SEEN, width, tmp_path)
    assert (found["broken"], found["charts"], found["pictures"]) == (0, 5, 4)
    assert found["beyond"] == found["scrolling"] == 0 and found["page"] <= width
    assert found["cells"] < 2
    assert found["least"] >= min(560, width - 50)
    assert (found["moved"] > 0) == (width == 400) and abs(found["first"]) < 1  # the first column stays


def test_cases_that_take_no_time_have_a_page():
    case = Case("empty", "2xP100")
    free = CaseResults(Facts(case, 0, 0, 2, 0.0, "f"), {name: [run(case, name, 0.0)] for name in ("single", "auto")})
    assert "empty on 2xP100" in comparison_page([results("one"), free], "results")
