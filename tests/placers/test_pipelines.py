"""gpipe, one_f_one_b, pipedream and mixed: where slices and layers of a split step go."""

import dataclasses

import numpy as np
import pytest

from tests.stages import MB, layer_of, training_step
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.slices import Slices
from tfplace.errors import InputError
from tfplace.group.problem import formulate
from tfplace.registry import PLACERS
from tfplace.simulation.evaluate import Simulator
from tfplace.testing.placers import run_placer
from tfplace.testing.problems import make_problem, make_topology, random_problem

PIPELINES = ("gpipe", "one_f_one_b")
ALL = (*PIPELINES, "pipedream", "mixed")


def seconds_of(graph, devices, by_layer=(), speed=1.0):
    """[V, D]: products take what their layer says, everything else next to nothing."""
    found = [by_layer[layer_of(name)] if name.endswith(("MatMul", "dx", "dw")) else 1e-6 for name in graph.op_names]
    return np.array(found)[:, None] * np.broadcast_to(speed, devices)


def place(name, graph, topology, seconds, **arguments):
    problem = make_problem(graph, topology, seconds, **arguments)
    devices = run_placer(PLACERS[name](), problem)
    return problem, dict(zip(graph.op_names, problem.spread(devices).tolist(), strict=True))


def devices_of_layers(found, layers, but=()):
    return [{d for name, d in found.items() if layer_of(name) == i and not name.startswith(but)} for i in range(layers)]


@pytest.mark.parametrize("name", PIPELINES)
def test_all_slices_go_through_stages_that_keep_their_weights(name):
    graph = training_step(4, [MB] * 6, activations=1000)
    problem, found = place(name, graph, make_topology(3), seconds_of(graph, 3, [1e-3] * 6))
    stages = devices_of_layers(found, 6)
    assert [len(devices) for devices in stages] == [1] * 6
    assert stages[0] == stages[1] != stages[2] == stages[3] != stages[4] == stages[5] != stages[0]
    step_s = Simulator(problem).key(problem.gather(np.array([*found.values()])))[1]
    formula_s = (5 + 6 + 6 + 3 * 6) * 1e-3  # layer 0 has no dx
    assert 0.93 * formula_s < step_s < 1.01 * formula_s  # a gradient goes on before those of weights are made


@pytest.mark.parametrize("name", ALL)
def test_a_device_is_left_out_where_that_is_faster(name):
    """Sending a slice's activations would take a second."""
    graph = training_step(2, [MB] * 3, activations=10 * MB)
    _, found = place(name, graph, make_topology(2, bandwidth=1e7), seconds_of(graph, 2, [1e-3] * 3))
    assert len({*found.values()}) == 1


@pytest.mark.parametrize("name", ALL)
def test_a_faster_device_gets_more(name):
    graph = training_step(12, [MB] * 3, activations=1000)
    speed = np.array([1.0, 0.5])
    _, found = place(name, graph, make_topology(2), seconds_of(graph, 2, [1e-3] * 3, speed))
    on = [sum(d == device for op, d in found.items() if op.endswith("MatMul")) for device in range(2)]
    assert on[1] > 1.5 * on[0] > 0


@pytest.mark.parametrize("slices", [1, 2, 7])
@pytest.mark.parametrize("name", ALL)
def test_any_number_of_slices_goes_with_any_number_of_devices(name, slices):
    graph = training_step(slices, [MB] * 5, activations=1000)
    problem, found = place(name, graph, make_topology(4), seconds_of(graph, 4, [1e-3] * 5))
    assert len({*found.values()}) > 1
    assert np.isfinite(Simulator(problem).key(problem.gather(np.array([*found.values()])))[1])


@pytest.mark.parametrize("name", ALL)
def test_the_host_has_no_stage_and_rules_hold(name):
    graph = training_step(3, [MB] * 4, activations=1000)
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    costs = CostTable(seconds_of(graph, 3, [1e-3] * 4, np.array([10.0, 1.0, 1.0])), ("given",) * graph.num_ops)
    rules = Constraints(pin={"*/net/layer0/MatMul": "GPU:1"}, forbid={"net/layer3/w": ["GPU:0"]})
    problem = formulate(graph, topology, costs, rules)
    found = dict(zip(graph.op_names, problem.expand(run_placer(PLACERS[name](), problem)).tolist(), strict=True))
    assert {found[f"slice{k}/net/layer0/MatMul"] for k in range(3)} == {2}
    assert found["net/layer3/w"] == 2
    assert 0 not in {d for op, d in found.items() if op not in {"x", "y"}}


