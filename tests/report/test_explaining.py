"""Why a row is taken and where its layers are, by hand; what is shown of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests import splitting
from tests.search.plans import layers, plan_of
from tfplace.core.compilation import XLA
from tfplace.core.explanation import LITTLE
from tfplace.core.plan import Plan, PlanRow
from tfplace.errors import InputError
from tfplace.report.explaining import ELSEWHERE, layer_uses
from tfplace.report.explanation_table import explanation_facts, where
from tfplace.search.place import placement_of
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_problem, make_topology

SECONDS = {"net/dense/mul": 1.0, "net/out/mul": 2.0, "loss": 0.5, "gradient_tape/net/out/grad": 3.0}
SECONDS |= {"gradient_tape/net/dense/grad": 4.0}


def placed(graph, device_of, compile="none"):
    """A placement by name: the first device whose key is in an op's name, or GPU:0."""
    problem = replace(make_problem(graph, make_topology(2, bandwidth=8.0, latency=0.0), SECONDS), compile=compile)
    names = [graph.op_names[members[0]] for members in problem.grouping.members]
    units = np.array([next((d for key, d in device_of.items() if key in name), 0) for name in names], np.int32)
    cost = Simulator(problem)(units)
    return placement_of(problem, units, cost, bound_s=0.0, placer="hand", seed=0, baselines={})


def plan_with(*placements):
    """Rows "placed", "gpipe" and so on of placements."""
    ways = ("placed", "gpipe", "one_f_one_b")
    rows = [
        PlanRow(way, (), one.problem.compile, one.cost, placement=one)
        for way, one in zip(ways, placements, strict=False)
    ]
    return Plan(tuple(rows), "net", "made", 8)


def test_the_critical_path_by_layer_link_and_device():
    """The forward pass of "out" and the backward pass of all are on the other device, to which 8 bytes take 1 s."""
    found = plan_with(placed(splitting.whole(), {}), placed(splitting.whole(), {"out": 1, "loss": 1})).explain()
    assert found.chosen.step_s == 10.5 and found.chosen.layers == {"dense": 5.0, "out": 5.0, ELSEWHERE: 0.5}
    assert found.against.layers == found.chosen.layers
    assert found.against.step_s == 12.5 and found.against.seconds(sends=True) == 2.0
    text = found.summary()
    assert "placed against gpipe: 2.00 s less a step; on its critical path 0 s less computing and 2.00 s less" in text


def test_clusters_share_their_seconds_among_their_layers():
    compiled = placed(splitting.whole(), {"out": 1, "loss": 1}, compile=XLA)
    (row,) = plan_with(compiled).rows
    found = plan_with(compiled).explain()
    assert sum(found.chosen.layers.values()) == pytest.approx(sum(one.seconds for one in row.waits if not one.sends))
    assert found.chosen.layers["out"] == pytest.approx(5.0)


def test_layers_and_their_devices_and_slices():
    (both,) = layer_uses(placed(splitting.split(), {"slice1/": 1, "net/out/v": 1}))
    assert (both.layers, both.devices, both.owners) == (
        ("dense", "out"),
        {"GPU:0": (0,), "GPU:1": (1,)},
        ("GPU:0", "GPU:1"),
    )
    assert where(both) == "GPU:0 slice 0, GPU:1 slice 1; variables on all of these"
    dense, out = layer_uses(placed(splitting.split(), {"out/": 1, "loss": 1, "net/out": 1}))
    assert where(dense) == "GPU:0 slices 0-1; variables on GPU:0"
    assert where(out) == "GPU:1 slices 0-1; variables on GPU:1"
    together = layer_uses(placed(splitting.whole(), {}))
    assert [(use.name, use.devices, use.owners) for use in together] == [("dense ... out (2)", {"GPU:0": ()}, ())]
    assert together[0].seconds == pytest.approx(10.0)


def test_what_is_said_is_the_same_in_tables_and_as_data():
    plan = plan_of(layers(make_topology(2, bandwidth=1.0, latency=0.0), [4.0, 4.0], [1, 1]))
    found = plan.explain()
    facts = json.loads(json.dumps(explanation_facts(found)))
    assert facts["advice"] == found.advice and facts["advice"] in found.summary()
    assert {one["change"] for one in facts["changes"]} == {one.change for one in found.changes}
    assert facts["chosen"]["name"] == plan.chosen.name


def test_nothing_helps_is_an_answer():
    found = plan_of(layers(make_topology(1), [4.0], [4])).explain()
    little = replace(found, changes=tuple(replace(one, gain=LITTLE / 2) for one in found.changes))
    assert little.advice == "no change helps more than 0.5 %"


def test_a_loaded_plan_is_not_explained(tmp_path):
    plan_of(layers(make_topology(1), [4.0], [4])).save(tmp_path)
    with pytest.raises(InputError, match="a plan made in this process"):
        Plan.load(tmp_path).explain()
