"""The throughput objective from `place` to the report."""

import json
from pathlib import Path

import numpy as np
import pytest

import tfplace
from tfplace.core.placement import Placement
from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.errors import InputError, UnknownNameError
from tfplace.local_search.grouped_context import GroupedContext
from tfplace.report.facts import placement_facts
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_topology, random_problem

WORKLOAD = (
    Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning" / "workloads" / "thr-layer-bert24-inf.json"
)


@pytest.fixture(scope="module")
def placement():
    return tfplace.place(
        WORKLOAD, placer="contiguous", budget=20, baselines=("expert",), progress=False, objective="throughput"
    )


def test_a_workload_is_placed(placement):
    assert placement.cost.objective == THROUGHPUT
    assert placement.cost.step_s == pytest.approx(17.789906e-3, abs=1e-9)
    assert placement.bound_s == PipelineLoads(placement.problem).bound_s
    assert placement.baselines["single CPU:0"].objective == THROUGHPUT
    assert placement.baselines["single CPU:0"].step_s == pytest.approx(0.92406)
    assert "largest load 17.8 ms" in repr(placement)


def test_a_load_is_never_called_a_step_time(placement):
    for text in (placement.summary(), placement._repr_html_()):
        assert "throughput" in text and "argest load" in text
        assert "step time" not in text.lower() and "(simulated)" not in text
        assert "contiguous: full program" in text


def test_facts(placement):
    facts = placement_facts(placement)
    assert facts["objective"] == THROUGHPUT
    assert facts["throughput"]["load_s"] == placement.cost.step_s
    assert "step_s" not in json.dumps(facts) and "simulated" not in facts


def test_json_keeps_objective_and_notes(placement):
    again = Placement.from_json(placement.to_json(), problem=placement.problem)
    assert again.cost.objective == THROUGHPUT
    assert again.notes == placement.notes != ()


def test_steps_are_the_default():
    problem = random_problem(np.random.default_rng(0), num_ops=10)
    placement = tfplace.place(problem, placer="single", budget=5, progress=False)
    assert placement.cost.objective == STEP_TIME
    assert placement_facts(placement)["simulated"]["step_s"] == placement.cost.step_s


def test_an_evaluator_that_is_given_decides():
    problem = random_problem(np.random.default_rng(0), num_ops=10)
    placement = tfplace.place(problem, placer="single", budget=5, progress=False, evaluator=PipelineLoads(problem))
    assert placement.cost.objective == THROUGHPUT


@pytest.mark.parametrize("evaluator", ["grappler", "measured"])
def test_pipelines_are_neither_measured_nor_grapplers(evaluator):
    problem = random_problem(np.random.default_rng(0), num_ops=10)
    with pytest.raises(InputError, match=f"objective 'throughput' with evaluator '{evaluator}'"):
        tfplace.place(problem, budget=5, progress=False, objective="throughput", evaluator=evaluator)


def test_an_unknown_objective_is_named():
    problem = random_problem(np.random.default_rng(0), num_ops=10)
    with pytest.raises(UnknownNameError, match="step_time, throughput"):
        tfplace.place(problem, budget=5, progress=False, objective="speed")


def test_studies_tell_objective_and_what_is_left():
    problem = random_problem(np.random.default_rng(0), num_ops=10, topology=make_topology(2, types="CPU"))
    for evaluator, objective in ((Simulator(problem), STEP_TIME), (PipelineLoads(problem), THROUGHPUT)):
        context = Search(problem, Budget(evaluations=10), 0, evaluator=evaluator).context("test")
        grouped = GroupedContext(context, np.zeros(problem.num_units, np.int32))
        assert context.objective == grouped.objective == objective
        context.key(np.zeros(problem.num_units, np.int32))
        assert context.left == grouped.left == (None, 9)
    seconds, evaluations = Search(problem, Budget(seconds=5.0), 0).context("test").left
    assert evaluations is None and 0 < seconds <= 5
