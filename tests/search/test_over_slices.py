"""How many slices are best: what is tried, what is told of it, and what cannot be asked."""

import dataclasses

import keras
import numpy as np
import pytest

import tfplace
from tests.placers.test_data_parallel import split_step
from tfplace.core.compilation import NONE, XLA
from tfplace.core.constraints import match_ops
from tfplace.core.placement import COMPILED, UNSPLIT
from tfplace.errors import ConstraintError, InfeasibleError, InputError, SplitError
from tfplace.options import SearchOptions
from tfplace.registry import PLACERS
from tfplace.search import over_slices
from tfplace.search.over_slices import place_over_slices
from tfplace.search.place import search_placement
from tfplace.search.slice_starts import USUAL, slice_starts
from tfplace.search.starts import quickly_placed
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options
from tfplace.testing.problems import make_problem, make_topology

WORK_S = 12.0
"""Seconds of the per-example ops of the whole batch, on any device."""


def problem_in(sizes, topology, seconds_of=lambda k: WORK_S, slower=()):
    graph = split_step(len(sizes), [2**20] * 3)
    graph = dataclasses.replace(graph, slices=dataclasses.replace(graph.slices, sizes=sizes))
    share = np.append(np.array(sizes) / sum(sizes) / 3, 0.0)[graph.slices.slice_of]
    seconds = share * seconds_of(len(sizes)) + 1e-6
    return make_problem(graph, topology, seconds[:, None] * np.array(slower or [1.0] * len(topology.devices)))


