"""The committed results: which command made them, and that they are whole."""

import json
import math
from statistics import geometric_mean, median

import pytest

from research.benchmarks import growth
from research.benchmarks.dnn_partitioning import run as workloads
from tests.pages import ROOT, rows_of, text
from tfplace.comparison.cells import LEARNED


def _under_another_command(path):
    """How many runs stand below the line of a command that was not for them."""
    flags, found = {}, 0
    for line in map(json.loads, path.read_text().splitlines()):
        if "made_by" in line:
            flags = dict(flag.split("=", 1) for flag in line["made_by"]["command"] if "=" in flag)
        elif "run" in line:
            case = line["run"]["case"]
            of = {"--placers": line["run"]["placer"], "--topologies": case["topology"], "--models": case["graph"]}
            found += any(flag in flags and value not in flags[flag].split(",") for flag, value in of.items())
    return found


def test_runs_stand_below_the_command_that_made_them():
    found = {path.stem: _under_another_command(path) for path in (ROOT / "research" / "data").glob("*.jsonl")}
    assert len(found) > 10 and {name for name, others in found.items() if others} == {"compare"}


def test_what_policies_that_were_trained_beforehand_place_fits():
    assert not any(
        run.over_bytes for row in rows_of("compare") for name in ("placeto", "gdp") for run in row.runs[name]
    )


def test_every_run_of_policies_is_there():
    rows = rows_of("policies")
    learned = [run for row in rows for name in LEARNED for run in row.runs[name]]
    assert len(learned) == (4 * 10 + 2 * 5 + 2 * 3) * len(rows) and all(run.step_s for run in learned)


def test_cost_errors_leave_auto_ahead():
    found = json.loads(text("research/data/cost_errors.json"))
    for graphs in found.values():
        names = next(iter(graphs.values()))
        means = {name: geometric_mean([median(placed[name]) for placed in graphs.values()]) for name in names}
        assert min(means, key=means.get) == "auto"


def test_auto_is_near_the_best_known_of_public_workloads():
    results = json.loads(workloads.RESULTS.read_text())
    known = {name: w["best_known"] for name, w in workloads.REFERENCE.items() if w["objective"] == "max_load"}
    assert len(known) == 7
    for name, best in known.items():
        assert all(run["value_ms"] <= 1.01 * best for run in workloads.runs_of(results, "throughput", name, "auto"))


def test_the_exponent_of_a_power_law():
    rows = [{"ops": n, "some_s": 3.0 * n**1.25} for n in (100, 6000, 20_000, 90_000)]
    assert growth.exponent(rows, "some_s") == pytest.approx(1.25)
    assert math.isnan(growth.exponent(rows[:2], "some_s"))
