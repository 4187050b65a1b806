import numpy as np
import pytest
from hypothesis import given, settings

import tfplace
from tfplace.core.buffers import HELD_ALL_STEP, aliased_input
from tfplace.errors import PlacementError, UnknownNameError
from tfplace.simulation import event
from tfplace.simulation.evaluate import Simulator, simulate_devices, timeline_of
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_graph, random_problem
from tfplace.testing.strategies import placed_problems


@pytest.fixture
def problem():
    graph = make_graph(
        {"w": 0, "read": 8, "matmul": 8, "k": 4},
        ["w -> read", "read -> matmul"],
        variables={"w": 8},
        resource={"w": 0, "read": 0},
        replicable=["k"],
        cpu_only=["matmul"],
    )
    return make_problem(graph, make_topology(2, types=["CPU", "GPU"]), 1e-3)


GOOD = {"w": "GPU:0", "read": "GPU:0", "matmul": "CPU:0", "k": "CPU:0"}


def test_named_devices(problem):
    cost = tfplace.simulate(problem, GOOD)
    assert cost.key == Simulator(problem)(np.array([1, 0])).key
    assert cost.step_s > 3e-3


def test_replicable_constants_may_be_left_out(problem):
    without = {op: device for op, device in GOOD.items() if op != "k"}
    assert simulate_devices(problem, without).key == simulate_devices(problem, GOOD).key


def test_placements_of_other_boxes_and_files_of_them(tmp_path):
    graph = make_graph({"a": 8, "b": 8}, ["a -> b"])
    found = tfplace.place(graph, "2xP100", placer="single", budget=5, progress=False)
    found.save(tmp_path / "placement.json")
    larger = tfplace.formulate(graph, "8xP100")
    for source in (found, tmp_path / "placement.json", str(tmp_path / "placement.json"), found.devices):
        assert tfplace.simulate(larger, source).step_s == found.cost.step_s
    with pytest.raises(PlacementError, match=r"No such file"):
        tfplace.simulate(larger, tmp_path / "none.json")


def test_what_a_rule_keeps_together_is_not_split():
    graph = make_graph({"a": 8, "b": 8}, ["a -> b"])
    problem = tfplace.formulate(graph, "2xP100", constraints=tfplace.Constraints(colocate=[["a", "b"]]))
    tfplace.simulate(problem, {"a": "GPU:0", "b": "GPU:0"})
    with pytest.raises(PlacementError, match=r"a on GPU:0 and b on GPU:1; expected .* a rule keeps together"):
        tfplace.simulate(problem, {"a": "GPU:0", "b": "GPU:1"})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"matmull": "CPU:0"}, PlacementError, "received a device for 'matmull'.*Near names: matmul"),
        ({"matmul": "GPU:0"}, PlacementError, "matmul on GPU:0.*a device that it may be on: CPU:0"),
        ({"read": "CPU:0"}, PlacementError, "w on GPU:0 and read on CPU:0.*one resource, or .* on one device"),
        ({"matmul": "TPU:0"}, UnknownNameError, "device 'TPU:0'.*CPU:0, GPU:0"),
    ],
)
def test_wrong_devices_are_refused(problem, change, error, message):
    with pytest.raises(error, match=message):
        simulate_devices(problem, {**GOOD, **change})


def test_missing_ops_are_refused(problem):
    with pytest.raises(PlacementError, match=r"devices for 1 ops, without read, matmul.*for every op of 'graph'"):
        simulate_devices(problem, {"w": "CPU:0"})


@pytest.mark.parametrize("devices", [[0], [0, 2], [-1, 0]])
def test_wrong_indices_are_refused(problem, devices):
    with pytest.raises(PlacementError):
        Simulator(problem)(devices)
    with pytest.raises(PlacementError):
        Simulator(problem).devices([0, 0, *devices])


