"""The contiguous programme: published values, brute force over all contiguous placements, and its order."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.group.arrays import problem_from_arrays
from tfplace.group.dnn_partitioning import load_workload
from tfplace.group.forward import forward_blocks
from tfplace.local_search.devices import single_devices
from tfplace.placers.contiguous import Contiguous
from tfplace.schedule.pipeline.ideals import all_ideals, chain, depth_first_order
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

FOLDER = Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning"
REFERENCE = json.loads((FOLDER / "reference.json").read_text())
LONG = "thr-layer-gnmt-inf"
PUBLISHED = [
    pytest.param(name, marks=[pytest.mark.slow] if name == LONG else [])
    for name in sorted(REFERENCE)
    if name.startswith("thr-")
]


def place(problem, **arguments):
    """The placement's key by the throughput objective, and the placer."""
    placer, evaluator = Contiguous(**arguments), PipelineLoads(problem)
    search = Search(problem, Budget(evaluations=20), 0, evaluator=evaluator)
    devices = search.run(placer, "contiguous")
    problem.expand(devices)
    return evaluator.key(devices), placer


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values(name):
    """What the authors' own programme gives, to all digits."""
    (over, load_s), placer = place(load_workload(FOLDER / "workloads" / f"{name}.json"))
    assert over == 0
    assert load_s * 1e3 == pytest.approx(REFERENCE[name]["values"]["msr_dp"]["value"], abs=1e-6)
    assert "full program" in placer.notes[0]


def test_linearised_values():
    """No better than the full programme's, no worse than what the authors' -linearize gives: 33.03 and 78.65."""
    for name, published in ((LONG, 33.035), ("thr-layer-resnet-train", 78.655)):
        (_, load_s), placer = place(load_workload(FOLDER / "workloads" / f"{name}.json"), ideals=100)
        assert REFERENCE[name]["values"]["msr_dp"]["value"] - 1e-6 <= load_s * 1e3 <= published
        assert placer.notes[0].startswith("contiguous: linearized")


def contiguous_by_definition(count, pairs, devices, order_of_devices):
    """Whether the blocks can be handed from device to device in some order without ever going back."""
    for order in order_of_devices:
        rank = {d: i for i, d in enumerate(order)}
        if all(rank[devices[a]] <= rank[devices[b]] for a, b in pairs):
            return True
    return False


def _check_all(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    pairs = [(a, b) for b in range(count) for a in range(b) if rng.random() < 0.4]
    types = ["CPU", "GPU", "GPU"] if seed % 2 else ["GPU", "GPU", "GPU"]
    topology = make_topology(3, types=types, bandwidth=100.0, latency=float(rng.choice([0.0, 0.3])))
    seconds = rng.choice([0.0, 1.0, 2.0, 3.5], (count, 1)) * np.array([5.0 if types[0] == "CPU" else 1.5, 1.0, 1.0])
    problem = problem_from_arrays(
        seconds, pairs, topology, edge_bytes=40, memory_bytes=rng.integers(0, 30, count), name="tiny"
    )
    limit = [10**6, 60, 60] if seed % 3 == 0 else [10**6] * 3
    problem = make_problem(problem.graph, topology, seconds, memory_limit=limit)
    orders = list(itertools.permutations(range(3)))
    evaluator = PipelineLoads(problem)
    best = min(
        evaluator.key(devices)
        for devices in itertools.product(range(3), repeat=count)
        if contiguous_by_definition(count, pairs, devices, orders)
    )
    key, _ = place(problem)
    if best[0] == 0:
        assert key == (0, pytest.approx(best[1], rel=1e-12))


def test_brute_force():
    """The least largest load of all contiguous placements that fit; hosts, memory, two kinds of accelerators."""
    for seed in range(40):
        _check_all(seed)


def test_by_the_step_time_it_is_evaluated_as_any_placement():
    problem = load_workload(FOLDER / "workloads" / "thr-layer-bert24-inf.json")
    search = Search(problem, Budget(evaluations=5), 0)
    devices = search.run(Contiguous(), "contiguous")
    assert search.best_key == Simulator(problem).key(devices)


def test_ops_that_only_a_host_can_run_do_not_break_the_pipeline():
    graph = make_graph(dict.fromkeys("abcd", 10), ["a -> b", "b -> c", "c -> d"], cpu_only=["b"])
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], bandwidth=1e3)
    problem = make_problem(graph, topology, np.tile([4.0, 1.0, 1.0], (4, 1)))
    (over, load_s), _ = place(problem)
    assert over == 0 and load_s < 4.5


