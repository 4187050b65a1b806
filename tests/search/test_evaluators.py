"""Searches with an evaluator that is not the simulator: it may fail, and its answers are not repeatable."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tfplace
import tfplace.api
from tfplace.core.placement import Placement
from tfplace.core.stepcost import MEASURED, Failure, FailureKind, Samples, bare, failed
from tfplace.errors import InfeasibleError, InputError, UnknownNameError
from tfplace.report.facts import placement_facts
from tfplace.search.place import search_placement
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, make_topology


class Measuring:
    """Says what the simulator says, as if it had been measured; placements that `fails` picks fail.

    Args:
      problem: what is placed.
      fails: called with the number of the evaluation and the devices.
      raises: number of the evaluation at which Ctrl-C is pressed.
    """

    source = MEASURED

    def __init__(self, problem, fails=lambda number, devices: False, raises=None):
        self.problem = problem
        self.calls = 0
        self.closed = False
        self._simulator = Simulator(problem)
        self._fails, self._raises = fails, raises

    def __call__(self, unit_device):
        self.calls += 1
        if self.calls == self._raises:
            raise KeyboardInterrupt
        limit = self.problem.memory_limit
        if self._fails(self.calls, np.asarray(unit_device)):
            return failed(Failure(FailureKind.WORKER_LOST, "gone"), limit, MEASURED)
        step_s = self._simulator(unit_device).step_s
        steps = step_s * np.array([0.9, 1.0, 1.1])
        return bare(step_s, limit, MEASURED, samples=Samples(steps, np.full(3, step_s), rejected=1, warmup=5))

    def key(self, unit_device):
        return self(unit_device).key

    def keys(self, unit_devices):
        keys = [self.key(row) for row in unit_devices]
        return np.array([k[0] for k in keys]), np.array([k[1] for k in keys])

    def close(self):
        self.closed = True


def problem():
    """Four chains of three ops that meet."""
    ops = {f"{row}{i}": 2**20 for row in "abcd" for i in range(3)}
    edges = [f"{row}{i} -> {row}{i + 1}" for row in "abcd" for i in range(2)] + [f"{row}2 -> end" for row in "abcd"]
    graph = make_graph(ops | {"end": 4}, edges, types=dict.fromkeys(ops, "MatMul"))
    return tfplace.api.formulate(graph, make_topology(2))


def test_the_search_minimises_what_the_evaluator_says_and_reports_both():
    p = problem()
    placement = search_placement(p, placer="local_search", budget=40, evaluator=Measuring(p))
    assert placement.cost.source == MEASURED
    assert placement.simulated is not None
    assert placement.predicted is placement.simulated
    assert all(cost.source == MEASURED for cost in placement.baselines.values())
    assert "measured step time" in placement.summary()
    assert "interquartile range" in placement.summary()
    assert "1 disturbed steps left out" in placement.summary()
    facts = placement_facts(placement)
    assert facts["measured"]["step_s"] == placement.cost.step_s
    assert facts["simulated"]["step_s"] == placement.simulated.step_s
    assert facts["measured"]["rejected"] == 1
    assert "Step times (measured)" in placement._repr_html_()


def test_a_measured_placement_goes_through_json():
    p = problem()
    fails = Measuring(p, fails=lambda number, devices: number == 1)  # the first single device
    placement = search_placement(p, placer="single", budget=10, evaluator=fails)
    text = placement.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = Placement.from_json(text, problem=p)
    assert again.cost.samples.step_s.tolist() == placement.cost.samples.step_s.tolist()
    assert [str(c.failure) for c in again.baselines.values()] == [str(c.failure) for c in placement.baselines.values()]
    assert np.isnan(again.cost.compute_s).all()
    assert again.simulated.step_s == placement.simulated.step_s
    assert "failed: worker lost: gone" in again.summary()


def test_failures_cost_a_trial_each_and_the_search_goes_on():
    p = problem()
    rng = np.random.default_rng(0)
    flaky = Measuring(p, fails=lambda number, devices: rng.random() < 0.5)
    placement = search_placement(p, placer="local_search", budget=60, baselines=(), evaluator=flaky)
    assert placement.cost.failure is None
    assert flaky.calls >= 60


def test_when_everything_fails_the_error_says_why():
    p = problem()
    with pytest.raises(InfeasibleError, match=r"10 placements tried failed: worker lost: gone") as caught:
        search_placement(p, placer="local_search", budget=10, evaluator=Measuring(p, fails=lambda *_: True))
    assert len(caught.value.ways_out) == 3


def test_a_failure_at_the_last_measurement_loses_nothing():
    p = problem()
    counted = Measuring(p)
    search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=counted)
    last = counted.calls
    for broken in (Measuring(p, fails=lambda number, devices: number == last), Measuring(p, raises=last)):
        placement = search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=broken)
        assert np.isfinite(placement.cost.step_s)
        assert placement.cost.samples is None
        assert placement.cost.source == MEASURED


def test_place_closes_the_evaluator_it_made_and_only_that():
    p = problem()
    made = []

    def make(given):
        made.append(Measuring(given))
        return made[-1]

    tfplace.place(p, placer="single", budget=5, evaluator=make, progress=False)
    assert made[0].closed
    mine = Measuring(p)
    tfplace.place(p, placer="single", budget=5, evaluator=mine, progress=False)
    assert not mine.closed


def test_a_wrong_evaluator_is_refused():
    p = problem()
    with pytest.raises(UnknownNameError, match="grappler, measured, simulated"):
        tfplace.place(p, evaluator="guess", progress=False)
    with pytest.raises(InputError, match="an evaluator of"):
        tfplace.place(p, evaluator=Simulator(replace(p)), progress=False)
