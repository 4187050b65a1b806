"""Every registered placer keeps what all placers promise."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.errors import InfeasibleError
from tfplace.registry import PLACERS
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_devices
from tfplace.testing.placers import PlacerSuite, run_placer

BUILT_IN = (
    "annealing",
    "auto",
    "brkga",
    "contiguous",
    "critical_path",
    "cross_entropy",
    "etf",
    "exact",
    "expert",
    "gdp",
    "heft",
    "hierarchical",
    "hill_climbing",
    "load_search",
    "local_search",
    "m_etf",
    "m_sct",
    "m_topo",
    "metis",
    "min_cut",
    "placeto",
    "policy_gradient",
    "post",
    "post_ce",
    "post_ppo",
    "random",
    "random_search",
    "round_robin",
    "scotch",
    "seq2seq",
    "single",
)

uncounted = pytest.mark.no_cover
"""Whose lines the tests of the search and of the policies run too: counting takes half as long again."""


class TestAnnealing(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["annealing"]()


@uncounted
class TestAuto(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["auto"]()


class TestBrkga(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["brkga"]()


class TestContiguous(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["contiguous"]()


class TestCriticalPath(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["critical_path"]()


class TestCrossEntropy(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["cross_entropy"]()


class TestEtf(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["etf"]()


class TestExact(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["exact"]()


class TestExpert(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["expert"]()


@uncounted
class TestGdp(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["gdp"]()


class TestHeft(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["heft"]()


@uncounted
class TestHierarchical(PlacerSuite):
    @pytest.fixture
    def placer(self):
        from tfplace.learned.policies.hierarchical import Hierarchical, HierarchicalSettings

        return Hierarchical(settings=HierarchicalSettings(hidden=8, embedding=4, groups=8))


class TestHillClimbing(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["hill_climbing"]()


class TestLoadSearch(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["load_search"]()


class TestLocalSearch(PlacerSuite):
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["local_search"]()


class TestMEtf(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["m_etf"]()


class TestMSct(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["m_sct"]()


class TestMTopo(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["m_topo"]()


class TestMetis(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["metis"]()


class TestMinCut(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["min_cut"]()


@uncounted
class TestPlaceto(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["placeto"]()


@uncounted
class TestPolicyGradient(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["policy_gradient"]()


@uncounted
class TestPost(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["post"]()


@uncounted
class TestPostCe(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["post_ce"]()


@uncounted
class TestPostPpo(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["post_ppo"]()


class TestRandom(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["random"]()


class TestRandomSearch(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["random_search"]()


class TestRoundRobin(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["round_robin"]()


class TestScotch(PlacerSuite):
    @pytest.fixture
    def placer(self):
        return PLACERS["scotch"]()


@uncounted
class TestSeq2Seq(PlacerSuite):
    @pytest.fixture
    def placer(self):
        from tfplace.learned.policies.seq2seq import Seq2Seq, Seq2SeqSettings

        return Seq2Seq(settings=Seq2SeqSettings(hidden=8, embedding=4))


class TestSingle(PlacerSuite):
    minds_memory = False
    beats_singles = True

    @pytest.fixture
    def placer(self):
        return PLACERS["single"]()


def test_every_built_in_placer_is_here():
    tested = {name.removeprefix("Test").lower() for name in globals() if name.startswith("Test")}
    assert tested == {name.replace("_", "") for name in BUILT_IN}
    assert {*BUILT_IN} <= {*PLACERS}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_host_is_a_last_resort(name):
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    graph = make_graph(dict.fromkeys("abcdef", 100), ["a -> b", "b -> c", "c -> d", "d -> e", "e -> f"])
    problem = make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (6, 1)))
    assert 0 not in run_placer(PLACERS[name](), problem)


@pytest.mark.parametrize("name", BUILT_IN)
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