def _check_beside_hosts(seed):
    rng = np.random.default_rng(seed)
    own, count = 2, int(rng.integers(2, 6))
    others, last = range(own, own + count), own + count
    pairs = [(a, b) for b in others for a in range(own, b) if rng.random() < 0.4]
    feeds = [(h, u) for h in range(own) for u in others if rng.random() < 0.5]
    fed = [(u, last) for u in others if rng.random() < 0.3]
    seconds = np.full((last + 1, 3), np.inf)
    seconds[own:last, 1:] = rng.choice([0.5, 1.0, 2.0, 3.5], (count, 1)) * [1.0, 1.5 if seed % 2 else 1.0]
    seconds[:own, 0] = seconds[last, 0] = 0.01
    memory = [10**6, 100, 100] if seed % 3 == 0 else 10**6
    latency = float(rng.choice([0.0, 0.3]))
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], memory=memory, bandwidth=100.0, latency=latency)
    held = [0] * own + [9] * count + [0]
    problem = problem_from_arrays(seconds, [*pairs, *feeds, *fed], topology, edge_bytes=40, memory_bytes=held)
    evaluator = PipelineLoads(problem)
    best = min(
        evaluator.key(devices)
        for devices in itertools.product(*[[0]] * own, *[(1, 2)] * count, [0])
        if contiguous_by_definition(count, pairs, devices, [(1, 2), (2, 1)])
    )
    key, _ = place(problem)
    if best[0] == 0:
        assert key == (0, pytest.approx(best[1], rel=1e-12))


def test_brute_force_beside_ops_that_only_a_host_can_run():
    """What these send and are sent costs time and room, wherever the pieces are cut."""
    for seed in range(30):
        _check_beside_hosts(seed)


@pytest.mark.parametrize("devices", [12, 24])
def test_devices_none_of_which_are_alike_are_few_kinds(devices):
    """Each is a percent slower than the one before: there are 2 ** 24 ways to have used some of them."""
    topology = make_topology(devices, types=["GPU"] * devices, bandwidth=1e12, latency=0.0)
    seconds = np.outer(np.ones(60), 1.01 ** np.arange(devices))
    problem = problem_from_arrays(seconds, [(i, i + 1) for i in range(59)], topology, edge_bytes=1)
    (over, load_s), placer = place(problem)
    assert over == 0 and load_s < 2 * 60 / devices
    assert "full program" in placer.notes[0] or "linearized" in placer.notes[0]


def test_nothing_to_cut_is_said():
    topology = make_topology(2, types=["GPU", "GPU"])
    _, placer = place(problem_from_arrays([[1.0, 2.0]], [], topology))
    assert "nothing to cut" in placer.notes[0]


def test_what_takes_no_time_stays_where_it_may_be():
    """The last op takes none, and may not be where the one before it has to be."""
    topology = make_topology(4, types=["GPU"] * 4, bandwidth=1e12, latency=0.0)
    seconds = [[5, 5, 5, 5], [5, 5, 5, 5], [5, np.inf, np.inf, np.inf], [np.inf, 0, np.inf, np.inf]]
    problem = problem_from_arrays(seconds, [(0, 1), (1, 2), (2, 3)], topology, edge_bytes=1)
    (over, load_s), _ = place(problem)
    assert over == 0 and load_s == pytest.approx(5.0)


def test_devices_of_many_kinds_have_coarser_pieces():
    problem = random_problem(np.random.default_rng(0), 600, 16, unit=1e-3, ties=False)
    run = Search(problem, Budget(evaluations=5), 0, evaluator=PipelineLoads(problem))
    placer = Contiguous()
    assert run.evaluator.key(run.run(placer, "contiguous")) == run.best_key
    assert "stretches of one order" in placer.notes[0]
    single = min(run.evaluator.key(devices) for devices in single_devices(problem))
    assert run.best_key < single


def test_a_pipeline_without_blocks():
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    problem = make_problem(make_graph(dict.fromkeys("abcd", 10), ["a -> b"], cpu_only=["a", "b", "c", "d"]), topology)
    (over, _), _ = place(problem)
    assert over == 0


# ---- the order -------------------------------------------------------------------------------------------------------


def workload(edges, backward, group):
    count = len(group)
    return problem_from_arrays(
        np.ones((count, 2)),
        edges,
        make_topology(2),
        groups=group,
        op_attrs=[{"backward": True} if v in backward else {} for v in range(count)],
    )


