"""The first screen is within 80 columns and 40 lines, whatever there is to tell."""

from dataclasses import replace

import pytest

import tfplace
from tests.core.test_plan import row
from tests.report import cases
from tests.search.plans import layers, plan_of
from tfplace.core.plan import Plan
from tfplace.report.screen import HEIGHT, WIDTH, placement_screen, plan_screen
from tfplace.report.summary import plain_text
from tfplace.testing import make_topology

FILES = {name: f"out/{name}.json" for name in ("placement", "trace", "topology", "problem", "search")}
FILES["report"] = "out/report.html"


def lines_of(screen):
    lines = plain_text(screen).splitlines()
    assert max(map(len, lines)) <= WIDTH and len(lines) <= HEIGHT, "\n".join(lines)
    return lines


@pytest.fixture(scope="module")
def plan():
    return plan_of(layers(make_topology(2), [3.0, 1.0], [4, 4]))


def test_a_plan_fits_and_says_the_answer_first(plan):
    lines = lines_of(plan_screen(plan, {"plan": "out", "report": "out/report.html"}))
    assert lines[1].startswith(("take ", "stay on "))
    text = "\n".join(lines)
    assert plan.chosen.name in text and "at their peaks" in text and "out/report.html" in text
    assert text.index("Simulated steps") < text.index("at their peaks") < text.index("Next")


def test_a_saved_plan_fits(plan, tmp_path):
    plan.save(tmp_path)
    loaded = tfplace.Plan.load(tmp_path)
    lines = lines_of(plan_screen(loaded, {}))
    assert any(loaded.chosen.name in line for line in lines) and any("--out" in line for line in lines)


def test_of_many_long_rows_the_chosen_and_one_device_are_shown():
    rows = [
        row(f"a way with a name of many words {i}, {'recomputing, ' * 4}", 0.01 + i / 1e3, differs="x " * 200)
        for i in range(30)
    ]
    rows += [row("one device", 0.9, devices=(0, 0, 0), obstacle=""), row("barred", 0.001, obstacle="y " * 200)]
    rows.sort(key=lambda one: one.cost.key)
    many = Plan(tuple(rows), "a_model_with_a_name", "8x8xA100-NVLink", 32, notes=("z " * 200,) * 9)
    text = "\n".join(lines_of(plan_screen(many, {})))
    assert "one device (GPU:0)" in text and "--verbose" in text


def test_a_placement_fits_with_many_devices_baselines_and_notes():
    plenty = {f"baseline number {i}": cases.cost(0.01 + i / 1e3) for i in range(20)}
    plenty |= {"single GPU:0": cases.cost(0.05), "round_robin": cases.cost(0.02, peak=(9, 1))}
    placed = cases.placement(baselines=plenty, notes=("a note of many words " * 20,) * 20)
    lines = lines_of(placement_screen(placed, FILES))
    assert "faster than the best single device (GPU:0)" in lines[1]
    text = "\n".join(lines)
    assert "single GPU:0" in text and "out/report.html" in text and "placement.json" in text


def test_where_nothing_fits_it_says_what_is_missing():
    short = plan_of(layers(make_topology(2, memory=5), [3.0, 1.0], [4, 4]))
    lines = lines_of(plan_screen(short, {}))
    assert lines[1].startswith("nothing fits") and any("--largest_batch" in line for line in lines)
    assert any("too large" in line for line in lines)


def test_an_interruption_is_told_before_other_notes():
    placed = replace(cases.placement(), notes=("interrupted after 3 evaluations",))
    assert "interrupted after 3 evaluations" in "\n".join(lines_of(placement_screen(placed, {})))
