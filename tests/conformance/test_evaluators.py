"""Evaluators keep what all evaluators promise. Grappler's, which takes long to start, has tests of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.measuring import Measuring
from tfplace.core.evaluator import Evaluator
from tfplace.core.stepcost import MEASURED, bare
from tfplace.registry import EVALUATORS, OBJECTIVES
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import random_devices, random_problem
from tfplace.testing.evaluators import EvaluatorSuite


class TestSimulator(EvaluatorSuite):
    @pytest.fixture
    def make(self):
        return Simulator


class TestPipelineLoads(EvaluatorSuite):
    @pytest.fixture
    def make(self):
        return PipelineLoads


class TestMeasured(EvaluatorSuite):
    @pytest.fixture
    def make(self):
        return Measuring


class Least(Evaluator):
    """All that an evaluator needs to have."""

    source = MEASURED

    def __init__(self, problem):
        self.problem = problem

    def __call__(self, unit_device):
        Simulator(self.problem)(unit_device)  # refuses what is no placement
        return bare(1.0 + float(np.sum(unit_device)), self.problem.memory_limit, MEASURED)


class TestLeast(EvaluatorSuite):
    @pytest.fixture
    def make(self):
        return Least


class Wrong(Simulator):
    """One mistake at a time."""

    mistake = ""

    @property
    def bound_s(self):
        return 1e9 if self.mistake == "bound" else 0.0

    def keys(self, unit_devices, limit_s=np.inf):
        over, step_s = super().keys(unit_devices, limit_s)
        return (over[::-1], step_s[::-1]) if self.mistake == "order" else (over, step_s)

    def key(self, unit_device, limit_s=np.inf):
        over, step_s = super().key(unit_device, limit_s)
        return over, step_s * (2.0 if self.mistake == "key" else 1.0)

    def critical_path(self, unit_device):
        path, key = super().critical_path(unit_device)
        return path, (key[0] + 1, key[1]) if self.mistake == "path" else key


@pytest.mark.parametrize(
    ("mistake", "test"),
    [
        ("bound", "test_the_bound_holds"),
        ("order", "test_a_batch_has_the_keys_of_its_rows"),
        ("key", "test_key_is_that_of_the_cost"),
        ("path", "test_the_critical_path_has_the_key_of_its_placement"),
    ],
)
def test_catches(mistake, test):
    problem = random_problem(np.random.default_rng(0), num_ops=30, tight=True, unit=1e-3)
    rng = np.random.default_rng(1)
    rows = np.stack([random_devices(rng, problem) for _ in range(4)])
    wrong = Wrong(problem)
    getattr(EvaluatorSuite(), test)(wrong, rows)
    wrong.mistake = mistake
    with pytest.raises(AssertionError):
        getattr(EvaluatorSuite(), test)(wrong, rows)


@pytest.mark.tensorflow
def test_what_is_registered_is_an_evaluator():
    for registry in (EVALUATORS, OBJECTIVES):
        assert all(issubclass(registry[name], Evaluator) for name in registry)


@pytest.mark.tensorflow
def test_what_is_slow_is_asked_for_a_few_at_once():
    assert EVALUATORS["measured"].batch_limit == 1
    assert EVALUATORS["simulated"].batch_limit is None
