import numpy as np
import pytest

from tfplace.core.stepcost import FAILED_BYTES, Failure, FailureKind, Samples, failed
from tfplace.errors import GraphError


def test_samples_give_median_spread_ratio_and_halves():
    samples = Samples(np.array([4.0, 1.0, 2.0, 3.0]), np.array([2.0, 2.0, 1.0, 1.0]), rejected=3)
    assert samples.median_s == 2.5
    assert samples.spread_s == pytest.approx(1.5)
    assert samples.ratio == pytest.approx(2.5 / 1.5)
    assert samples.halves == (3.0 / 1.5, 2.0 / 1.5)


def test_samples_without_a_reference_split_into_medians():
    samples = Samples(np.array([4.0, 1.0, 2.0]), np.zeros(0))
    assert samples.ratio is None
    assert samples.halves == (3.0, 1.0)
    assert Samples(np.array([4.0]), np.zeros(0)).halves == (4.0, 4.0)


def test_samples_refuse_none_and_a_lone_reference():
    with pytest.raises(GraphError, match="at least one step"):
        Samples(np.zeros(0), np.zeros(0))
    with pytest.raises(GraphError, match="1 reference steps"):
        Samples(np.ones(2), np.ones(1))


def test_a_failed_placement_loses_to_any_that_ran():
    cost = failed(Failure(FailureKind.WORKER_LOST, "task 1 went away", "CPU:1"), np.array([8, 8]), "measured")
    assert not cost.feasible
    assert cost.key == (FAILED_BYTES, np.inf)
    assert cost.key > (10**15, 5.0)
    assert str(cost.failure) == "worker lost on CPU:1: task 1 went away"
