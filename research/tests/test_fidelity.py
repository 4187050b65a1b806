import json

import numpy as np
import pytest

from research.fidelity.predictions import fidelity
from tests.measuring import Measuring, problem
from tfplace.errors import InputError
from tfplace.simulation.evaluate import Simulator
from tfplace.testing.variety import variety


def run(**fails):
    p = problem()
    named = variety(p, randoms=3, searches=(20,))
    seen = []
    told = []
    evaluator = Measuring(p, **fails)
    result = fidelity(
        p,
        Simulator(p),
        evaluator,
        named,
        reference="single GPU:0",
        progress=lambda done, total: told.append((done, total)),
    )
    seen += told
    return named, result, seen


def test_a_measurement_that_agrees_is_found_to_agree():
    named, result, told = run()
    assert [row.name for row in result.rows] == list(named)
    assert told == [(i + 1, len(named)) for i in range(len(named))]
    simulated, measured = result.ratios()
    assert simulated[0] == 1
    assert np.all(np.array(measured) == 1)  # the double's reference step is as long as each step
    data = json.loads(json.dumps(result.to_dict()))
    assert data["graph"] == "graph"
    assert len(data["placements"]) == len(named)


def test_failed_placements_are_left_out_and_listed():
    named, result, _ = run(fails=lambda number, devices: number % 3 == 0)
    assert 0 < len(result.ran) < len(named)
    data = result.to_dict()
    assert set(data["failed"].values()) == {"worker lost: gone"}
    assert len(data["failed"]) + len(data["placements"]) == len(named)


def test_an_evaluator_without_a_reference_is_refused():
    p = problem()
    named = variety(p, randoms=3, searches=(20,))
    with pytest.raises(InputError, match="without a reference"):
        fidelity(p, Simulator(p), Measuring(p, reference=False), named, reference="single GPU:0").ratios()
