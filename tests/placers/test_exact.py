"""Exact: brute force on tiny problems, bounds that hold, and what it says of them."""

import dataclasses
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfplace
from tests.measuring import Measuring
from tfplace.core.evaluator import Evaluator
from tfplace.core.stepcost import SIMULATED, STEP_TIME, THROUGHPUT
from tfplace.errors import InputError, MissingExtraError
from tfplace.formatting import format_seconds
from tfplace.group.arrays import problem_from_arrays
from tfplace.group.dnn_partitioning import load_workload
from tfplace.placers import exact
from tfplace.placers.exact import Exact
from tfplace.schedule.exact import cp_process
from tfplace.schedule.exact.cp_model import Answer, Limits, interchangeable
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_topology, random_problem

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "research" / "data" / "dnn_partitioning" / "workloads"
EVALUATORS = {STEP_TIME: Simulator, THROUGHPUT: PipelineLoads}


def search(problem, objective, evaluations=300, **arguments):
    run = Search(problem, Budget(evaluations=evaluations), 0, evaluator=EVALUATORS[objective](problem))
    placer = Exact(**arguments)
    return run.run(placer, "exact"), placer, run


@pytest.mark.parametrize("objective", [STEP_TIME, THROUGHPUT])
def test_equals_brute_force_on_tiny_problems(objective):
    """All placements are few enough to be evaluated; the answer is the least key, with a proof."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, num_ops=6, num_devices=2 + seed % 2, tight=seed % 4 == 1)
        choices = [np.flatnonzero(row).tolist() for row in problem.allowed]
        rows = np.array([*itertools.product(*choices)], np.int32)
        evaluator = EVALUATORS[objective](problem)
        over, value_s = evaluator.keys(rows)
        best = min(zip(over.tolist(), value_s.tolist(), strict=True))
        devices, placer, _ = search(problem, objective, evaluations=2000)
        assert evaluator.key(devices) == best
        assert placer.proven_s == (0 if best[0] else best[1])
        assert ("proven to be the best" in placer.notes[0]) == (best[0] == 0 and best[1] > 0)


def test_models_equal_brute_force():
    """Without the short cut of trying all: CP-SAT's optimum and bound, of both models.

    Of 80 problems 72 have a placement that fits and takes time. By the throughput objective all are met. The free
    order of the schedule is shorter than any simulated step in 5.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.placers.exact_models", "80"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["72", "67"]


def test_a_public_workload_is_proven():
    problem = load_workload(WORKLOADS / "thr-op-bert3-inf.json")
    devices, placer, run = search(problem, THROUGHPUT, evaluations=2000)
    assert run.evaluator.key(devices) == (0, pytest.approx(21.908376e-3, rel=1e-6))
    assert placer.proven_s == pytest.approx(21.908376e-3, rel=1e-4)
    assert "proven to be the best" in placer.notes[0]


