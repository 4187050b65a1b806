"""docs/comparison.md shows what benchmarks/growth.json holds."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def growth():
    spec = importlib.util.spec_from_file_location("growth_benchmark", ROOT / "benchmarks" / "growth.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows():
    return json.loads((ROOT / "benchmarks" / "growth.json").read_text())["rows"]


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
