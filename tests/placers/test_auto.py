"""The portfolio is at least as good as each of its members, and stops when nothing better exists."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tfplace.core.search_context import BudgetSpentError
from tfplace.placers.auto import MEMBERS, Auto, Found, Portfolio
from tfplace.registry import OBJECTIVES, PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def auto(problem, budget, seed=0):
    search = Search(problem, Budget.parse(budget), seed)
    context = search.context("auto")
    with contextlib.suppress(BudgetSpentError):
        Auto().place(context)
    return search, context


@pytest.mark.parametrize("seed", range(5))
def test_never_worse_than_a_member(seed):
    problem = random_problem(np.random.default_rng(seed), 60, 4, unit=1e-3, tight=seed % 2 == 0)
    _, context = auto(problem, 300)
    simulator = Simulator(problem)
    for name in MEMBERS:
        alone = Search(problem, Budget(evaluations=50), seed).context(name)
        assert context.best_key <= simulator.key(PLACERS[name]().place(alone))


def test_longer_budgets_are_used_and_help():
    problem = random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False)
    short, long = auto(problem, 50)[1], auto(problem, 4000)[1]
    assert long.best_key < short.best_key


def test_history_says_which_stage_earned_what():
    search, _ = auto(random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False), 2000)
    stages = [i.stage for i in search.history]
    assert stages[0] == "single"
    assert any(stage.startswith("local_search from") for stage in stages)
    keys = [i.key for i in search.history]
    assert keys == sorted(keys, reverse=True)


def test_notes_tell_which_member_the_answer_goes_back_to():
    problem = random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False)
    placer, search = Auto(), Search(problem, Budget(evaluations=2000), 0)
    with contextlib.suppress(BudgetSpentError):
        placer.place(search.context("auto"))
    origin = placer.notes[-1].removeprefix("auto: the answer goes back to ")
    assert origin in {*MEMBERS, "one device"}
    ends = [note for note in placer.notes if " from " in note]
    assert any(f"from {origin}:" in note for note in ends)


def test_places_without_tensorflow():
    program = """
        import sys
        import numpy as np
        import tfplace
        from tfplace.testing import random_problem

        placed = tfplace.place(random_problem(np.random.default_rng(0), 60, 4, unit=1e-3, ties=False), budget=300)
        assert any("placeto, pretrained" in note for note in placed.notes), placed.notes
        assert "tensorflow" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=300)


def test_a_time_budget_is_kept():
    search, context = auto(random_problem(np.random.default_rng(7), 200, 4, ties=False), "0.5s")
    assert 0.4 < search.seconds < 3.0
    assert context.best is not None


def test_no_member_begins_when_the_budget_is_spent(monkeypatch):
    problem, begun = random_problem(np.random.default_rng(7), 60, 4, ties=False), []
    monkeypatch.setattr("tfplace.placers.auto.run_member", lambda placer, share, name, origin: begun.append(name))
    run = Portfolio(Search(problem, Budget(evaluations=1), 0).context("auto"))
    run.construct([np.zeros(problem.num_units, np.int32)])
    assert not begun


def test_stops_at_the_bound():
    """A chain cannot be quicker than on one device."""
    graph = make_graph({f"x{i}": 8 for i in range(30)}, [f"x{i} -> x{i + 1}" for i in range(29)])
    search, context = auto(make_problem(graph, make_topology(3)), 10**7)
    assert search.evaluations < 100
    assert len(set(context.best.tolist())) == 1


def test_spreads_branches():
    """Six modules of four branches each: four devices, cheap links, so well under the time of one device."""
    ops, edges = {"in": 1000}, []
    last = "in"
    for m in range(6):
        for branch in range(4):
            ops |= {f"m{m}/b{branch}/x": 1000, f"m{m}/b{branch}/y": 1000}
            edges += [f"{last} -> m{m}/b{branch}/x", f"m{m}/b{branch}/x -> m{m}/b{branch}/y"]
        ops[f"m{m}/join"] = 1000
        edges += [f"m{m}/b{branch}/y -> m{m}/join" for branch in range(4)]
        last = f"m{m}/join"
    graph = make_graph(ops, edges)
    problem = make_problem(graph, make_topology(4, bandwidth=1e4, latency=0.0), 1.0)
    _, context = auto(problem, 20_000)
    alone = graph.num_ops  # a second each
    assert context.best_key[1] < 0.45 * alone


