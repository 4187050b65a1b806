"""Where ops stand along the forward pass, and what crosses the cuts between them."""

import numpy as np
import pytest

from tests.stages import MB, layer_of, training_step
from tfplace.schedule.pipeline.forward_order import forward_places
from tfplace.schedule.pipeline.line import make_line
from tfplace.testing import make_problem, make_topology


def places(graph):
    problem = make_problem(graph, make_topology(2))
    found = problem.spread(forward_places(problem, graph.slices))
    return dict(zip(graph.op_names, found.tolist(), strict=True))


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("slices", [1, 3])
def test_all_of_a_layer_has_one_place_and_layers_are_in_order(slices, clipped):
    """Weight, momentum, copies, gradients, sums and updates, also where all gradients are read for their norm."""
    found = places(training_step(slices, [MB, 2 * MB, 3 * MB, 4 * MB], clipped=clipped))
    at = [{place for name, place in found.items() if layer_of(name) == i} for i in range(4)]
    assert [len(places) for places in at] == [1, 1, 1, 1]
    assert [min(places) for places in at] == sorted(min(places) for places in at)


def test_labels_are_where_the_loss_is():
    found = places(training_step(2, [MB] * 4))
    assert found["x"] == found["slice0/net/layer0/MatMul"]
    assert (
        found["y"] == found["slice1/labels"] > found["slice1/net/layer3/MatMul"] or found["y"] == found["slice0/loss"]
    )


def test_seconds_and_bytes_of_a_slice():
    graph = training_step(2, [MB, 4 * MB], activations=100)
    problem = make_problem(graph, make_topology(2), 1.0)
    line = make_line(problem, graph.slices, 100)
    layers = [line.place[problem.grouping.unit_of[graph.index[f"slice0/net/layer{i}/MatMul"]]] for i in range(2)]
    assert line.seconds.sum() == pytest.approx(graph.num_ops * 2 / 2)
    first, second = layers
    cut = slice(first + 1, second + 1)
    np.testing.assert_array_equal(line.size_bytes[0][cut], 100)  # a slice's activations go forward, once
    np.testing.assert_array_equal(line.size_bytes[1][cut], 100)  # and their gradient back
    assert line.parameter_bytes[second] == 4 * MB
    assert line.kept_bytes[second] == (2 + 2) * 4 * MB  # weight and momentum, and each slice's gradient
    assert line.stashed_bytes[first] == 100


def test_stretches_end_where_little_crosses():
    graph = training_step(2, [MB] * 12)
    problem = make_problem(graph, make_topology(2))
    fine, coarse = (make_line(problem, graph.slices, most) for most in (100, 4))
    assert len(coarse.seconds) <= 4 < len(fine.seconds)
    for name in ("seconds", "kept_bytes", "stashed_bytes", "parameter_bytes"):
        np.testing.assert_allclose(getattr(coarse, name).sum(axis=0), getattr(fine, name).sum(axis=0))
