"""Every registered placer keeps what all placers promise; those that learn are in `test_policies`."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.conformance.small_policies import POLICIES
from tfplace.errors import InfeasibleError, MissingExtraError
from tfplace.registry import PLACERS
from tfplace.search.capabilities import check_extra
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_devices
from tfplace.testing.placers import PlacerSuite, run_placer

MODEST = (
    "contiguous",
    "critical_path",
    "etf",
    "expert",
    "heft",
    "load_search",
    "m_etf",
    "m_sct",
    "m_topo",
    "metis",
    "min_cut",
    "random",
    "random_search",
    "round_robin",
    "scotch",
)
"""Do not promise to beat single devices."""

BEAT_SINGLES = ("annealing", "auto", "brkga", "cross_entropy", "hill_climbing", "local_search")
HERE = (*MODEST, *BEAT_SINGLES, "exact", "single")
OF_SLICES = ("data_parallel", "gpipe", "mixed", "one_f_one_b", "pipedream")
"""Place split steps only; see `tests/placers/test_data_parallel` and `test_pipelines`."""
VARIANTS = {"gdp_scratch", "placeto_scratch", "placeto_untrained", "untrained"}
"""Of a placer that is tested: what it is compared with."""


class TestModestPlacers(PlacerSuite):
    test_never_worse_than_a_single_device = None

    @pytest.fixture(params=MODEST)
    def placer(self, request):
        return PLACERS[request.param]()


class TestPlacersThatBeatSingles(PlacerSuite):
    beats_singles = True

    @pytest.fixture(params=BEAT_SINGLES)
    def placer(self, request):
        return PLACERS[request.param]()


class TestExact(PlacerSuite):
    """Every search starts a process and a solver. That the same answer comes twice is in `tests/placers/test_exact`."""

    beats_singles = True
    test_same_seed_and_budget_same_answer = None

    @pytest.fixture
    def placer(self):
        return PLACERS["exact"]()

    @pytest.mark.parametrize("seed", [0])
    def test_devices_are_allowed(self, placer, seed):
        super().test_devices_are_allowed(placer, seed)

    @pytest.mark.parametrize("seconds", [0.0, 1e12])
    def test_ties_zeros_and_extremes(self, placer, seconds):
        super().test_ties_zeros_and_extremes(placer, seconds)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [0, 1])
    def test_never_worse_than_a_single_device(self, placer, seed):
        super().test_never_worse_than_a_single_device(placer, seed)


class TestSingle(PlacerSuite):
    beats_singles = True
    minds_memory = False
    test_memory_is_honoured_where_it_can_be = None

    @pytest.fixture
    def placer(self):
        return PLACERS["single"]()


def test_every_built_in_placer_is_here():
    """A new one is added to this list or to that of policies."""
    assert sorted([*HERE, *OF_SLICES, *POLICIES, *VARIANTS]) == sorted(PLACERS)


PACKAGES = {"exact": "ortools", "scotch": "pyscotch"}
"""What the extras of placers install."""


def test_an_extra_that_is_missing_is_named(monkeypatch):
    extras = {name: PLACERS[name].extra for name in PLACERS if PLACERS[name].extra is not None}
    assert extras == {"exact": "exact", "min_cut": "scotch", "scotch": "scotch"}
    for name, extra in extras.items():
        check_extra(name)
        monkeypatch.setitem(sys.modules, PACKAGES[extra], None)
        with pytest.raises(MissingExtraError, match=rf"pip install 'tfplace\[{extra}\]'"):
            check_extra(name)
        monkeypatch.delitem(sys.modules, PACKAGES[extra])


def test_which_placers_learn_and_what_they_need():
    def declare(what):
        return {name for name in PLACERS if getattr(PLACERS[name], what)}

    assert declare("pretrained") == {"gdp", "placeto", "placeto_untrained"} < declare("learned")
    assert declare("learned") - declare("needs_tensorflow") == {"placeto"}
    assert declare("supports_controllers") == {"hierarchical", "seq2seq"} < declare("needs_tensorflow")


@pytest.mark.parametrize("name", HERE)
def test_the_host_is_a_last_resort(name):
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    graph = make_graph(dict.fromkeys("abcdef", 100), ["a -> b", "b -> c", "c -> d", "d -> e", "e -> f"])
    problem = make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (6, 1)))
    assert 0 not in run_placer(PLACERS[name](), problem)


@pytest.mark.parametrize("name", HERE)
def test_nothing_but_constants(name):
    graph = make_graph({"a": 4, "b": 4}, replicable=["a", "b"])
    assert {*search_placement(make_problem(graph, make_topology(2)), placer=name, budget=5).devices} == {"a", "b"}


@pytest.mark.parametrize("name", ["auto", "heft", "local_search"])
def test_beats_random_placements(name):
    """Two equal chains of heavy ops: what is spent on them must show against placements drawn blindly."""
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(9)]
    graph = make_graph({f"{c}{i}": 1000 for c in "ab" for i in range(10)}, edges)
    problem = make_problem(graph, make_topology(2, bandwidth=1e3, latency=0.0))
    simulator = Simulator(problem)
    rng = np.random.default_rng(0)
    drawn = np.median([simulator(random_devices(rng, problem)).step_s for _ in range(20)])
    assert simulator(run_placer(PLACERS[name](), problem)).step_s < drawn


def test_single_says_what_one_device_lacks():
    names = [f"w{i}" for i in range(4)]
    graph = make_graph(dict.fromkeys(names, ()), variables=dict.fromkeys(names, 60))
    with pytest.raises(InfeasibleError) as error:
        search_placement(make_problem(graph, make_topology(2, memory=150)), placer="single", budget=10, baselines=())
    assert [(s.device, s.over_bytes) for s in error.value.shortages] == [("GPU:0", 90)]