def test_scouts_as_far_as_the_budget_goes():
    problem = random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False)

    def scouts(budget):
        placer = Auto()
        search = Search(problem, Budget(evaluations=budget), 0)
        with contextlib.suppress(BudgetSpentError):
            placer.place(search.context("auto"))
        return [note.split(":")[1].strip() for note in placer.notes[2:-1]]

    few, many = scouts(400), scouts(20_000)
    assert len(few) == 1
    assert [name.split(" from ")[0] for name in many] == [
        *["local_search"] * 3,
        *["local_search after local_search"] * 2,
        "local_search",
    ]
    assert many[1] == "local_search from one device"
    assert len({*many}) == 6
    assert many[-1] == "local_search from the best"


def test_a_quick_placement_that_is_a_little_too_large_is_a_better_start_than_the_host():
    """Two heavy chains; a device holds one and a half of them, and the host is a hundred times slower."""
    chain = [f"{c}{i}" for c in "ab" for i in range(20)]
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(19)]
    variables = dict.fromkeys(chain, 2**20)
    graph = make_graph(dict.fromkeys(chain, 8), edges, variables=variables)
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], memory=2**25)
    slow = np.tile([1.0, 0.01, 0.01], (40, 1))
    problem = make_problem(graph, topology, slow)
    tight = dataclasses.replace(problem, memory_limit=np.array([2**40, 30 * 2**20, 30 * 2**20]))
    run = Portfolio(Search(tight, Budget(evaluations=1000), 0).context("auto"))
    on_host = np.zeros(tight.num_units, np.int32)
    too_large = np.where(np.arange(tight.num_units) % 40 < 32, 1, 2).astype(np.int32)
    for name, devices in (("host", on_host), ("too large", too_large)):
        run.found.append(Found(name, run.context.key(devices), devices, name))
    assert run.found[0].key < run.found[1].key  # what fits is better
    assert run.start(0, run.alone()).name == "too large"
    assert run.alone().devices.tolist() == [1] * tight.num_units


def test_by_throughput_loads_are_searched():
    problem = random_problem(np.random.default_rng(2), 80, 4, unit=1e-3, ties=False)
    search = Search(problem, Budget(evaluations=400), 0, evaluator=OBJECTIVES["throughput"](problem))
    placer = Auto()
    with contextlib.suppress(BudgetSpentError):
        placer.place(search.context("auto"))
    assert placer.notes[0].startswith("auto: constructed: ")
    assert all(
        "load_search from" in note for note in placer.notes[1:] if not any(w in note for w in ("stopped", "goes back"))
    )
    for name in ("contiguous", "heft", "single"):
        alone = Search(problem, Budget(evaluations=50), 0, evaluator=OBJECTIVES["throughput"](problem))
        assert search.best_key <= search.evaluator.key(alone.run(PLACERS[name](), name))


def test_a_member_that_fails_costs_nothing_but_itself():
    class Broken:
        citation = ""

        def place(self, context):
            raise ZeroDivisionError("by 0")

    PLACERS.add("m_etf", Broken)
    placer = Auto()
    run = Search(random_problem(np.random.default_rng(7), 60, 4), Budget(evaluations=2000), 0)
    run.run(placer, "auto")
    assert any("m_etf failed: ZeroDivisionError('by 0')" in note for note in placer.notes)
    assert any("local_search" in note for note in placer.notes)


def test_where_scouts_could_do_little_one_search_has_all_evaluations(monkeypatch):
    problem = random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False)
    for least, scouts in ((100, True), (3000, False)):
        monkeypatch.setattr("tfplace.placers.auto.LEAST", least)
        placer = Auto()
        Search(problem, Budget(evaluations=12_000), 0).run(placer, "auto")
        assert any("from one device" in note for note in placer.notes) == scouts


@pytest.mark.parametrize(("least", "searches"), [(1, 6), (10**9, 1)])
def test_by_the_clock_too(least, searches, monkeypatch):
    """What one evaluation takes tells how many a scout would have."""
    monkeypatch.setattr("tfplace.placers.auto.LEAST", least)
    placer = Auto()
    problem = random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False)
    Search(problem, Budget(seconds=1.0), 0).run(placer, "auto")
    found = [note for note in placer.notes if "% of the budget" in note]
    assert len(found) == searches
    assert ("from one device" in " ".join(found)) == (searches > 1)