def tried(topology, seconds_of, most=64, placer="auto", *, slower=(), budget="400 evaluations", stop=None, unfit=()):
    """The answer, and the numbers of slices in the order in which they were read.

    Args:
      stop: is told of each search.
      unfit: numbers of slices that fit no device.
    """
    numbers, stop = [], stop or (lambda options: None)

    def read(k):
        numbers.append(k)
        sizes = k if isinstance(k, tuple) else (4,) * (k or 1)
        if len(sizes) > most:
            raise SplitError(f"{k} slices of a batch of {most}", f"1 to {most} slices")
        problem = problem_in(sizes, topology, seconds_of, slower)
        return dataclasses.replace(problem, memory_limit=problem.memory_limit // 2**40) if k in unfit else problem

    def search(problem, options):
        stop(options)
        return search_placement(problem, **options.given() | {"evaluator": None, "progress": None})

    options = SearchOptions.of("place", {"placer": placer, "budget": budget, "baselines": ()}).check()
    return place_over_slices(read, search, options), numbers


def slices_of(placement):
    return len(placement.problem.graph.slices.sizes)


def test_as_many_slices_as_devices_are_tried_and_twice_as_many():
    assert tried(make_topology(4), lambda k: WORK_S)[1] == [None, 4, 8]
    placement, numbers = tried(make_topology(3), lambda k: WORK_S)
    assert numbers == [None, 3, 6, 2, 4] and slices_of(placement) in {3, 6}  # 2 and 4 as on two devices
    assert placement.placer == "auto (400 evaluations)"
    assert WORK_S / 3 <= placement.cost.step_s < 1.1 * WORK_S / 3


def test_twice_as_many_are_not_read_of_a_large_step(monkeypatch):
    ops = problem_in((4,), make_topology(4)).graph.num_ops
    monkeypatch.setattr(over_slices, "_MOST_OPS", 8 * ops - 1)
    placement, numbers = tried(make_topology(4), lambda k: WORK_S)
    assert numbers == [None, 4]
    assert any("8 slices: not tried" in note for note in placement.notes)


def test_the_step_stays_whole_where_slices_take_longer():
    placement, _ = tried(make_topology(3), lambda k: WORK_S * k**2)
    assert slices_of(placement) == 1
    assert not any(name.endswith(UNSPLIT) for name in placement.baselines)


def test_what_one_device_takes_is_told_of_the_whole_step():
    placement, _ = tried(make_topology(3), lambda k: WORK_S * (1.2 if k > 1 else 1.0))
    assert slices_of(placement) > 1
    name, cost = placement.best_single
    assert name.endswith(UNSPLIT) and cost.step_s == pytest.approx(WORK_S, rel=0.01)


def test_devices_of_unlike_speeds_are_tried_with_their_shares_of_the_examples():
    placement, numbers = tried(make_topology(3), lambda k: WORK_S, slower=(1.0, 1.0, 2.0))
    assert numbers == [None, 3, (5, 5, 2), 6, 2, 4]
    assert placement.cost.step_s < 1.1 * WORK_S * 5 / 12


def test_numbers_that_the_batch_does_not_have_are_passed_over():
    placement, numbers = tried(make_topology(3), lambda k: WORK_S, most=4)
    assert numbers == [None, 3, 6, 2, 4] and slices_of(placement) == 3


def test_one_device_takes_slices_only_where_the_whole_does_not_fit():
    assert tried(make_topology(1), lambda k: WORK_S)[1] == [None]
    with pytest.raises(InfeasibleError):
        tried(make_topology(1, memory=2**20), lambda k: WORK_S)


def test_other_numbers_are_tried_where_none_that_suits_the_devices_fits():
    assert tried(make_topology(3), lambda k: WORK_S, unfit=(3,))[1] == [None, 3, 6, 2, 4]
    placement, numbers = tried(make_topology(3), lambda k: WORK_S, unfit=(None, 3, 6, 2, 4))
    assert numbers == [None, 3, 6, 2, 4, 8] and slices_of(placement) == 8


@pytest.mark.parametrize("budget", ["1 evaluation", "0.001s", "400 evaluations"])
def test_no_answer_is_worse_than_what_users_would_take(budget):
    topology = make_topology(3)
    placement, _ = tried(topology, lambda k: WORK_S, budget=budget)
    for k in (3, 6):
        problem = problem_in((4,) * k, topology)
        for placer, order in (("data_parallel", "by_use"), ("gpipe", "gpipe"), ("one_f_one_b", "1f1b")):
            judge = Simulator(problem, Options(phase_orders=(order,)))
            usual = judge.key(quickly_placed(problem, PLACERS[placer](), 0, judge))
            assert placement.cost.key <= usual


def test_what_users_would_take_is_the_answer_where_searches_find_nothing_that_fits():
    def stop(options):
        raise InfeasibleError("too large", [], ())

    placement, _ = tried(make_topology(3), lambda k: WORK_S, stop=stop)
    assert placement.placer.split(" (")[0] in USUAL


def test_a_placer_that_takes_no_start_is_run_once_for_each_number():
    placement, numbers = tried(make_topology(2), lambda k: WORK_S, placer="heft")
    assert numbers == [None, 2, 4] and placement.cost.feasible


def test_a_placer_of_split_steps_gets_no_whole_step():
    placement, numbers = tried(make_topology(2), lambda k: WORK_S, placer="one_f_one_b")
    assert numbers == [None, 2, 4] and slices_of(placement) > 1
    with pytest.raises(SplitError):
        tried(make_topology(2), lambda k: WORK_S, placer="one_f_one_b", most=1)


def test_a_step_that_cannot_be_split_is_tried_once():
    assert tried(make_topology(3), lambda k: WORK_S, most=1)[1] == [None, 3]
    with pytest.raises(InfeasibleError):
        tried(make_topology(1, memory=2**20), lambda k: WORK_S, most=1)


@pytest.mark.parametrize("slower", [(), (1.0, 1.0, 2.0)])
def test_searches_and_what_they_start_from_together_take_the_budget(slower, monkeypatch):
    parts = []

    def counted(*args):
        starts = slice_starts(*args)
        parts.append(starts.evaluations)
        return starts

    monkeypatch.setattr(over_slices, "slice_starts", counted)
    tried(make_topology(3), lambda k: WORK_S, slower=slower, stop=lambda options: parts.append(options.budget))
    assert sum(parts) == pytest.approx(400, abs=len(parts))


def test_parts_of_a_short_budget_are_budgets():
    assert tried(make_topology(2), lambda k: WORK_S, budget="0.001s")[0].cost.feasible


@pytest.mark.parametrize("last", [1, 4])
def test_the_best_until_an_interruption_or_an_answer_that_does_not_fit_is_kept(last):
    searches = []

    def stop(options):
        searches.append(options)
        if len(searches) > last:
            raise KeyboardInterrupt if last == 1 else InfeasibleError("too large", [], ())

    placement, _ = tried(make_topology(3), lambda k: WORK_S, slower=(1.0, 1.0, 2.0), stop=stop)
    assert placement.cost.feasible and slices_of(placement) == 3
    assert any(note.startswith("interrupted") for note in placement.notes) == (last == 1)


@pytest.mark.parametrize("ran", [NONE, XLA])
def test_a_start_that_stays_the_best_is_run_as_it_was_simulated(ran):
    """Though the search after it ends with a slower placement, run the other way."""

    def read(sizes):
        problem = problem_in((4,) * (sizes or 1), make_topology(2))
        return dataclasses.replace(problem, compile=ran, other_costs=problem.costs)

    def search(problem, options):
        found = search_placement(problem, placer="round_robin", budget=1, baselines=(), compile=ran)
        cost = dataclasses.replace(found.cost, step_s=10 * WORK_S)
        other = problem.otherwise
        return dataclasses.replace(found, problem=other, compile=other.compile, cost=cost)

    options = SearchOptions.of("place", {"budget": "10 evaluations", "baselines": ()}).check()
    placement = place_over_slices(read, search, options)
    assert placement.compile == placement.problem.compile == ran
    assert tfplace.simulate(placement.problem, placement).step_s == placement.cost.step_s


def placed_model(budget, **options):
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    batch = np.zeros((8, 64), np.float32), np.zeros((8, 1), np.float32)
    return tfplace.place(model, "2xP100", batch=batch, slices="auto", budget=budget, progress=False, **options)


def test_a_model_is_placed_in_as_many_slices_as_are_best():
    placement = placed_model("300 evaluations")
    op_by_op = [
        cost.step_s for name, cost in placement.baselines.items() if not name.endswith((COMPILED, COMPILED + UNSPLIT))
    ]
    assert len(op_by_op) > 4
    assert placement.cost.step_s <= min(op_by_op)


def test_rules_on_ops_of_slices_hold_where_there_are_such():
    rules = tfplace.Constraints(pin={"slice1/*": "GPU:1"}, colocate=[["slice3/*"]])
    placement = placed_model("8 evaluations", placer="data_parallel", constraints=rules)
    graph = placement.problem.graph
    pinned = {placement.devices[graph.op_names[v]] for v in match_ops("slice1/*", graph) if not graph.replicable[v]}
    assert pinned == {"GPU:1"}


@pytest.mark.parametrize("pattern", ["slice4/*", "slice1/none/*", "none/*"])
def test_rules_that_match_nothing_in_any_number_of_slices_are_refused(pattern):
    with pytest.raises(ConstraintError) as refused:
        placed_model("8 evaluations", placer="data_parallel", constraints=tfplace.Constraints(pin={pattern: "GPU:1"}))
    assert repr(pattern) in refused.value.received


@pytest.mark.parametrize("beside", [{"run_dir": "run"}, {"init": "heft"}, {"evaluator": "measured"}])
def test_what_is_of_one_number_of_slices_is_refused(beside, tmp_path):
    with pytest.raises(InputError):
        tfplace.place(None, "2xP100", slices="auto", **beside)


def test_a_comparison_and_a_graph_have_one_number_of_slices():
    with pytest.raises(InputError):
        tfplace.compare(None, "2xP100", slices="auto")
    with pytest.raises(SplitError):
        tfplace.extract(None, slices="auto")
