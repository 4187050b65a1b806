"""A conformance suite for placers. One subclass with one fixture fully tests a new placer. Needs pytest.

    class TestMine(PlacerSuite):
        @pytest.fixture
        def placer(self):
            return Mine()

It checks what every placer promises, whatever its method: an allowed device for every unit, the user's rules, the same
answer for the same seed and budget of evaluations, memory limits where these are easy to respect, and an answer for
unusual graphs. (Graphs without units are left out: a search answers them itself.) It also checks that the placer does
what its class declares (see `tfplace.core.placer.Placer`). It does not check how good the answers are. That is a matter
of the placer's own tests and of benchmarks.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from tfplace.core.arrays import IntArray
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import BudgetSpentError
from tfplace.core.stepcost import MEASURED, SIMULATED
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.group.problem import formulate
from tfplace.local_search.devices import single_device
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.capabilities import check_controllers, check_extra, check_pretrained, check_warm_start
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing.graphs import make_graph
from tfplace.testing.problems import make_topology, random_devices, random_problem


def run_placer(placer: Placer, problem: Problem, *, seed: int = 0, evaluations: int = 150) -> IntArray:
    """Runs a placer and returns [U] its devices, or the best it evaluated if the budget was used up.

    Args:
      placer: the placer.
      problem: the problem to place.
      seed: seed of the context's generator.
      evaluations: the context's budget of evaluations.

    Raises:
      AssertionError: the answer is not a [U] array of 32-bit integers, or there is none.
    """
    context = Search(problem, Budget(evaluations=evaluations), seed).context("conformance")
    devices: IntArray | None = None
    with contextlib.suppress(BudgetSpentError):
        devices = placer.place(context)
    devices = context.best if devices is None else devices
    assert devices is not None, "out of budget without having evaluated anything"
    assert devices.shape == (problem.num_units,), f"devices of shape {devices.shape} for {problem.num_units} units"
    assert devices.dtype == np.int32, f"devices of type {devices.dtype}; expected int32"
    return devices


class PlacerSuite:
    """Conformance tests that every placer must pass. Subclass it and override the fixture `placer`.

    Attributes:
      minds_memory: whether the placer spreads variables that do not fit on one device.
      beats_singles: whether the placer promises answers at least as good as every single device.
    """

    minds_memory = True
    beats_singles = False

    @pytest.fixture
    def placer(self) -> Placer:
        """The placer under test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `placer`")

    @pytest.mark.parametrize("seed", range(6))
    def test_devices_are_allowed(self, placer: Placer, seed: int) -> None:
        """On random problems with variables, loops, constants and ops that only a host has kernels for."""
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, num_ops=40, num_devices=2 + seed % 3, tight=seed % 2 == 1)
        problem.expand(run_placer(placer, problem, seed=seed))  # refuses what is not allowed

    @pytest.mark.parametrize("seed", range(3))
    def test_same_seed_and_budget_same_answer(self, placer: Placer, seed: int) -> None:
        """Nothing but the context's generator decides."""
        problem = random_problem(np.random.default_rng(seed), num_ops=40)
        first = run_placer(placer, problem, seed=seed).copy()
        np.testing.assert_array_equal(run_placer(placer, problem, seed=seed), first)

    @pytest.mark.parametrize("evaluations", [1, 2, 7])
    def test_small_budgets_end_in_a_placement(self, placer: Placer, evaluations: int) -> None:
        """A single evaluation is enough for an answer."""
        problem = random_problem(np.random.default_rng(0), num_ops=20)
        problem.expand(run_placer(placer, problem, evaluations=evaluations))

    def test_the_problem_is_left_alone(self, placer: Placer) -> None:
        """Placers share one problem."""
        problem = random_problem(np.random.default_rng(1), num_ops=30)
        arrays = (problem.allowed, problem.memory_limit, problem.costs.compute_s, problem.grouping.unit_of)
        before = [a.copy() for a in arrays]
        run_placer(placer, problem)
        for array, old in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, old)

    def test_pin_forbid_and_colocate(self, placer: Placer) -> None:
        """The user's rules hold."""
        rules = Constraints(
            pin={"net/op0": "GPU:1"},
            forbid={"net/op[12]": ["GPU:0", "CPU:*"]},
            colocate=[["net/op3", "net/op6"]],
        )
        problem = _problem(
            dict.fromkeys((f"net/op{i}" for i in range(8)), 1.0),
            ["net/op0 -> net/op3", "net/op1 -> net/op6"],
            topology=make_topology(4, types=["CPU", "GPU", "GPU", "GPU"]),
            rules=rules,
        )
        placed = problem.expand(run_placer(placer, problem))
        assert placed[0] == 2
        assert {*placed[[1, 2]].tolist()} <= {2, 3}
        assert placed[3] == placed[6]

    def test_everything_pinned(self, placer: Placer) -> None:
        """Where there is nothing to decide the rules are the answer."""
        names = [f"op{i}" for i in range(6)]
        rules = Constraints(pin={n: f"GPU:{i % 3}" for i, n in enumerate(names)})
        problem = _problem(dict.fromkeys(names, 1.0), topology=make_topology(3), rules=rules)
        assert run_placer(placer, problem).tolist() == [0, 1, 2, 0, 1, 2]

    def test_ops_of_one_resource_stay_together(self, placer: Placer) -> None:
        """A variable's unit need not be convex: other ops lie between its read and its update."""
        problem = _problem(
            {"handle": 0.0, "x": 3.0, "read": 1.0, "y": 3.0, "update": 1.0},
            ["handle -> read", "handle -> update", "x -> y", "read -> y", "y -> update"],
            resource={"handle": 0, "read": 0, "update": 0},
            variables={"handle": 100},
        )
        placed = problem.expand(run_placer(placer, problem))
        assert len({*placed[[0, 2, 4]].tolist()}) == 1

    def test_ops_without_an_accelerator_kernel_go_to_the_host(self, placer: Placer) -> None:
        """A kernel that is not there is never asked for."""
        problem = _problem(
            {"a": 1.0, "text": 1.0, "b": 1.0},
            ["a -> text", "text -> b"],
            topology=make_topology(3, types=["CPU", "GPU", "GPU"]),
            cpu_only=["text"],
        )
        assert problem.expand(run_placer(placer, problem))[1] == 0

    def test_memory_is_honoured_where_it_can_be(self, placer: Placer) -> None:
        """Four variables of 60 bytes on two devices of 150: two each, or nothing fits."""
        if not self.minds_memory:
            return
        names = [f"layer{i}/w" for i in range(4)]
        problem = _problem(
            dict.fromkeys(names, 1.0),
            topology=make_topology(2, memory=150),
            sizes=dict.fromkeys(names, ()),
            variables=dict.fromkeys(names, 60),
            resource={n: i for i, n in enumerate(names)},
        )
        assert Simulator(problem).key(run_placer(placer, problem))[0] == 0

    def test_an_answer_even_if_nothing_fits(self, placer: Placer) -> None:
        """The search, not the placer, tells the user."""
        names = ["a", "b"]
        problem = _problem(
            dict.fromkeys(names, 1.0), topology=make_topology(2, memory=10), variables=dict.fromkeys(names, 60)
        )
        problem.expand(run_placer(placer, problem))

    @pytest.mark.parametrize("devices", [1, 3])
    def test_one_op(self, placer: Placer, devices: int) -> None:
        """The smallest graph."""
        problem = _problem({"only": 1.0}, topology=make_topology(devices))
        problem.expand(run_placer(placer, problem))

    def test_one_device(self, placer: Placer) -> None:
        """Nowhere else to go."""
        problem = random_problem(np.random.default_rng(2), num_ops=15, topology=make_topology(1, types="CPU"))
        assert {*run_placer(placer, problem).tolist()} == {0}

    def test_disconnected_parts(self, placer: Placer) -> None:
        """Parts without an edge between them, some of them single ops."""
        problem = _problem(dict.fromkeys((f"op{i}" for i in range(9)), 1.0), ["op0 -> op1", "op4 -> op5"])
        problem.expand(run_placer(placer, problem))

    @pytest.mark.parametrize("seconds", [0.0, 1.0, 1e-12, 1e12])
    def test_ties_zeros_and_extremes(self, placer: Placer, seconds: float) -> None:
        """Equal, missing, tiny and huge costs."""
        names = [f"op{i}" for i in range(10)]
        problem = _problem(dict.fromkeys(names, seconds), [f"op{i // 2} -> op{i}" for i in range(1, 10)])
        assert np.isfinite(Simulator(problem).key(run_placer(placer, problem))[1])

    def test_loops(self, placer: Placer) -> None:
        """A back edge is no precedence."""
        problem = _problem(
            {"enter": 0.0, "merge": 0.0, "body": 1.0, "next": 0.0, "exit": 0.0},
            ["enter -> merge", "merge -> body", "body -> next", "next => merge", "merge -> exit"],
            trips={"merge": 21.0, "body": 20.0, "next": 20.0},
        )
        problem.expand(run_placer(placer, problem))

    @pytest.mark.parametrize("seed", range(4))
    def test_never_worse_than_a_single_device(self, placer: Placer, seed: int) -> None:
        """For placers that promise it."""
        if not self.beats_singles:
            return
        problem = random_problem(np.random.default_rng(seed), num_ops=60, num_devices=4, unit=1e-3)
        simulator = Simulator(problem)
        singles = [simulator.key(single_device(problem, d)) for d in range(problem.num_devices)]
        assert simulator.key(run_placer(placer, problem, seed=seed)) <= min(singles)

    def test_cites_its_source(self, placer: Placer) -> None:
        """Who had the idea."""
        assert len(placer.citation) > 20

    # ---- what the class declares -----------------------------------------------------------------------------------

    @pytest.fixture
    def name(self, placer: Placer) -> Iterator[str]:
        """A name of the placer's class for the length of a test."""
        with PLACERS.named("placer under test", type(placer)) as name:
            yield name

    def test_warm_starts(self, placer: Placer, name: str) -> None:
        """A start is refused, or the answer is never worse."""
        if not type(placer).accepts_starts:
            _refused(check_warm_start, name)
            return
        check_warm_start(name)
        problem = random_problem(np.random.default_rng(3), num_ops=30, unit=1e-3)
        drawn = [random_devices(np.random.default_rng(seed), problem) for seed in range(200)]
        simulator = Simulator(problem)
        start = min(drawn, key=simulator.key)
        placer.starts = (start,)
        assert simulator.key(run_placer(placer, problem)) <= simulator.key(start)

    def test_pretrained_weights(self, placer: Placer, name: str) -> None:
        """They are refused, or the constructor takes them."""
        if not type(placer).pretrained:
            _refused(check_pretrained, name, None, 1)
            return
        check_pretrained(name, None, 1)
        assert {"weights", "fine_tune"} <= {*inspect.signature(type(placer)).parameters}

    def test_controllers(self, placer: Placer, name: str) -> None:
        """They are refused, or what is trained has settings and learns."""
        if not type(placer).supports_controllers:
            _refused(check_controllers, name, SIMULATED)
            return
        check_controllers(name, SIMULATED)
        assert type(placer).learned
        _refused(check_controllers, name, MEASURED)

    def test_its_extra_is_installed(self, placer: Placer, name: str) -> None:
        """Tests run with all extras; a placer that needs none is never without."""
        check_extra(name)

    def test_its_settings_tell_all_of_themselves(self, placer: Placer) -> None:
        """A run directory compares them as text, so an address in memory would refuse every run that is resumed."""
        assert " at 0x" not in repr(placer.settings)

    def test_notes_and_proof(self, placer: Placer) -> None:
        """Notes are lines of text, and no placement is faster than what is proven."""
        problem = random_problem(np.random.default_rng(4), num_ops=30, unit=1e-3)
        devices = run_placer(placer, problem)
        assert isinstance(placer.notes, tuple)
        assert all(isinstance(note, str) and "\n" not in note for note in placer.notes)
        simulator = Simulator(problem)
        rng = np.random.default_rng(0)
        shown = [simulator.key(row) for row in (devices, *(random_devices(rng, problem) for _ in range(50)))]
        assert placer.proven_s <= min((step_s for over, step_s in shown if over == 0), default=np.inf) * (1 + 1e-9)

    def test_without_tensorflow(self, placer: Placer) -> None:
        """A placer that does not need it does not load it; only told where nothing else has loaded it."""
        if type(placer).needs_tensorflow or "tensorflow" in sys.modules:
            return
        run_placer(placer, random_problem(np.random.default_rng(5), num_ops=20))
        assert "tensorflow" not in sys.modules


def _refused(check: Callable[..., None], *arguments: object) -> None:
    with pytest.raises(InputError):
        check(*arguments)


def _problem(
    seconds: Mapping[str, float],
    edges: Sequence[str] = (),
    *,
    topology: Topology | None = None,
    rules: Constraints | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    variables: Mapping[str, int] | None = None,
    resource: Mapping[str, int] | None = None,
    trips: Mapping[str, float] | None = None,
    cpu_only: Sequence[str] = (),
) -> Problem:
    """A problem of named ops with given seconds on every device, with kernels, bonds and rules folded in."""
    graph = make_graph(
        sizes or dict.fromkeys(seconds, 100),
        edges,
        variables=variables,
        resource=resource,
        trips=trips,
        cpu_only=cpu_only,
    )
    topology = topology or make_topology(2, bandwidth=1e3, latency=0.0)
    table = np.repeat(np.array([*seconds.values()], np.float64)[:, None], len(topology.devices), axis=1)
    return formulate(graph, topology, CostTable(table, ("given",) * graph.num_ops), rules or Constraints())
