"""Placing whole groups."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.cli.refusing import assert_refused
from tfplace.cli import PLACED, main
from tfplace.core.placer import Placer
from tfplace.errors import InputError, UnknownNameError
from tfplace.local_search.grouped_context import GroupedContext
from tfplace.registry import GROUPERS, PLACERS
from tfplace.search.budget import Budget
from tfplace.search.grouped import OnGroups
from tfplace.search.place import search_placement
from tfplace.search.search import Search
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def chains(length=10):
    names = [f"{c}{i}" for c in "ab" for i in range(length)]
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(length - 1)]
    return make_problem(make_graph(dict.fromkeys(names, 10**9), edges), make_topology(2))


def test_a_group_goes_to_one_device():
    problem = chains()
    placement = search_placement(
        problem, placer="local_search", budget=40, grouper="heavy_edge", groups=2, baselines=()
    )
    assert len({*placement.op_device[:10]}) == len({*placement.op_device[10:]}) == 1
    assert placement.op_device[0] != placement.op_device[10]
    assert placement.cost.step_s == pytest.approx(10.0)
    assert placement.placer.startswith("local_search on groups by heavy_edge (")
    assert placement.notes == ("20 units were placed as 2 groups (heavy_edge)",)


@pytest.mark.parametrize("grouper", [*GROUPERS])
def test_a_budget_that_ends_in_between_leaves_devices_of_units(grouper):
    problem = random_problem(np.random.default_rng(3), num_ops=60, num_devices=3)
    placement = search_placement(problem, placer="local_search", budget=30, grouper=grouper, groups=12, baselines=())
    label = GROUPERS[grouper](problem, 12)
    devices = problem.gather(placement.op_device)
    assert all(len({*devices[label == g]}) == 1 for g in range(label.max() + 1))


def test_units_is_no_grouping():
    problem = random_problem(np.random.default_rng(1), num_ops=40, num_devices=3)
    plain, grouped = (
        search_placement(problem, placer="heft", budget=9, grouper=grouper, baselines=()) for grouper in (None, "units")
    )
    np.testing.assert_array_equal(plain.op_device, grouped.op_device)


def test_fewer_groups_than_sets_of_devices_are_more_groups():
    problem = random_problem(np.random.default_rng(2), num_ops=60, num_devices=4)
    kinds = len(np.unique(problem.allowed, axis=0))
    assert kinds > 1
    placement = search_placement(problem, placer="local_search", budget=9, grouper="merge", groups=1, baselines=())
    assert f"placed as {kinds} groups" in placement.notes[0]


def test_proofs_about_groups_are_no_proofs():
    class Prover(Placer):
        proven_s = 1e9
        notes = ("optimal",)

        def place(self, context):
            assert isinstance(context, GroupedContext)
            return np.zeros(context.problem.num_units, np.int32)

    method = OnGroups(Prover(), "topological", 3)
    assert method.place(Search(chains(), Budget(evaluations=1), 0).context("x")).tolist() == [0] * 20
    assert method.proven_s == 0.0
    assert method.notes[-1] == "of the groups: optimal"


def test_wrong_groupers_and_numbers_are_refused():
    with pytest.raises(UnknownNameError, match="heavy_edge"):
        search_placement(chains(), placer="heft", budget=1, grouper="heavy")
    with pytest.raises(InputError, match="groups=0; expected a whole number of at least 1"):
        search_placement(chains(), placer="heft", budget=1, grouper="heavy_edge", groups=0)


@pytest.mark.parametrize("name", ["auto", "heft", "expert", "local_search"])
def test_any_placer_works_on_groups(name):
    problem = dataclasses.replace(random_problem(np.random.default_rng(5), num_ops=50, num_devices=3))
    context = Search(problem, Budget(evaluations=60), 0)
    devices = context.run(OnGroups(PLACERS[name](), "heavy_edge", 10), name)
    problem.expand(devices)


@pytest.mark.parametrize("name", ["auto", "brkga", "cross_entropy", "local_search"])
def test_what_is_found_with_a_share_of_the_budget_is_the_answer(name):
    problem = random_problem(np.random.default_rng(5), num_ops=50, num_devices=3, unit=1e-3)
    search = Search(problem, Budget(evaluations=700), 0)
    devices = search.run(OnGroups(PLACERS[name](), "heavy_edge", 20), name)
    assert search.evaluator.key(devices) == search.best_key
    assert search.history[0].key > search.best_key


def test_a_share_tells_its_groups_and_no_others():
    whole = GroupedContext(
        Search(chains(), Budget(evaluations=9), 0).context("x"), np.repeat(np.arange(2, dtype=np.int32), 10)
    )
    first, second = whole.share(0.3, "first"), whole.share(0.5, "second")
    inner = first.share(0.5, "inner")
    inner.key(np.array([0, 1], np.int32))
    assert whole.best.tolist() == first.best.tolist() == inner.best.tolist() == [0, 1]
    assert second.best is None
    assert inner.problem is whole.problem


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (["--grouper=heavy"], {"received": "'heavy'", "hint": "'heavy_edge'"}),
        (["--grouper=metis", "--groups=0"], {"received": "--groups=0", "expected": "at least 1"}),
        (["--groups=9"], {"received": "--groups=9", "expected": "a grouper"}),
    ],
)
def test_the_command_says_what_is_wrong_before_it_builds(flags, fields):
    assert_refused(["place", "--model=inception_v3", "--topology=2xP100", "--quiet", *flags], **fields)


def test_the_command_places_groups(tmp_path, capfd):
    chains().graph.save(tmp_path / "chains.npz")
    flags = ["--topology=2xP100", "--placer=local_search", "--budget=20 evaluations", "--grouper=merge", "--groups=2"]
    assert main(["place", f"--model={tmp_path / 'chains.npz'}", "--json", "--quiet", *flags]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    assert facts["placer"] == "local_search on groups by merge (20 evaluations)"
    assert "20 units were placed as 2 groups (merge)" in facts["notes"]


def test_the_critical_path_is_told_in_groups():
    problem = chains(3)
    context = GroupedContext(
        Search(problem, Budget(evaluations=10), 0).context("x"), np.repeat(np.arange(2, dtype=np.int32), 3)
    )
    path = context.critical_path(np.array([0, 1], np.int32))
    assert {*path.unit.tolist()} <= {0, 1}
    assert len(path.unit) == 3
    assert {*path.reader.tolist()} == {-1}
    assert path.seconds.sum() == context._context.best_key[1]
    assert len(path.start) == len(path.finish) == 2
    assert path.start.min() == 0 and path.finish.max() == context._context.best_key[1]
    units = context._context.critical_path(np.repeat(np.arange(2, dtype=np.int32), 3))
    assert path.start.tolist() == [units.start[:3].min(), units.start[3:].min()]
    assert path.finish.tolist() == [units.finish[:3].max(), units.finish[3:].max()]
