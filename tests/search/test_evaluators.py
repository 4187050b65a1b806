"""Searches with an evaluator that is not the simulator: it may fail, and its answers are not repeatable."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import tfplace
from tests.measuring import Measuring, problem
from tfplace.core.placement import Placement
from tfplace.core.stepcost import MEASURED
from tfplace.errors import ApplyError, InfeasibleError, InputError, UnknownNameError
from tfplace.report.facts import placement_facts
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator


def test_the_search_minimises_what_the_evaluator_says_and_reports_both():
    p = problem()
    placement = search_placement(p, placer="local_search", budget=40, evaluator=Measuring(p))
    assert placement.cost.source == MEASURED
    assert placement.simulated is not None
    assert placement.predicted is placement.simulated
    assert all(cost.source == MEASURED for cost in placement.baselines.values())
    assert "measured step time" in placement.summary()
    assert "interquartile range" in placement.summary()
    assert "1 disturbed steps left out" in placement.summary()
    facts = placement_facts(placement)
    assert facts["measured"]["step_s"] == placement.cost.step_s
    assert facts["simulated"]["step_s"] == placement.simulated.step_s
    assert facts["measured"]["rejected"] == 1
    assert "Step times (measured)" in placement._repr_html_()


def test_a_measured_placement_goes_through_json():
    p = problem()
    fails = Measuring(p, fails=lambda number, devices: number == 1)  # the first single device
    placement = search_placement(p, placer="single", budget=10, evaluator=fails)
    text = placement.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = Placement.from_json(text, problem=p)
    assert again.cost.samples.step_s.tolist() == placement.cost.samples.step_s.tolist()
    assert [str(c.failure) for c in again.baselines.values()] == [str(c.failure) for c in placement.baselines.values()]
    assert np.isnan(again.cost.compute_s).all()
    assert again.simulated.step_s == placement.simulated.step_s
    assert "failed: worker lost: gone" in again.summary()


def test_failures_cost_a_trial_each_and_the_search_goes_on():
    p = problem()
    calls = []
    for seed in range(8):  # how often a search comes back to the same placement is chance
        rng = np.random.default_rng(0)
        flaky = Measuring(p, fails=lambda number, devices, rng=rng: rng.random() < 0.5)
        placement = search_placement(p, placer="local_search", budget=60, seed=seed, baselines=(), evaluator=flaky)
        assert placement.cost.failure is None
        calls.append(flaky.calls)
    assert np.mean(calls) > 30 and max(calls) <= 60  # what was measured is not measured again


def test_when_everything_fails_the_error_says_why():
    p = problem()
    with pytest.raises(InfeasibleError, match=r"10 placements tried failed: worker lost: gone") as caught:
        search_placement(p, placer="local_search", budget=10, evaluator=Measuring(p, fails=lambda *_: True))
    assert len(caught.value.ways_out) == 3


def test_a_failure_at_the_last_measurement_loses_nothing():
    p = problem()
    counted = Measuring(p)
    search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=counted)
    last = counted.calls
    for broken in (Measuring(p, fails=lambda number, devices: number == last), Measuring(p, raises=last)):
        placement = search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=broken)
        assert np.isfinite(placement.cost.step_s)
        assert placement.cost.samples is None
        assert placement.cost.source == MEASURED


def test_an_evaluator_that_cannot_go_on_ends_the_search_with_the_best_so_far():
    p = problem()
    broken = Measuring(p, breaks=15)
    placement = search_placement(p, placer="local_search", budget=60, baselines=(), evaluator=broken)
    assert np.isfinite(placement.cost.step_s)
    assert broken.calls == 15  # it is not asked again
    assert any(re.search(r"after \d\d evaluations the evaluator stopped", note) for note in placement.notes)
    assert "a reference placement that failed" in placement.summary()


@pytest.mark.parametrize(
    ("broken", "error"), [({"raises": 3}, KeyboardInterrupt), ({"breaks": 3}, ApplyError)], ids=["stopped", "broken"]
)
def test_what_was_measured_before_a_batch_ended_early_is_kept(broken, error):
    p = problem()
    search = Search(p, Budget(evaluations=10), seed=0, evaluator=Measuring(p, **broken))
    context = search.context("test")
    rows = np.array([[0, 1] * 6 + [0], [0] * 13, [1] * 13], np.int32)
    with pytest.raises(error):
        context.keys(rows)
    assert search.evaluations == 2
    assert context.best_key == min(Simulator(p).key(row) for row in rows[:2])


def test_an_evaluator_that_cannot_go_on_at_the_last_measurement_loses_nothing():
    p = problem()
    counted = Measuring(p)
    search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=counted)
    broken = Measuring(p, breaks=counted.calls)
    placement = search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=broken)
    assert np.isfinite(placement.cost.step_s)
    assert any("stopped" in note for note in placement.notes)


def test_an_evaluator_that_cannot_go_on_before_anything_ran_is_an_error():
    p = problem()
    with pytest.raises(ApplyError, match="reference"):
        search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=Measuring(p, breaks=3))
    nothing_ran = Measuring(p, fails=lambda *_: True, breaks=9)
    with pytest.raises(ApplyError, match="reference"):
        search_placement(p, placer="local_search", budget=20, baselines=(), evaluator=nothing_ran)


def test_place_closes_the_evaluator_it_made_and_only_that():
    p = problem()
    made = []

    def make(given):
        made.append(Measuring(given))
        return made[-1]

    tfplace.place(p, placer="single", budget=5, evaluator=make, progress=False)
    assert made[0].closed
    mine = Measuring(p)
    tfplace.place(p, placer="single", budget=5, evaluator=mine, progress=False)
    assert not mine.closed


@pytest.mark.parametrize("given", [Simulator, Measuring])
def test_a_class_of_evaluators_makes_one_for_the_problem(given):
    placement = tfplace.place(problem(), placer="single", budget=5, evaluator=given, progress=False)
    assert placement.cost.source == given.source


def test_a_wrong_evaluator_is_refused():
    p = problem()
    for given in (None, 3):
        with pytest.raises(InputError, match=f"evaluator={given}; .* one of grappler, measured, simulated"):
            tfplace.place(p, evaluator=given, progress=False)
    with pytest.raises(InputError, match="which gives None; expected an evaluator"):
        tfplace.place(p, evaluator=lambda problem: None, progress=False)
    with pytest.raises(UnknownNameError, match="grappler, measured, simulated"):
        tfplace.place(p, evaluator="guess", progress=False)
    with pytest.raises(InputError, match="an evaluator of"):
        tfplace.place(p, evaluator=Simulator(replace(p)), progress=False)


def test_slow_evaluators_are_asked_for_as_many_as_they_evaluate_side_by_side():
    """So that a search ends soon after its time or Ctrl-C, and has what was evaluated until then."""
    p = problem()
    sizes = []

    class Pairs(Simulator):
        batch_limit = 2

        def keys(self, unit_devices, limit_s=np.inf):
            sizes.append(len(unit_devices))
            if len(sizes) == 4:
                raise KeyboardInterrupt
            return super().keys(unit_devices, limit_s)

    search = Search(p, Budget(evaluations=100), 0, evaluator=Pairs(p))
    rows = np.random.default_rng(0).integers(0, 2, (9, p.num_units)).astype(np.int32)
    _, step_s = search.context("x").keys(rows[:5])
    assert sizes == [2, 2, 1] and search.evaluations == 5
    np.testing.assert_array_equal(step_s, Simulator(p).keys(rows[:5])[1])
    sizes[:] = [0, 0]
    with pytest.raises(KeyboardInterrupt):
        search.context("x").keys(rows)
    assert search.evaluations == 7
