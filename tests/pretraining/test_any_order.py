"""What a policy learns from a graph does not depend on those that its process has learned from before."""

import numpy as np
import pytest

from tfplace.learned.policies.gdp import GdpSettings
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.local_search.sampling import device_share, pick
from tfplace.pretraining.teacher import Known
from tfplace.pretraining.trainable_gdp import TrainableGdp
from tfplace.pretraining.trainable_placeto import TrainablePlaceto
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem

PUPILS = {
    "placeto": lambda: TrainablePlaceto(0, PlacetoSettings(groups=64, hidden=16, rounds=3)),
    "gdp": lambda: TrainableGdp(0, GdpSettings(hidden=16, heads=2, rounds=2, layers=2, segment=32)),
}
SIZES = ((70, 3), (55, 4))
"""Ops and devices."""

ORDERS = ((0, 1), (1, 0))
"""Each comes first and last."""


@pytest.mark.parametrize("name", PUPILS)
def test_a_graph_teaches_the_same_first_and_last(name):
    problems = [random_problem(np.random.default_rng(i), *size, ties=False) for i, size in enumerate(SIZES)]
    taught = [{} for _ in SIZES]
    for order in ORDERS:
        trainable = PUPILS[name]()
        for i in order:
            rows = pick(np.random.default_rng(i).random((1, problems[i].num_units)), device_share(problems[i]))[0]
            lesson = trainable.lesson(problems[i], Known(rows, Simulator(problems[i]).key(rows)))
            found = trainable.imitate(lesson, np.random.default_rng(i)).gradients
            taught[i][order] = b"".join(np.asarray(gradient).tobytes() for gradient in found)
    assert [len(set(each.values())) for each in taught] == [1] * len(SIZES)
