"""Compiled or op by op: baselines both ways, and the way that a placement is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.search.test_place import two_towers
from tfplace.core.compilation import NONE, XLA
from tfplace.core.costs import CostTable
from tfplace.search import compilations
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator


def known_both_ways(compile, factor):
    """A problem whose ops take `factor` times as long the other way."""
    problem = two_towers()
    other = CostTable(factor * problem.costs.compute_s, problem.costs.provenance)
    return replace(problem, compile=compile, other_costs=other)


def placed(problem, asked):
    return search_placement(problem, placer="round_robin", budget=5, compile=asked, baselines=())


@pytest.mark.parametrize(
    ("of_costs", "factor", "asked", "chosen"),
    [
        (XLA, 2.0, "auto", XLA),
        (XLA, 0.5, "auto", NONE),  # the program asks for it, but it is slower
        (XLA, 0.5, "xla", XLA),
        (NONE, 0.5, "auto", NONE),  # the program does not ask
        (NONE, 0.5, "none", NONE),
    ],
)
def test_a_placement_says_how_it_is_run_and_costs_what_it_then_takes(of_costs, factor, asked, chosen):
    problem = known_both_ways(of_costs, factor)
    placement = placed(problem, asked)
    run = problem if chosen == of_costs else problem.otherwise
    assert placement.compile == chosen
    assert placement.cost.step_s == Simulator(run).devices(placement.op_device).step_s
    assert placement.problem.compile == chosen
    assert placement.bound_s <= placement.cost.step_s


@pytest.mark.parametrize("of_costs", [NONE, XLA])
def test_single_devices_are_baselines_both_ways(of_costs):
    problem = known_both_ways(of_costs, 2.0)
    baselines = placed(problem, "auto").baselines
    alone = np.zeros(problem.graph.num_ops, np.int32)
    own_s, other_s = (Simulator(one).devices(alone).step_s for one in (problem, problem.otherwise))
    op_by_op_s, compiled_s = (own_s, other_s) if of_costs == NONE else (other_s, own_s)
    assert baselines["single GPU:0"].step_s == op_by_op_s
    assert baselines["single GPU:0, compiled"].step_s == compiled_s


def test_costs_that_are_known_one_way_leave_the_other_out():
    placement = placed(replace(two_towers(), other_costs=None), "auto")
    assert placement.compile == NONE
    assert not any(name.endswith("compiled") for name in placement.baselines)


def test_what_was_found_is_kept_if_the_user_stops_what_comes_after(monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(compilations, "run_otherwise", stop)
    placement = placed(known_both_ways(NONE, 0.5), "auto")
    assert placement.cost.feasible and placement.compile == NONE
