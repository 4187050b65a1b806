"""What every registered placer promises, whatever its method."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.errors import InfeasibleError
from tfplace.group.problem import formulate
from tfplace.placers.base import BudgetSpentError
from tfplace.placers.single import single_device
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.study import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_problem

BUILT_IN = ("auto", "expert", "heft", "local_search", "round_robin", "single")
SEARCHING = ("auto", "local_search")
EVALUATIONS = 150

pytestmark = pytest.mark.parametrize("name", BUILT_IN)


def run(name, problem, *, seed=0, evaluations=EVALUATIONS):
    """[U] what the placer answers, or the best it evaluated when its budget ran out."""
    study = Search(problem, Budget(evaluations=evaluations), seed).study(name)
    with contextlib.suppress(BudgetSpentError):
        return np.asarray(PLACERS[name]().place(study))
    assert study.best is not None
    return study.best


def problem_of(seconds, edges=(), *, topology=None, rules=None, sizes=100, **settings):
    """A problem with given op seconds, and every rule folded in."""
    topology = topology or make_topology(2, bandwidth=1e3, latency=0.0)
    ops = sizes if isinstance(sizes, dict) else dict.fromkeys(seconds, sizes)
    graph = make_graph(ops, edges, **settings)
    table = np.repeat(np.array(list(seconds.values()), float)[:, None], len(topology.devices), axis=1)
    return formulate(graph, topology, CostTable(table, ("given",) * graph.num_ops), rules or Constraints())


@pytest.mark.parametrize("seed", range(6))
def test_random_problems_get_allowed_devices(name, seed):
    problem = random_problem(np.random.default_rng(seed), num_ops=40, num_devices=2 + seed % 3, tight=seed % 2 == 1)
    devices = run(name, problem)
    assert devices.dtype == np.int32
    problem.expand(devices)  # refuses whatever is not allowed


@pytest.mark.parametrize("seed", range(3))
def test_same_seed_same_answer(name, seed):
    problem = random_problem(np.random.default_rng(seed), num_ops=40)
    assert np.array_equal(run(name, problem, seed=seed), run(name, problem, seed=seed))


@pytest.mark.parametrize("evaluations", [1, 2, 7])
def test_smallest_budgets_end_in_a_placement(name, evaluations):
    problem = random_problem(np.random.default_rng(0), num_ops=20)
    problem.expand(run(name, problem, evaluations=evaluations))


def test_pins_forbids_and_colocation(name):
    ops = {f"net/op{i}": 1.0 for i in range(8)}
    rules = Constraints(
        pin={"net/op0": "GPU:1"},
        forbid={"net/op[12]": ["GPU:0", "CPU:*"]},
        colocate=[["net/op3", "net/op6"]],
    )
    topology = make_topology(4, types=["CPU", "GPU", "GPU", "GPU"])
    problem = problem_of(ops, ["net/op0 -> net/op3", "net/op1 -> net/op6"], topology=topology, rules=rules)
    placed = problem.expand(run(name, problem))
    assert placed[0] == 2
    assert set(placed[[1, 2]]) <= {2, 3}
    assert placed[3] == placed[6]


def test_bonded_ops_stay_together(name):
    ops = {"handle": 0.0, "x": 3.0, "read": 1.0, "y": 3.0, "assign": 1.0}
    edges = ["handle -> read", "handle -> assign", "x -> y", "read -> y", "y -> assign"]
    problem = problem_of(
        ops, edges, variables={"handle": 100}, resource={"handle": 0, "read": 0, "assign": 0}, colocation={"x": 1}
    )
    placed = problem.expand(run(name, problem))
    assert len(set(placed[[0, 2, 4]])) == 1


def test_ops_without_an_accelerator_kernel_go_to_the_host(name):
    ops = {"a": 1.0, "text": 1.0, "b": 1.0}
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    problem = problem_of(ops, ["a -> text", "text -> b"], topology=topology, cpu_only=["text"])
    placed = problem.expand(run(name, problem))
    assert placed[1] == 0


def test_the_host_is_a_last_resort(name):
    ops = {f"op{i}": 1.0 for i in range(6)}
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], speed=[0.1, 1, 1])
    graph = make_graph(dict.fromkeys(ops, 100), [f"op{i} -> op{i + 1}" for i in range(5)])
    problem = make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (6, 1)))
    assert 0 not in run(name, problem)


def test_memory_is_honoured_where_it_can_be(name):
    """Four weights of 60 bytes on two devices of 150: two each, or nothing fits."""
    names = [f"layer{i}/w" for i in range(4)]
    ops = {**dict.fromkeys(names, 1.0)}
    problem = problem_of(
        ops,
        topology=make_topology(2, memory=150),
        sizes=dict.fromkeys(names, ()),
        variables=dict.fromkeys(names, 60),
        resource={n: i for i, n in enumerate(names)},
    )
    if name == "single":
        with pytest.raises(InfeasibleError) as error:
            search_placement(problem, placer=name, budget=EVALUATIONS, baselines=())
        assert [(s.device, s.over_bytes) for s in error.value.shortages] == [("GPU:0", 90)]
    else:
        assert search_placement(problem, placer=name, budget=EVALUATIONS, baselines=()).cost.feasible


@pytest.mark.parametrize("devices", [1, 3])
def test_one_op(name, devices):
    problem = problem_of({"only": 1.0}, topology=make_topology(devices))
    assert run(name, problem).shape == (1,)


def test_one_device(name):
    problem = random_problem(np.random.default_rng(2), num_ops=15, topology=make_topology(1, types="CPU"))
    assert set(run(name, problem).tolist()) == {0}


def test_nothing_but_constants(name):
    problem = problem_of({"a": 1.0, "b": 1.0}, replicable=["a", "b"])
    assert set(search_placement(problem, placer=name, budget=5).devices) == {"a", "b"}


def test_disconnected_parts(name):
    problem = problem_of({f"op{i}": 1.0 for i in range(9)}, ["op0 -> op1", "op4 -> op5"])
    problem.expand(run(name, problem))


@pytest.mark.parametrize("seconds", [0.0, 1.0, 1e-12, 1e12])
def test_ties_zeros_and_extremes(name, seconds):
    ops = {f"op{i}": seconds for i in range(10)}
    problem = problem_of(ops, [f"op{i // 2} -> op{i}" for i in range(1, 10)])
    devices = run(name, problem)
    assert np.isfinite(Simulator(problem)(devices).step_s)


def test_loops(name):
    ops = {"enter": 0.0, "merge": 0.0, "body": 1.0, "next": 0.0, "exit": 0.0}
    edges = ["enter -> merge", "merge -> body", "body -> next", "next => merge", "merge -> exit"]
    trips = {"merge": 21.0, "body": 20.0, "next": 20.0}
    problem = problem_of(ops, edges, trips=trips)
    problem.expand(run(name, problem))


def test_cites_its_source(name):
    assert len(PLACERS[name]().citation) > 20


@pytest.mark.parametrize("seed", range(4))
def test_searches_are_never_worse_than_any_single_device(name, seed):
    if name not in (*SEARCHING, "single"):
        return
    problem = random_problem(np.random.default_rng(seed), num_ops=60, num_devices=4, unit=1e-3)
    simulator = Simulator(problem)
    singles = [simulator.key(single_device(problem, d)) for d in range(problem.num_devices)]
    assert simulator.key(run(name, problem)) <= min(singles)


def test_beats_random_placements(name):
    """Two equal chains of heavy ops: what is spent on them must show against placements drawn blindly."""
    ops = {f"{c}{i}": 1.0 for c in "ab" for i in range(10)}
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(9)]
    problem = problem_of(ops, edges, sizes=1000)
    simulator = Simulator(problem)
    rng = np.random.default_rng(0)
    drawn = np.median([simulator(random_devices(rng, problem)).step_s for _ in range(20)])
    if name in (*SEARCHING, "heft"):
        assert simulator(run(name, problem)).step_s <= drawn
