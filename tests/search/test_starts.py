"""Going on from a placement: from an object, a file or a placer's name, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest

from tfplace.api import place
from tfplace.core.constraints import Constraints
from tfplace.core.search_context import BudgetSpentError
from tfplace.errors import InputError, PlacementError, UnknownNameError
from tfplace.group.arrays import problem_from_arrays
from tfplace.group.problem import formulate
from tfplace.learned.policies.post import Post, PostSettings
from tfplace.local_search.devices import single_devices
from tfplace.local_search.grouped_context import GroupedContext, group_devices
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

POLICIES = (
    "gdp",
    "gdp_scratch",
    "hierarchical",
    "placeto",
    "placeto_scratch",
    "placeto_untrained",
    "policy_gradient",
    "post",
    "post_ce",
    "post_ppo",
    "seq2seq",
)
SEARCHES = ("annealing", "auto", "brkga", "cross_entropy", "hill_climbing", "local_search")


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(3), 80, 3, unit=1e-3, ties=False)


@pytest.fixture(scope="module")
def good(problem):
    return place(problem, placer="local_search", budget=4000, baselines=())


def test_which_placers_support_warm_starts():
    able = [name for name in PLACERS if PLACERS[name].accepts_starts]
    assert able == sorted([*SEARCHES, *POLICIES, "load_search"])


@pytest.mark.parametrize("name", SEARCHES)
def test_the_result_is_never_worse(problem, good, name):
    again = place(problem, placer=name, budget=20, init=good, baselines=())
    assert again.cost.key <= good.cost.key


def test_a_file_says_the_same_as_the_placement(problem, good, tmp_path):
    good.save(tmp_path / "placement.json")
    results = [
        place(problem, placer="auto", budget=50, init=init, baselines=())
        for init in (good, tmp_path / "placement.json", str(tmp_path / "placement.json"))
    ]
    assert len({tuple(r.op_device.tolist()) for r in results}) == 1


def test_a_placer_by_name(problem):
    heft = place(problem, placer="heft", budget=10, baselines=())
    assert place(problem, placer="hill_climbing", budget=5, init="heft", baselines=()).cost.key <= heft.cost.key


def test_auto_says_what_was_given(problem, good):
    assert any("given 1" in note for note in place(problem, budget=50, init=good, baselines=()).notes)


def test_groups_go_on_from_it_too(problem, good):
    alone = place(problem, placer="hill_climbing", budget=1, grouper="units", init=good, baselines=())
    assert alone.cost.key == good.cost.key  # groups of one unit lose nothing


def test_groups_without_work_lie_where_most_of_their_units_are():
    graph = make_graph({"a": 8, "b": 8, "c": 8}, [])
    problem = make_problem(graph, make_topology(2), np.zeros((3, 2)))
    grouped = GroupedContext(Search(problem, Budget(evaluations=1), 0).context("x"), np.array([0, 0, 0], np.int32))
    assert grouped.group(np.array([1, 0, 1], np.int32)).tolist() == [1]


def test_a_file_of_something_else_is_refused(problem, tmp_path):
    path = tmp_path / "graph.npz"
    path.write_bytes(b"\x93\xff\x00")
    with pytest.raises(InputError, match="which is not text; expected a placement file"):
        place(problem, init=path)


def test_ctrl_c_while_another_placer_makes_the_start(problem):
    class Stopped:
        def place(self, context):
            context.key(np.zeros(context.problem.num_units, np.int32))
            raise KeyboardInterrupt

    PLACERS.add("stopped", Stopped)
    with pytest.raises(KeyboardInterrupt):
        place(problem, placer="hill_climbing", init="stopped")


def test_groups_lie_where_their_units_spend_most():
    graph = make_graph({"a": 8, "b": 8, "c": 8, "d": 8}, ["a -> b", "b -> c", "c -> d"])
    problem = make_problem(graph, make_topology(2), np.array([[1.0, 1.0], [5.0, 5.0], [1.0, 1.0], [2.0, 2.0]]))
    context = Search(problem, Budget(evaluations=1), 0).context("test")
    grouped = GroupedContext(context, np.array([0, 0, 1, 1], np.int32))
    assert grouped.group(np.array([0, 1, 0, 1], np.int32)).tolist() == [1, 1]
    assert grouped.group(np.array([1, 0, 0, 1], np.int32)).tolist() == [0, 1]


def test_a_placer_without_warm_starts_is_refused(problem, good):
    with pytest.raises(InputError) as error:
        place(problem, placer="heft", init=good)
    assert error.value.received == "init with placer 'heft'"
    assert error.value.expected == "a placer that supports warm starts"
    assert error.value.hint.startswith("These placers support warm starts: annealing, auto, brkga, ")
    with pytest.raises(UnknownNameError):
        place(problem, placer="no_such", init=good)


def test_a_name_that_is_neither_placer_nor_file(problem):
    with pytest.raises(InputError, match=r"init='heftt'.*a placement file.*heft"):
        place(problem, init="heftt")


def test_a_placement_of_another_graph_or_against_the_rules(problem, good):
    other = make_problem(make_graph({"a": 8, "b": 8}, ["a -> b"]), make_topology(2), 1.0)
    with pytest.raises(PlacementError, match="placement of graph"):
        place(other, init=good)
    graph, topology = other.graph, other.topology
    free = place(other, placer="single", budget=2, baselines=())
    where = free.devices["a"]
    ruled = formulate(graph, topology, other.costs, Constraints(forbid={"a": [where]}))
    with pytest.raises(PlacementError, match=f"a on {where}"):
        place(ruled, init=free)


@pytest.mark.tensorflow
def test_policies_on_groups_are_no_worse_than_what_groups_cannot_say(problem, good, logical_cpus):
    search = Search(problem, Budget(evaluations=20), 0)
    known = problem.gather(good.op_device)
    with contextlib.suppress(BudgetSpentError):
        Post(starts=[known], settings=PostSettings(groups=4)).place(search.context("post"))
    assert search.best_key <= good.cost.key


def test_a_group_goes_where_all_of_its_units_may_be():
    problem = random_problem(np.random.default_rng(0), 6, 2)
    allowed = problem.allowed.copy()
    allowed[:] = True
    allowed[0] = [True, False]
    problem = dataclasses.replace(problem, allowed=allowed)
    label = np.zeros(problem.num_units, np.int32)
    devices = np.ones(problem.num_units, np.int32)
    assert group_devices(problem, label, devices).tolist() == [0]


def test_the_fastest_device_is_that_on_which_what_may_be_there_is_quickest():
    """GPU:1 may run one op alone, for which it takes long."""
    seconds = np.array([[1.0, 5.0], *[[1.0, np.inf]] * 9])
    problem = problem_from_arrays(seconds, [[i, i + 1] for i in range(9)], make_topology(2))
    assert single_devices(problem)[0].tolist() == [0] * 10
    assert place(problem, placer="auto", budget=1, baselines=()).cost.step_s == 10.0


@pytest.mark.parametrize("wrong", [[-1] * 80, [3] * 80, [0] * 79, [0.5] * 80])
def test_a_critical_path_of_what_is_no_placement_is_refused(problem, wrong):
    context = Search(problem, Budget(evaluations=5), 0).context("x")
    with pytest.raises(PlacementError):
        context.critical_path(np.array(wrong))
    assert context.critical_path([0] * problem.num_units) is not None


def test_a_baseline_comes_to_its_end_where_memory_is_tight():
    """Twenty plans with six amounts of memory: the least, made last, is the likeliest to fit."""
    problem = random_problem(np.random.default_rng(2), 400, 4, unit=1e-3)
    peak = place(problem, placer="heft", budget=1000, baselines=()).cost.peak_bytes
    tight = dataclasses.replace(problem, memory_limit=np.full_like(problem.memory_limit, int(0.58 * peak.max())))
    placement = place(tight, placer="heft", budget=1000, baselines=("heft",))
    assert placement.baselines["heft"].feasible
    assert placement.baselines["heft"].step_s == placement.cost.step_s
