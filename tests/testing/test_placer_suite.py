"""The conformance suite passes a good placer and catches bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.local_search.devices import settle
from tfplace.testing import random_problem
from tfplace.testing.placers import PlacerSuite, run_placer


class LeastLoaded:
    """Every unit on the device that has the fewest so far."""

    citation = "R. L. Graham: Bounds on Multiprocessing Timing Anomalies. SIAM J. Appl. Math. 17(2), 1969."

    def place(self, context):
        problem = context.problem
        load = np.zeros(problem.num_devices)
        devices = np.zeros(problem.num_units, np.int32)
        for unit in range(problem.num_units):
            options = np.flatnonzero(problem.allowed[unit])
            devices[unit] = options[load[options].argmin()]
            load[devices[unit]] += 1
        return devices


class Wrong(LeastLoaded):
    """One mistake at a time."""

    citation = ""

    def __init__(self, mistake):
        self.mistake = mistake
        self.calls = 0

    def place(self, context):
        self.calls += 1
        u = context.problem.num_units
        if self.mistake == "not allowed":
            return np.zeros(u, np.int32)
        if self.mistake == "own dice":
            wanted = np.random.default_rng(self.calls).integers(context.problem.num_devices, size=u)
            return settle(context.problem, wanted.astype(np.int32))
        if self.mistake == "floats":
            return np.zeros(u)
        if self.mistake == "ops":
            return np.zeros(context.problem.graph.num_ops + 1, np.int32)
        if self.mistake == "first device":
            return settle(context.problem, np.zeros(u, np.int32))
        context.problem.costs.compute_s.setflags(write=True)
        context.problem.costs.compute_s[:] = 0
        return super().place(context)


class TestLeastLoaded(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return LeastLoaded()


@pytest.mark.parametrize(
    ("mistake", "test", "arguments"),
    [
        ("not allowed", "test_pin_forbid_and_colocate", ()),
        ("not allowed", "test_everything_pinned", ()),
        ("own dice", "test_same_seed_and_budget_same_answer", (0,)),
        ("floats", "test_disconnected_parts", ()),
        ("ops", "test_loops", ()),
        ("first device", "test_memory_is_honoured_where_it_can_be", ()),
        ("vandal", "test_the_problem_is_left_alone", ()),
        ("vandal", "test_cites_its_source", ()),
    ],
)
def test_catches(mistake, test, arguments):
    with pytest.raises((AssertionError, ValueError)):
        getattr(PlacerSuite(), test)(Wrong(mistake), *arguments)


def test_placers_that_promise_to_beat_single_devices_must():
    suite = PlacerSuite()
    suite.test_never_worse_than_a_single_device(LeastLoaded(), 0)  # no such promise
    suite.beats_singles = True
    with pytest.raises(AssertionError):
        for seed in range(4):
            suite.test_never_worse_than_a_single_device(LeastLoaded(), seed)


def test_an_answer_is_the_best_evaluated_when_the_budget_ends():
    class Patient(LeastLoaded):
        def place(self, context):
            while True:
                context.key(super().place(context))

    problem = random_problem(np.random.default_rng(0), 10)
    study_free = run_placer(LeastLoaded(), problem)
    np.testing.assert_array_equal(run_placer(Patient(), problem, evaluations=5), study_free)
