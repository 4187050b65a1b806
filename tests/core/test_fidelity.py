"""Error bands are those of the measured steps, and a problem has that of its costs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.pages import ROOT
from tfplace.core.compilation import NONE, XLA
from tfplace.core.costs import CostTable
from tfplace.core.fidelity import BANDS, CALIBRATED, MEASURED_ON, PROFILED, error_band
from tfplace.testing import make_graph, make_problem, make_topology


def read(name):
    return json.loads((ROOT / "research" / "data" / name).read_text())


def of_placements(name):
    tried = [one for experiment in read(name)["experiments"] for one in experiment["placements"]]
    return [one["simulated_s"] / one["measured_s"] - 1 for one in tried]


def of_steps(said, column):
    return [
        step[said] / np.median(np.array(step["turns"])[:, column]) - 1 for step in read("compiled_costs.json")["steps"]
    ]


MEASURED = {
    (PROFILED, NONE): lambda: of_placements("fidelity.json"),
    (PROFILED, XLA): lambda: of_placements("fidelity_compiled.json"),
    (CALIBRATED, NONE): lambda: of_steps("analytic op by op", 0),
    (CALIBRATED, XLA): lambda: of_steps("analytic", 1),
}


@pytest.mark.parametrize("costs", BANDS)
def test_bands_are_those_of_the_measured_steps(costs):
    band, errors = BANDS[costs], np.abs(MEASURED[costs]())
    assert band.steps == len(errors)
    assert [band.median, band.most] == pytest.approx([np.median(errors), np.percentile(errors, 90)], abs=5e-4)
    assert costs[0] in str(band)


@pytest.mark.parametrize(
    ("source", "provenance", "compile", "expected"),
    [
        ("", ("analytic:matmul", "analytic:add"), NONE, None),
        (f"{MEASURED_ON}some day", ("analytic:matmul", "analytic:add"), NONE, (CALIBRATED, NONE)),
        (f"{MEASURED_ON}some day", ("profiled", "analytic:add"), XLA, (CALIBRATED, XLA)),  # half of the seconds
        ("", ("profiled", "profiled:pooled over 3"), XLA, (PROFILED, XLA)),
        ("", ("profiled", "profiled on CPU:0; analytic:add on GPU:0"), NONE, None),
    ],
)
def test_a_problem_has_the_band_of_its_costs(source, provenance, compile, expected):
    problem = make_problem(make_graph({"a": 4, "b": 4}), replace(make_topology(2), source=source))
    costs = CostTable(np.ones((2, 2)), provenance)
    assert error_band(replace(problem, costs=costs, compile=compile)) == (expected and BANDS[expected])
