"""Pages show what the files of results beside the benchmarks hold."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from tfplace.testing import synthetic

ROOT = Path(__file__).resolve().parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def growth():
    return load(ROOT / "research" / "benchmarks" / "growth.py")


@pytest.fixture(scope="module")
def rows():
    return json.loads((ROOT / "research" / "data" / "growth.json").read_text())["rows"]


def test_the_table_is_that_of_the_data(growth, rows):
    assert growth.show(rows) in (ROOT / "docs" / "comparison.md").read_text()


def test_the_readme_says_what_50000_ops_cost(rows):
    row = next(r for r in rows if r["length"] == 64)
    seconds = f"read in {row['extract_s']:.0f} s"
    assert f"{row['ops']:,} ops" in (ROOT / "README.md").read_text()
    assert seconds in (ROOT / "README.md").read_text()


def test_the_exponent_of_a_power_law(growth):
    rows = [{"ops": n, "some_s": 3.0 * n**1.25} for n in (100, 6000, 20_000, 90_000)]
    assert growth.exponent(rows, "some_s") == pytest.approx(1.25)
    assert math.isnan(growth.exponent(rows[:2], "some_s"))


def test_public_workloads_are_placed_as_the_page_says_and_auto_is_near_the_best_known():
    workloads = load(ROOT / "research" / "benchmarks" / "dnn_partitioning" / "run.py")
    results = json.loads(workloads.RESULTS.read_text())
    page = workloads.PAGE.read_text()
    assert workloads.throughput_table(results) in page
    assert workloads.step_table(results) in page
    known = {name: w["best_known"] for name, w in workloads.REFERENCE.items() if w["objective"] == "max_load"}
    assert len(known) == 7
    for name, best in known.items():
        assert all(run["value_ms"] <= 1.01 * best for run in workloads.runs_of(results, "throughput", name, "auto"))


def test_the_page_says_which_synthetic_problems_pass():
    kept = json.loads(synthetic.KEPT.read_text())
    shapes = Counter(shape_of(number) for number in kept["numbers"])
    tried = Counter(map(shape_of, range(kept["tried"])))
    rows = dict(re.findall(r"^\| ([\w -]+) \| (\d+ \| \d+)", _models_page(), re.M))
    names = ("layered", "Erdos-Renyi", "Barabasi-Albert", "Watts-Strogatz", "blocks")
    for name, shape in zip(names, synthetic.SHAPES, strict=True):
        assert rows[name] == f"{tried[shape]} | {shapes[shape]}"
    share = f"{100 * len(kept['numbers']) / kept['tried']:.0f} %"
    assert f"{len(kept['numbers'])}, which is {share}; {kept['headroom'].count(1)} of them because" in _models_page()


def shape_of(number):
    return list(synthetic.SHAPES)[number % len(synthetic.SHAPES)]


def _models_page():
    return (ROOT / "docs" / "models.md").read_text()
