"""The page of results is whole, escaped, and needs nothing from elsewhere."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

import numpy as np
import pytest

from tests.report.test_html import Outline
from tfplace.compare.cells import Case, Facts, Run
from tfplace.compare.journal import Journal
from tfplace.compare.page import comparison_page
from tfplace.compare.standings import Standing
from tfplace.report.charts import _best_so_far, cumulative_chart, curves_chart, steps_chart

ROOT = Path(__file__).resolve().parents[2]


def run(case, placer, step_s, seed=0, trouble=""):
    trail = () if step_s is None else ((1, 0.1, 2 * step_s, "x"), (80, 0.2, step_s, "x"))
    return Run(case, placer, seed, step_s, 0, 100, 1.0, 2.0, trail, trouble)


def standing(name="g"):
    case = Case(name, "2xP100")
    runs = {
        "single": [run(case, "single", 0.004)],
        "random_search": [run(case, "random_search", s, i) for i, s in enumerate((0.003, 0.0025, 0.0035))],
        "metis": [run(case, "metis", None)],
        "scotch": [run(case, "scotch", None, trouble="<not installed>")],
    }
    return Standing(Facts(case, 1234, 8, 2, 0.001, "f"), runs)


def test_the_page_has_every_cell_and_closes_every_tag():
    page = comparison_page([standing("one"), standing("other")], "<results>")
    outline = Outline(page)
    text = " ".join(outline.words)
    assert outline.open == []
    assert "http" not in page and "<results>" not in page
    assert text.count("one on 2xP100") == 1
    assert "1,234 ops, bound 1.00 ms, best 3.00 ms by random_search" in text
    assert text.count("scotch was not run: <not installed>") == 2
    assert text.count("does not fit") == 2
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("img") == 1 + 2 * 2 and tags.count("details") == 2
    assert all(dict(attrs)["src"].startswith("data:image/png;base64,") for tag, attrs in outline.tags if tag == "img")


def test_over_all_cases_placers_are_compared_with_the_best():
    text = " ".join(Outline(comparison_page([standing("one"), standing("other")], "x")).words)
    assert re.search(r"single 2 2 1\.333 4\.000 0", re.sub(r"\s+", " ", text))
    assert re.search(r"metis 2 0 - - 0", re.sub(r"\s+", " ", text))


def test_the_best_so_far():
    found = _best_so_far([(2, 5.0), (10, 3.0)], np.array([1, 2, 9, 10, 99]))
    assert found.tolist() == [math.inf, 5.0, 5.0, 3.0, 3.0]
    assert _best_so_far([], np.array([1, 2])).tolist() == [math.inf, math.inf]


def test_charts_of_what_does_not_fit():
    for chart in (
        steps_chart({"a": [math.inf], "b": [0.1, math.inf]}, 0.01),
        steps_chart({"a": [math.inf]}, 0.01),
        curves_chart({"a": [[], [(3, 0.1)]], "b": [[]]}, 50),
        cumulative_chart({"a": [math.inf], "b": [1.0, 2.0]}, "x"),
        cumulative_chart({}, "x"),
    ):
        assert chart.startswith("<img ")


def test_the_script_writes_the_page_of_some_files(tmp_path):
    journal = Journal(tmp_path / "runs.jsonl", {"budget": "2 s", "simulated": True})
    for row in (standing("one"), standing("other")):
        journal.add(row.facts)
        for each in row.runs.values():
            for one in each:
                journal.add(one)
    command = [sys.executable, "scripts/report.py", str(journal.path), "--cases=one", f"--out={tmp_path / 'p.html'}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=200)
    text = (tmp_path / "p.html").read_text()
    assert "one on 2xP100" in text and "other on" not in text
    assert "Each run had a budget of 2 s." in text
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "taken").write_text("mine\n")
    damaged = journal.path.read_text().replace('"step_s": 0.0025', '"step_s": "abc"')
    (tmp_path / "damaged.jsonl").write_text(damaged)
    for source, out, said in (
        ("none.jsonl", "p.html", "none.jsonl"),
        ("notes.txt", "p.html", "notes.txt, which begins with b'mine"),
        ("damaged.jsonl", "p.html", "in damaged.jsonl (step_s='abc')"),
        ("runs.jsonl", "taken/p.html", "could not be written"),
    ):
        failed = subprocess.run(
            [*command[:2], str(tmp_path / source), f"--out={tmp_path / out}"],
            cwd=ROOT,
            check=False,
            text=True,
            capture_output=True,
            timeout=200,
        )
        assert failed.returncode == 1 and said in failed.stderr and "Traceback" not in failed.stderr


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_it_without_scrolling_sideways(tmp_path, width):
    """In a frame of that width, as a window may have a least one; what is found becomes the title."""
    page = tmp_path / "page.html"
    inside = comparison_page([standing("one"), standing("other")], "x")
    page.write_text(
        f"""<!doctype html><title>-</title>
        <iframe srcdoc="{escape(inside)}" style="width: {width}px; height: 900px; border: 0"></iframe>
        <script>onload = () => {{
          const page = document.querySelector("iframe").contentDocument, pictures = [...page.images];
          const broken = pictures.filter(one => one.naturalWidth == 0).length;
          document.title = [page.documentElement.scrollWidth, broken, pictures.length].join(" ");
        }}</script>"""
    )
    alone = ("background-networking", "component-update", "sync", "gpu")
    command = ["chromium", "--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in alone)]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000", "--dump-dom"]
    shown = subprocess.run(
        [*command, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    wide, broken, pictures = map(int, re.search(r"<title>([\d ]+)</title>", shown)[1].split())
    assert (broken, pictures) == (0, 5)
    assert wide <= width