def test_one_device_works_without_gaps():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, 50, 3)
        cost = Simulator(problem)(np.full(problem.num_units, 2))
        seconds = problem.costs.compute_s[~problem.graph.replicable, 2].sum()
        assert cost.step_s == pytest.approx(seconds)
        assert cost.compute_s == pytest.approx([0, 0, seconds])
        assert cost.moved_bytes == 0
        assert not cost.transfer_s.any()


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_a_timeline_keeps_its_own_rules(placed):
    problem, unit_device = placed
    op_device = problem.expand(unit_device)
    timeline, cost, graph = timeline_of(problem, op_device), Simulator(problem)(unit_device), problem.graph
    assert timeline.finish_s.max() == cost.step_s
    np.testing.assert_array_equal(timeline.op_device, op_device)
    forward = ~graph.edge_back & ~graph.replicable[graph.edge_src] & ~graph.replicable[graph.edge_dst]
    src, dst = graph.edge_src[forward], graph.edge_dst[forward]
    assert (timeline.finish_s[src] <= timeline.start_s[dst]).all()
    assert timeline.moved_bytes.sum() == cost.moved_bytes
    assert (cost.transfer_s <= cost.step_s + 1e-9).all()
    assert (cost.idle_s >= 0).all()
    for d in range(problem.num_devices):
        assert timeline.memory_bytes[timeline.memory_device == d].max() == cost.peak_bytes[d]
        left = [v.size_bytes for v in graph.variables if op_device[v.op] == d and not graph.replicable[v.op]]
        for t, op in enumerate(graph.tensor_op.tolist()):
            if graph.op_types[op] in HELD_ALL_STEP and op_device[op] == d and not graph.replicable[op]:
                left.append(int(graph.tensor_bytes[t]))
        assert timeline.memory_bytes[timeline.memory_device == d][-1] == sum(left)


def test_the_same_question_has_the_same_answer_whatever_was_asked_between():
    rng = np.random.default_rng(0)
    problem = random_problem(rng, 300, 4, ties=False)
    sim = Simulator(problem)
    placements = [random_devices(rng, problem) for _ in range(10)]
    first = [sim.key(p) for p in placements]
    assert [sim.key(p) for p in reversed(placements)] == first[::-1]
    assert [Simulator(problem)(p).key for p in placements] == first
    assert sim.calls == 20


def test_results_do_not_change_with_later_calls():
    rng = np.random.default_rng(1)
    problem = random_problem(rng, 100, 3)
    sim = Simulator(problem)
    devices = problem.spread(random_devices(rng, problem))
    cost, timeline = sim.devices(devices), sim.timeline(devices)
    peaks, starts = cost.peak_bytes.tolist(), timeline.start_s.tolist()
    sim(np.zeros(problem.num_units, np.int32))
    assert cost.peak_bytes.tolist() == peaks
    assert timeline.start_s.tolist() == starts


def test_key_counts_what_does_not_fit():
    graph = make_graph({"a": 10, "b": 30})
    problem = make_problem(graph, make_topology(2), 1.0, memory_limit=[4, 25])
    assert Simulator(problem).key(np.array([0, 1], np.int32)) == (6 + 5, 1.0)


def test_a_graph_of_constants_alone_takes_no_time():
    problem = make_problem(make_graph({"k": 8}, replicable=["k"]), make_topology(2), 1.0)
    assert Simulator(problem).key(np.zeros(0, np.int32)) == (0, 0.0)
    assert Simulator(problem).timeline([0]).finish_s.tolist() == [0.0]


def test_tensors_of_one_op_may_be_listed_in_any_order():
    graph = make_graph({"a": (1, 2), "b": 0, "c": 0}, ["a:0 -> b", "a:1 -> c"])
    problem = make_problem(graph, make_topology(2), 1.0)
    assert Simulator(problem).timeline([0, 1, 1]).moved_bytes.tolist() == [1, 2]


def test_large_graphs_with_wide_ties():
    graph = random_graph(np.random.default_rng(0), 3000)
    problem = make_problem(graph, make_topology(4, latency=0.0), 0.0)
    sim = Simulator(problem)
    assert sim.key(np.zeros(problem.num_units, np.int32))[1] == 0.0


@pytest.mark.parametrize(
    ("kind", "slot", "position"),
    [("Identity", 0, 0), ("Switch", 1, 0), ("IdentityN", 2, 2), ("Merge", 1, None), ("MatMul", 0, None)],
)
def test_aliases(kind, slot, position):
    assert aliased_input(kind, slot) == position


def test_any_array_of_integers_is_taken_without_compiling_again(problem):
    sim = Simulator(problem)
    expected = sim.key(np.array([1, 0], np.int32))
    compiled = len(event.simulate.signatures)
    frozen = np.array([1, 0], np.int32)
    frozen.setflags(write=False)
    for devices in (frozen, np.array([1, 0]), np.array([1, 5, 0, 5])[::2], [1, 0]):
        assert sim.key(devices) == expected
        assert sim(devices).key == expected
    assert len(event.simulate.signatures) == compiled
