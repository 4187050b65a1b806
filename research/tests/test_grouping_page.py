"""docs/grouping.md shows what research/data/grouping.json holds, and names every grouper."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tfplace.registry import GROUPERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "grouping.md").read_text()


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location(
        "grouping_benchmark", ROOT / "research" / "benchmarks" / "grouping.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["grouping", "grouping_long"])
def test_the_tables_are_those_of_the_data(benchmark, name):
    data = json.loads((ROOT / "research" / "data" / f"{name}.json").read_text())
    assert benchmark.tables(data) in PAGE


def test_the_means_are_those_of_the_data():
    rows = json.loads((ROOT / "research" / "data" / "grouping.json").read_text())["quality"]
    median = {(r["model"], r["grouper"], r["asked"]): r["median_ms"] for r in rows}
    table = PAGE.partition("Geometric means over the 4 models")[2]
    names = re.search(r"^\| groups \| (.*) \|$", table, re.MULTILINE)[1].split(" | ")
    for asked in (32, 100, 300, 1000):
        shown = re.search(rf"^\| {asked} \| (.*) \|$", table, re.MULTILINE)[1].split(" | ")
        for name, text in zip(names, shown, strict=True):
            ratios = [median[m, name, asked] / median[m, "none", None] for m in {model for model, *_ in median}]
            assert float(text) == pytest.approx(np.exp(np.mean(np.log(ratios))), abs=0.006)


def test_every_grouper_is_described():
    assert {*re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)} == {*GROUPERS}


def test_tables_are_put_between_their_marks(benchmark, tmp_path):
    data = json.loads((ROOT / "research" / "data" / "grouping.json").read_text())
    page = tmp_path / "page.md"
    page.write_text("before\n" + benchmark.begin("grouping") + "stale\n" + benchmark.END + "\nafter\n")
    benchmark.put_tables(page, data, "grouping")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "stale" not in text
    assert benchmark.tables(data) in text
