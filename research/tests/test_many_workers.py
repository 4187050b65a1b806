"""What is told of searches on many workers: gains, losing cells and what more workers would give."""

from __future__ import annotations

import itertools
import statistics

import pytest

from research.benchmarks import many_workers, workers_growth


def cell(graph, seed, arm, step_s):
    return {"graph": graph, "seed": seed, "arm": arm, "step_s": step_s, "wall_s": 12.0}


def test_cells_that_are_behind_are_named_and_half_a_cell_is_left_out():
    cells = [
        cell("a", 0, many_workers.ALONE, 1.0),
        cell("a", 0, many_workers.TOGETHER, 0.9),
        cell("a", 1, many_workers.ALONE, 1.0),
        cell("a", 1, many_workers.TOGETHER, 1.1),
        cell("b", 0, many_workers.ALONE, 1.0),
    ]
    told = many_workers.text({"seconds": 5.0, "workers": 2, "cells": cells})
    assert "5 s on 2 workers over 10 s on one core" in told
    assert f"{(0.9 * 1.1) ** 0.5:.3f}" in told and "| b" not in told
    assert "it took 12 s and 12 s" in told
    assert told.endswith("Cells above 1.02: a, seed 1: 1.100.")


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_best_of_n_is_the_mean_over_all_ways_to_draw_n(n):
    steps = [3.0, 1.0, 2.0, 7.0]
    drawn = [min(some) for some in itertools.combinations(steps, n)]
    assert workers_growth.least_of(steps, n) == pytest.approx(statistics.mean(drawn))


def test_curves_are_relative_to_one_worker():
    steps = [float(i) for i in range(1, 513)]
    runs = {"independent": steps, "exchange": {"8": [128.25]}, "one core": {"2": [256.5]}, "part_s": 1e-3}
    curves = workers_growth.curves({"runs": {"g": runs}})
    assert curves["independent"][1] == pytest.approx(1.0) and curves["independent"][512] == pytest.approx(1 / 256.5)
    assert curves["exchange"] == {1: 1.0, 8: 0.5}
    assert "5.1 %" in workers_growth.text({"runs": {"g": runs}})