@pytest.mark.parametrize("objective", [STEP_TIME, THROUGHPUT])
def test_same_answer_for_the_same_evaluations(objective):
    problem = load_workload(WORKLOADS / "lat-layer-bert24-inf.json")
    (first, one, _), (second, other, _) = (search(problem, objective, evaluations=100) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert (one.notes, one.proven_s) == (other.notes, other.proven_s)


def test_the_bound_holds_and_is_the_placements():
    problem = load_workload(WORKLOADS / "lat-layer-bert24-inf.json")
    placement = tfplace.place(problem, placer="exact", budget=500, baselines=("heft",), progress=False)
    assert Simulator(problem).bound_s <= placement.bound_s <= placement.cost.step_s * (1 + 1e-9)
    assert placement.notes[0].startswith("exact: ")
    assert placement.notes[0] in placement.summary().replace("\n", " ")


def test_groups_prove_nothing_of_the_rest():
    problem = load_workload(WORKLOADS / "thr-layer-bert24-inf.json")
    _, placer, _ = search(problem, THROUGHPUT, groups=8)
    assert placer.proven_s == 0
    assert "groups whole" in placer.notes[0]


@pytest.mark.slow
def test_steps_of_another_kind_are_searched_and_nothing_is_proven():
    problem = load_workload(WORKLOADS / "lat-layer-bert24-inf.json")
    for evaluator in (Simulator(problem, Options(parallel=2)), Measuring(problem)):
        run = Search(problem, Budget(evaluations=100), 0, evaluator=evaluator)
        placer = Exact()
        run.run(placer, "exact")
        assert placer.proven_s == 0
        assert "nothing was proven" in placer.notes[0]


class Halved(Evaluator):
    """Of one's own: it simulates, by rules of which nothing is known."""

    source = SIMULATED

    def __init__(self, problem):
        self.problem = problem
        self._simulator = Simulator(problem)

    def __call__(self, unit_device):
        cost = self._simulator(unit_device)
        return dataclasses.replace(cost, step_s=cost.step_s / 2)

    def key(self, unit_device, limit_s=np.inf):
        over, step_s = self._simulator.key(unit_device)
        return over, step_s / 2

    def keys(self, unit_devices, limit_s=np.inf):
        over, step_s = self._simulator.keys(unit_devices)
        return over, step_s / 2


@pytest.mark.parametrize("objective", [STEP_TIME, "bytes moved"])
def test_an_evaluator_of_ones_own_has_no_model(objective):
    problem = load_workload(WORKLOADS / "lat-layer-bert24-inf.json")
    evaluator, placer = Halved(problem), Exact()
    evaluator.objective = objective
    run = Search(problem, Budget(evaluations=100), 0, evaluator=evaluator)
    run.run(placer, "exact")
    assert placer.proven_s == 0 and "nothing was proven" in placer.notes[0]
    assert run.evaluations == 100


@pytest.mark.parametrize("objective", [STEP_TIME, THROUGHPUT])
def test_a_device_slow_beyond_all_measure_is_not_chosen(objective):
    seconds = np.tile([1e12, 1e-3, 1e-3], (12, 1))
    problem = problem_from_arrays(seconds, [(i, i + 1) for i in range(11)], make_topology(3), edge_bytes=1)
    devices, placer, _ = search(problem, objective)
    assert 0 not in devices
    assert placer.proven_s > 0 and "failed" not in placer.notes[0]


def test_a_budget_too_small_for_a_proof_is_told():
    problem = load_workload(WORKLOADS / "thr-layer-bert24-inf.json")
    _, placer, _ = search(problem, THROUGHPUT, evaluations=3)
    assert "nothing was proven" in placer.notes[0]


def test_an_answer_that_parts_groups_is_told_from_theirs():
    problem = load_workload(WORKLOADS / "thr-layer-bert24-inf.json")
    devices, placer, run = search(problem, THROUGHPUT, groups=4)
    groups, answer = placer.notes
    assert "groups whole" in groups and "splits groups" in answer
    assert format_seconds(run.evaluator.key(devices)[1]) in answer


def test_graphs_too_large_for_a_schedule_are_searched_all_the_same(monkeypatch):
    monkeypatch.setattr(exact, "_OPS", 20)
    problem = load_workload(WORKLOADS / "lat-layer-bert24-inf.json")
    devices, placer, run = search(problem, STEP_TIME)
    assert run.evaluator.key(devices) == run.best_key
    assert "nothing was proven" in placer.notes[0]


def test_nothing_fits():
    problem = problem_from_arrays(np.ones((12, 2)), [], make_topology(2, memory=10), memory_bytes=9)
    _, placer, _ = search(problem, THROUGHPUT)
    assert placer.proven_s == 0 and "fits" in placer.notes[0]


def test_what_was_proven_is_said_though_the_budget_ends_with_it(monkeypatch):
    problem = random_problem(np.random.default_rng(1), num_ops=30, num_devices=3, unit=1e-3)
    best, _, run = search(problem, STEP_TIME, evaluations=2000)

    def at_the_end(asked, objective, start, start_s, limits):
        spent.place_all()
        return Answer(1e-4, [np.zeros_like(start), best], "FEASIBLE")

    class Spent(Search):
        def place_all(self):
            while self.position() < self.total - 1:  # one evaluation is left for what CP-SAT found
                self.record(np.zeros(problem.num_units, np.int32), (1, 1.0), "test")

    spent = Spent(problem, Budget(evaluations=200), 0)
    monkeypatch.setattr(exact, "ask", at_the_end)
    placer = Exact()
    found = spent.run(placer, "exact")
    assert spent.best_key == spent.evaluator.key(found) <= run.best_key
    assert placer.proven_s > 0 and "CP-SAT: feasible" in placer.notes[0]


def test_without_or_tools(monkeypatch):
    monkeypatch.setattr(cp_process.importlib.util, "find_spec", lambda name: None)
    problem = load_workload(WORKLOADS / "thr-layer-bert24-inf.json")
    with pytest.raises(InputError, match=r"pip install 'tfplace\[exact\]'"):
        search(problem, THROUGHPUT)


def test_what_starting_takes_counts():
    """CP-SAT has what is left when its model is there, and no less than a moment."""
    code = """
import numpy as np
from tfplace.group.arrays import problem_from_arrays
from tfplace.schedule.exact import cp_model
from tfplace.testing import make_topology
problem = problem_from_arrays(np.ones((3, 2)), [(0, 1)], make_topology(2))
sat = cp_model.load_cp_sat()

class Solver(sat.CpSolver):
    def solve(self, *asked):
        status = super().solve(*asked)
        print(self.parameters.max_time_in_seconds, self.status_name(status))
        return status

sat.CpSolver = Solver
cp_model.time.time = lambda: 100.0
for until in (107.0, 90.0):
    model = cp_model.throughput_model(problem, np.zeros(3, np.int32), 3.0)
    cp_model.solve(model, cp_model.Limits(until, 1.0, 1))
"""
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == "7.0 OPTIMAL\n0.1 OPTIMAL\n"


def test_a_process_that_fails_proves_nothing(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    problem = load_workload(WORKLOADS / "thr-layer-bert24-inf.json")
    start = np.ones(problem.num_units, np.int32)
    answer = cp_process.ask(problem, THROUGHPUT, start, 1.0, Limits(None, 0.1, 1))
    assert (answer.bound_s, answer.found, answer.status) == (0.0, [], "failed (with status 1)")


def test_devices_alike():
    """Two of three accelerators are; the third has a slower link to the host."""
    topology = make_topology(4, types=["CPU", "GPU", "GPU", "GPU"], latency={(0, 3): 1.0})
    problem = problem_from_arrays(np.ones((2, 4)), [[0, 1]], topology)
    assert interchangeable(problem).tolist() == [0, 1, 1, 3]
    pinned = problem_from_arrays([[1, 1, 1, 1], [1, 2, 1, 1]], [[0, 1]], topology)
    assert interchangeable(pinned).tolist() == [0, 1, 2, 3]


def test_nothing_is_proven_of_measured_steps_even_if_all_placements_were_tried():
    problem = random_problem(np.random.default_rng(0), 4, 2)
    for evaluator, proven in ((Measuring(problem), False), (Simulator(problem), True)):
        run = Search(problem, Budget(evaluations=100), 0, evaluator=evaluator)
        placer = Exact()
        run.run(placer, "exact")
        assert run.evaluations == 2**problem.num_units
        assert ("nothing was proven" in placer.notes[0]) != proven and (placer.proven_s > 0) == proven


def test_nothing_that_takes_no_time_is_better_than_nothing():
    problem = problem_from_arrays(np.zeros((2, 3)), [[0, 1]], "2xP100")
    placement = tfplace.place(problem, placer="exact", budget=100, progress=False)
    assert "proven to be the best" in placement.notes[0]


def test_a_bound_of_nothing_proves_nothing():
    placer = Exact()
    placer._say(0.5, 0.0, "CP-SAT: unknown")
    assert placer.notes == ("exact: 500 ms; nothing was proven (CP-SAT: unknown)",)


def test_a_missing_solver_is_told_before_anything_is_evaluated(monkeypatch):
    monkeypatch.setattr(cp_process.importlib.util, "find_spec", lambda name: None)
    problem = random_problem(np.random.default_rng(0), 8, 2)
    monkeypatch.setattr("tfplace.search.place.baseline_costs", lambda *_: pytest.fail("too late"))
    with pytest.raises(MissingExtraError, match=r"pip install 'tfplace\[exact\]'"):
        tfplace.place(problem, placer="exact", budget=100, progress=False)
