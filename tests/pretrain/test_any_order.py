"""What a policy learns from a graph does not depend on those that its process has learned from before."""

import itertools

import numpy as np
import pytest

from tfplace.learning.placeto_settings import PlacetoSettings
from tfplace.policies.gdp import GdpSettings
from tfplace.pretrain.gdp_pupil import GdpPupil
from tfplace.pretrain.placeto_pupil import PlacetoPupil
from tfplace.pretrain.teacher import Known
from tfplace.simulate.evaluate import Simulator
from tfplace.study.draws import device_share, pick
from tfplace.testing import random_problem

PUPILS = {
    "placeto": lambda: PlacetoPupil(0, PlacetoSettings(groups=64, hidden=16, rounds=3)),
    "gdp": lambda: GdpPupil(0, GdpSettings(hidden=16, heads=2, rounds=2, layers=2, segment=32)),
}
SIZES = ((70, 3), (40, 3), (55, 4))
"""Ops and devices."""


@pytest.mark.parametrize("name", PUPILS)
def test_a_graph_teaches_the_same_first_and_last(name):
    problems = [random_problem(np.random.default_rng(i), *size, ties=False) for i, size in enumerate(SIZES)]
    taught = [{} for _ in SIZES]
    for order in itertools.permutations(range(len(SIZES))):
        pupil = PUPILS[name]()
        for i in order:
            rows = pick(np.random.default_rng(i).random((1, problems[i].num_units)), device_share(problems[i]))[0]
            lesson = pupil.lesson(problems[i], Known(rows, Simulator(problems[i]).key(rows)))
            found = pupil.imitate(lesson, np.random.default_rng(i)).gradients
            taught[i][order] = b"".join(np.asarray(gradient).tobytes() for gradient in found)
    assert [len(set(each.values())) for each in taught] == [1] * len(SIZES)
