"""search_placement: checks, baselines, Ctrl-C and what is said when nothing fits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tfplace import Constraints, OpGraph
from tfplace.api import compare, place, simulate
from tfplace.core.search_context import BudgetSpentError
from tfplace.core.stepcost import THROUGHPUT
from tfplace.cost.profile import DeviceProfile, OpTime, Profile
from tfplace.cost.signature import signatures
from tfplace.errors import InfeasibleError, InputError, UnknownNameError
from tfplace.registry import PLACERS
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.sources import formulate
from tfplace.testing import make_graph, make_topology

MIB = 2**20
WORKLOAD = (
    Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning" / "workloads" / "lat-layer-bert24-inf.json"
)


def two_towers(size=MIB, *, memory=1024 * MIB, **constraints):
    """Two chains that meet; weights w0 and w1 of `size` bytes each."""
    graph = make_graph(
        {"w0": 8, "w1": 8, "a0": size, "a1": size, "b0": size, "b1": size, "end": 4},
        ["w0 -> a0", "w1 -> a1", "a0 -> b0", "a1 -> b1", "b0 -> end", "b1 -> end"],
        types={"a0": "MatMul", "a1": "MatMul", "b0": "MatMul", "b1": "MatMul"},
        variables={"w0": size, "w1": size},
        resource={"w0": 0, "a0": 0, "w1": 1, "a1": 1},
    )
    return formulate(graph, make_topology(2, memory=memory), constraints=Constraints(**constraints))


def test_placement_is_complete_simulated_and_beside_its_baselines():
    problem = two_towers()
    placement = search_placement(problem, placer="round_robin", budget=10, baselines=("round_robin",))
    assert set(placement.devices) == set(problem.graph.op_names)
    assert placement.cost.step_s == simulate(problem, placement).step_s
    assert placement.bound_s <= placement.cost.step_s
    assert {"single GPU:0", "single GPU:1", "round_robin"} <= set(placement.baselines)
    assert placement.best_single is not None
    assert placement.versions["tfplace"]


def test_unknown_placer_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"heft.*local_search.*single"):
        place(two_towers(), placer="heftt")
    with pytest.raises(UnknownNameError, match="placer"):
        search_placement(two_towers(), placer="single", budget=3, baselines=("no_such",))


def test_ctrl_c_returns_the_best_so_far():
    class Interrupted:
        citation = ""

        def place(self, context):
            context.key(np.zeros(context.problem.num_units, np.int32))
            raise KeyboardInterrupt

    PLACERS.add("interrupted", Interrupted)
    placement = search_placement(two_towers(), placer="interrupted", budget=10, baselines=())
    assert set(placement.devices.values()) == {"GPU:0"}
    note = placement.notes[0]
    assert note.startswith("interrupted after 1 evaluations, 0.") and "of a budget of 10 evaluations" in note


@pytest.mark.parametrize("budget", [10, "0.01 s"])
def test_a_placer_that_places_nothing_in_its_time_is_told(budget):
    class Idle:
        citation = ""

        def place(self, context):
            raise BudgetSpentError

    PLACERS.add("idle", Idle)
    with pytest.raises(InputError, match=r"a budget of .*, in which idle placed nothing"):
        search_placement(two_towers(), placer="idle", budget=budget, baselines=())


def test_ctrl_c_while_the_answer_is_evaluated_anew_keeps_what_the_search_saw():
    problem = two_towers()

    class Stopped(PipelineLoads):
        costs = 0

        def __call__(self, unit_device):
            self.costs += 1
            if self.costs > self.problem.num_devices:  # every single device comes before the search
                raise KeyboardInterrupt
            return super().__call__(unit_device)

    placement = search_placement(problem, placer="local_search", budget=20, baselines=(), evaluator=Stopped(problem))
    assert placement.cost.objective == THROUGHPUT
    assert placement.cost.step_s == PipelineLoads(problem).key(problem.gather(placement.op_device))[1]


def test_the_bound_is_the_simulators_own_and_made_before_the_search():
    order = []

    class Bounded(Simulator):
        @property
        def bound_s(self):
            order.append("bound")
            return 1e-9

    class Searched:
        citation = ""

        def place(self, context):
            order.append("search")
            return np.zeros(context.problem.num_units, np.int32)

    PLACERS.add("searched", Searched)
    problem = two_towers()
    placement = search_placement(problem, placer="searched", budget=3, baselines=(), evaluator=Bounded(problem))
    assert placement.bound_s == 1e-9
    assert order == ["bound", "search"]


def test_a_seed_below_0_is_refused():
    with pytest.raises(InputError, match="seed=-1"):
        place(two_towers(), seed=-1, placer="random", budget=3)


@pytest.mark.parametrize("given", ["run_dir", "weights", "tensorboard"])
def test_what_is_no_path_is_refused(given):
    with pytest.raises(InputError, match=f"{given}=3; expected a path"):
        place(two_towers(), placer="placeto", budget=3, **{given: 3})


def test_files_that_are_no_paths_are_refused():
    for load, given in ((Profile.load, "profile"), (OpGraph.load, "path")):
        with pytest.raises(InputError, match=f"{given}=3; expected a path"):
            load(3)


def test_seeds_that_are_no_numbers_are_refused_and_those_of_numpy_are_not(tmp_path):
    for seed in ("0", 1.5, None):
        with pytest.raises(InputError, match=f"seed={seed!r}; expected a whole number"):
            place(two_towers(), seed=seed, placer="random", budget=3)
    for groups in (0, 2.5):
        with pytest.raises(InputError, match=f"groups={groups}; expected a whole number of at least 1"):
            place(two_towers(), groups=groups, grouper="merge", placer="random", budget=3)
    seeded = place(two_towers(), seed=np.int64(3), placer="random", budget=3, run_dir=tmp_path)
    assert json.loads(seeded.to_json())["seed"] == 3


def test_one_name_as_baselines_is_refused():
    with pytest.raises(InputError, match=r"baselines='heft'; expected a sequence.*baselines=\('heft',\)"):
        place(two_towers(), baselines="heft", budget=3)
    assert "heft" in place(two_towers(), baselines=["heft"], budget=3).baselines


BESIDE = {
    "topology": make_topology(2),
    "batch": (1,),
    "constraints": Constraints(),
    "max_memory": {"GPU:0": "4GiB"},
    "profile": Profile(),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_would_have_no_effect_on_a_problem_is_refused(name, tmp_path):
    problem = two_towers()
    problem.save(tmp_path / "problem.npz")
    sources = [problem, tmp_path / "problem.npz", WORKLOAD]
    for source in sources if name != "batch" else [problem, WORKLOAD]:  # extract refuses it beside any ".npz"
        with pytest.raises(InputError, match=f"{name} with a problem; .* has its {name} already"):
            place(source, **{name: BESIDE[name]})
        if name != "profile":
            with pytest.raises(InputError, match=f"{name} with a problem"):
                compare(source, **{name: BESIDE[name]})
    with pytest.raises(InputError, match="topology and max_memory with a problem"):
        place(problem, "4xP100", max_memory={"GPU:0": "4GiB"})


def test_a_profile_gives_the_costs(tmp_path):
    graph, plain = two_towers().graph, make_topology(2)
    topology = replace(plain, devices=tuple(replace(device, model="P") for device in plain.devices))
    times = {signature: OpTime(3.0, 0.0, 1, 1) for signature in signatures(graph)}
    profile = Profile((DeviceProfile("P", "GPU", "2", "1", times, ()),))
    profile.save(tmp_path / "profile.json")
    for given in (profile, tmp_path / "profile.json"):
        placement = place(graph, topology, profile=given, placer="single", budget=2, progress=False)
        assert placement.cost.step_s >= 3.0 * graph.num_ops > 100 * place(graph, topology, budget=2).cost.step_s
    with pytest.raises(InputError, match=r"profile 'nowhere\.json'"):
        place(graph, topology, profile="nowhere.json")


def test_ctrl_c_before_any_placement_goes_through():
    class AtOnce:
        citation = ""

        def place(self, context):
            raise KeyboardInterrupt

    PLACERS.add("at_once", AtOnce)
    with pytest.raises(KeyboardInterrupt):
        search_placement(two_towers(), placer="at_once", budget=10, baselines=())


def test_impossible_memory_names_devices_bytes_largest_tensors_and_ways_out():
    problem = two_towers(64 * MIB, max_memory={"GPU:*": "10MiB"}, headroom=0.1)
    with pytest.raises(InfeasibleError) as caught:
        search_placement(problem, placer="single", budget=10, baselines=())
    error = caught.value
    assert error.shortages and error.shortages[0].device.startswith("GPU:")
    assert error.shortages[0].limit_bytes == int(10 * MIB * 0.9)
    assert error.shortages[0].over_bytes > 0
    names = [name for name, _ in error.shortages[0].largest]
    assert any(name in ("w0", "w1") for name in names) and len(names) <= 5
    text = str(error)
    assert "1. Raise max_memory" in text and "2. " in text and "over" in text and "MiB" in text


def test_what_does_not_fit_on_one_device_is_shown_as_such_among_the_baselines():
    problem = two_towers(64 * MIB, max_memory={"GPU:*": "300MiB"})
    placement = search_placement(problem, placer="round_robin", budget=10, baselines=())
    singles = [c for k, c in placement.baselines.items() if k.startswith("single")]
    assert len(singles) == 4 and not any(c.feasible for c in singles)  # each op by op, and compiled
    assert placement.best_single is None


def test_baselines_are_made_before_the_search_so_that_nothing_after_it_can_lose_its_result():
    order = []

    class Told:
        citation = ""

        def place(self, context):
            order.append("search")
            return np.zeros(context.problem.num_units, np.int32)

    class Compared(Told):
        def place(self, context):
            order.append("baseline")
            return np.zeros(context.problem.num_units, np.int32)

    PLACERS.add("told", Told)
    PLACERS.add("compared", Compared)
    search_placement(two_towers(), placer="told", budget=3, baselines=("compared",))
    assert order == ["baseline", "search"]