@pytest.mark.parametrize("name", ALL)
def test_weights_are_spread_where_one_device_has_no_room(name):
    graph = training_step(2, [4 * MB, 4 * MB, 4 * MB, 4 * MB], activations=100)
    problem, found = place(
        name, graph, make_topology(2), seconds_of(graph, 2, [1e-3, 1e-6, 1e-6, 1e-6]), memory_limit=[44 * MB] * 2
    )
    assert Simulator(problem).key(problem.gather(np.array([*found.values()])))[0] == 0
    assert len({found[f"net/layer{i}/w"] for i in range(4)}) == 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ALL)
def test_devices_are_allowed_however_a_step_is_split(name, seed):
    """Random graphs with hosts, loops, variables and constants, of which any op may be a copy of any other."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=40, num_devices=1 + seed % 5, tight=seed % 2 == 1)
    names, count = problem.graph.op_names, problem.graph.num_ops
    slice_of = rng.integers(-1, 3, count).astype(np.int32)
    originals = tuple(rng.choice(["", "gradient_tape/"]) + str(rng.choice([op, names[0]])) for op in names)
    slices = Slices(tuple(rng.integers(1, 9, 3).tolist()), slice_of, originals)
    problem = dataclasses.replace(problem, graph=dataclasses.replace(problem.graph, slices=slices))
    problem.expand(run_placer(PLACERS[name](), problem, evaluations=1 + seed % 3))  # refuses what is not allowed


def test_pipedream_replicates_layers_of_few_weights():
    """Three of four devices share the slices of the first layers; the last one, with all the bytes, stands alone."""
    graph = training_step(6, [8, 8, 200 * MB], activations=100)
    _, found = place("pipedream", graph, make_topology(4), seconds_of(graph, 4, [3e-3, 3e-3, 5e-4]))
    shared = [[found[f"slice{k}/net/layer{i}/MatMul"] for k in range(6)] for i in range(3)]
    assert sorted(shared[0]) == sorted(shared[0][:3] * 2) and len({*shared[0]}) == 3
    assert shared[0] == shared[1]
    assert len({*shared[2]}) == 1 and not {*shared[2]} & {*shared[0]}
    assert len({d for name, d in found.items() if layer_of(name) == 2}) == 1


def test_mixed_pairs_neighbors():
    """Two pairs with a wide link in each: a pipeline in each pair for half of the slices, weights between the pairs."""
    wide = dict.fromkeys(((0, 2), (2, 0), (1, 3), (3, 1)), 1000000000000.0)
    narrow = {(a, b): 3e8 for a in range(4) for b in range(4) if a != b} | wide
    graph = training_step(8, [MB // 4, MB // 4], activations=MB)
    _, found = place("mixed", graph, make_topology(4, bandwidth=narrow), seconds_of(graph, 4, [1e-2, 1e-2]))
    used = [[found[f"slice{k}/net/layer{i}/MatMul"] for i in range(2)] for k in range(8)]
    assert all(sorted(pair) in ([0, 2], [1, 3], [0, 0], [1, 1], [2, 2], [3, 3]) for pair in used)
    assert {d for pair in used for d in pair} == {0, 1, 2, 3}


def test_rows_are_looked_up_where_the_table_is():
    graph = training_step(4, [64 * MB, 8], activations=100)
    types = tuple(
        "GatherV2" if name.endswith("layer0/MatMul") else t
        for name, t in zip(graph.op_names, graph.op_types, strict=True)
    )
    graph = dataclasses.replace(graph, op_types=types)
    _, found = place("mixed", graph, make_topology(2), seconds_of(graph, 2, [1e-4, 1e-1]))
    assert {found[f"slice{k}/net/layer0/MatMul"] for k in range(4)} == {found["net/layer0/w"]}


@pytest.mark.parametrize("name", ALL)
def test_the_answer_is_the_same_twice_and_needs_a_split_step(name):
    graph = training_step(2, [MB] * 3)
    first, second = (place(name, graph, make_topology(3), seconds_of(graph, 3, [1e-3] * 3))[1] for _ in range(2))
    assert first == second
    assert len(PLACERS[name].citation) > 20
    whole = make_problem(dataclasses.replace(graph, slices=None), make_topology(2))
    with pytest.raises(InputError, match="slices"):
        run_placer(PLACERS[name](), whole)