def test_backward_ops_go_where_their_forward_ops_go():
    """0 -> 1 -> 2, and back 3 -> 4 -> 5 in the units of 2, 1 and 0."""
    problem = workload([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], {3, 4, 5}, [0, 1, 2, 2, 1, 0])
    block, before = forward_blocks(problem)
    assert block.tolist() == [0, 1, 2]
    assert before.tolist() == [[0, 1], [1, 2]]


def test_a_backward_op_alone_has_the_place_of_its_mirror_image():
    """3 -> 4 -> 5 backward; 4 is in a unit of its own, so it comes between the units of 5 and 3."""
    problem = workload([(0, 1), (1, 3), (3, 4), (4, 5)], {3, 4, 5}, [0, 1, -1, 1, 2, 0])
    block, before = forward_blocks(problem)
    own, first, last = (int(block[problem.grouping.unit_of[v]]) for v in (4, 0, 1))
    assert [first, own] in before.tolist() and [own, last] in before.tolist()


def test_what_comes_before_and_after_is_one_block():
    """Ops 0 and 2 are one unit, and 1 lies between them."""
    problem = workload([(0, 1), (1, 2), (2, 3)], set(), [0, 1, 0, 2])
    block, before = forward_blocks(problem)
    assert block[0] == block[1] != block[2]
    assert before.tolist() == [[block[0], block[2]]]


def test_optimizers_order_nothing_and_join_their_neighbours():
    names = {"w": 4, "x": 4, "y": 4, "gradient_tape/y": 4, "gradient_tape/x": 4, "update": 4, "count": 4}
    edges = ["w -> x", "x -> y", "y -> gradient_tape/y", "gradient_tape/y -> gradient_tape/x"]
    edges += ["gradient_tape/x -> update", "update -> count"]
    problem = make_problem(make_graph(names, edges, resource={"w": 0, "update": 0}), make_topology(2))
    block, _ = forward_blocks(problem)
    unit = problem.grouping.unit_of
    assert block[unit[6]] == block[unit[0]]


# ---- ideals ----------------------------------------------------------------------------------------------------------

ORDERS = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] < p[1]), max_size=10)
        if n > 1
        else st.just([]),
    )
)


@given(ORDERS)
def test_ideals_are_all_sets_that_are_closed_downwards(order):
    count, pairs = order
    before = np.array(pairs, np.int32).reshape(-1, 2)
    found = all_ideals(count, before, 1000)
    expected = {
        subset
        for subset in itertools.product([False, True], repeat=count)
        if all(subset[a] or not subset[b] for a, b in pairs)
    }
    assert {tuple(row) for row in found.member.tolist()} == expected
    assert len(found.member) == len(expected)
    assert np.all(np.diff(found.member.sum(axis=1)) >= 0)
    for i in range(len(found.member)):
        for x in range(found.first[i], found.first[i + 1]):
            grown = found.member[i].copy()
            assert not grown[found.added[x]]
            grown[found.added[x]] = True
            assert np.array_equal(found.member[found.larger[x]], grown)


@given(ORDERS)
def test_depth_first_order_is_topological(order):
    count, pairs = order
    line = depth_first_order(count, np.array(pairs, np.int32).reshape(-1, 2))
    place = np.argsort(line)
    assert sorted(line.tolist()) == list(range(count))
    assert all(place[a] < place[b] for a, b in pairs)
    assert np.array_equal(chain(line).member.sum(axis=1), np.arange(count + 1))


def test_too_many_ideals():
    assert all_ideals(10, np.zeros((0, 2), np.int32), 1023) is None
    assert len(all_ideals(10, np.zeros((0, 2), np.int32), 1024).member) == 1024


def test_work_that_only_a_host_can_do_may_be_most_of_all():
    """It is shared out among nobody; the chain goes on two GPUs, as its variables do not fit on one."""
    seconds = np.array([[100.0, np.inf, np.inf], *[[100.0, 10.0, 10.0]] * 4])
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], bandwidth=1e12, latency=0.0, memory=[2**40, 25, 25])
    problem = problem_from_arrays(seconds, [[1, 2], [2, 3], [3, 4]], topology, memory_bytes=[0, 10, 10, 10, 10])
    (over, load_s), _ = place(problem)
    assert (over, load_s) == (0, 100.0)
    run = Search(problem, Budget(evaluations=100), 0, evaluator=PipelineLoads(problem))
    assert sorted(run.run(Contiguous(), "contiguous").tolist()) == [0, 1, 1, 2, 2]
