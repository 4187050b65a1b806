"""HEFT against the paper's worked example, and its own parts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.group.flow import flow
from tfplace.placers.heft import _Busy, schedule, upward_rank
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

# Topcuoglu, Hariri, Wu 2002, figure 2 (the graph), table 1 (the costs), table 2 (the ranks), figure 3a (the schedule).
COSTS = [
    [14, 16, 9],
    [13, 19, 18],
    [11, 13, 19],
    [13, 8, 17],
    [12, 13, 10],
    [13, 16, 9],
    [7, 15, 11],
    [5, 11, 14],
    [18, 12, 20],
    [21, 7, 16],
]
EDGES = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
    (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip
RANKS = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]


@pytest.fixture
def paper():
    """Ten tasks on three processors; one tensor per edge, at one byte a second."""
    out = {t: [size for (src, _), size in EDGES.items() if src == t] for t in range(1, 11)}
    slot = {edge: [e for e in EDGES if e[0] == edge[0]].index(edge) for edge in EDGES}
    graph = make_graph(
        {f"n{t}": out[t] for t in range(1, 11)},
        [f"n{src}:{slot[src, dst]} -> n{dst}" for src, dst in EDGES],
    )
    topology = make_topology(3, bandwidth=1.0, latency=0.0, memory=2**40)
    return make_problem(graph, topology, np.array(COSTS, float))


def test_upward_ranks_of_the_paper(paper):
    np.testing.assert_allclose(upward_rank(paper, flow(paper)), RANKS, atol=1e-3)


def test_schedule_of_the_paper_takes_80(paper):
    plan = schedule(paper)
    assert plan.length_s == 80
    assert plan.unit_device.tolist() == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]
    np.testing.assert_array_equal(plan.start_s, [0, 27, 9, 18, 28, 26, 38, 57, 56, 73])


def test_plans_respect_precedence_and_one_op_at_a_time():
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed), 40)
        plan = schedule(problem)
        edges = flow(problem)
        assert np.all(plan.finish_s[edges.src] <= plan.start_s[edges.dst] + 1e-9)
        device = problem.spread(plan.unit_device)
        for d in range(problem.num_devices):
            mine = np.flatnonzero((device == d) & ~problem.graph.replicable & (plan.finish_s > plan.start_s))
            order = mine[np.argsort(plan.start_s[mine])]
            assert np.all(plan.finish_s[order[:-1]] <= plan.start_s[order[1:]] + 1e-9)


def test_gaps_are_found_and_joined():
    busy = _Busy()
    busy.add(2.0, 4.0)
    busy.add(6.0, 8.0)
    assert busy.earliest(0.0, 2.0) == 0.0
    assert busy.earliest(0.0, 2.5) == 8.0
    assert busy.earliest(3.0, 1.0) == 4.0
    assert busy.earliest(9.0, 5.0) == 9.0
    busy.add(4.0, 6.0)
    assert (busy.starts, busy.ends) == ([2.0], [8.0])


def test_a_unit_goes_where_its_first_op_went():
    graph = make_graph(
        {"read": 100, "left": 100, "right": 100, "update": ()},
        ["read -> left", "read -> right", "left -> update"],
        resource={"read": 0, "update": 0},
    )
    problem = make_problem(graph, make_topology(2, bandwidth=100.0, latency=0.0), [1.0, 3.0, 2.0, 1.0])
    plan = schedule(problem)
    assert plan.unit_device.tolist() == [0, 0, 1]
    assert plan.length_s == 5.0


def test_memory_turns_ops_away():
    graph = make_graph(dict.fromkeys("abcd", ()), variables=dict.fromkeys("abcd", 60))
    problem = make_problem(graph, make_topology(2, memory=[200, 70]), np.tile([5.0, 1.0], (4, 1)))
    assert np.bincount(schedule(problem).unit_device).tolist() == [3, 1]
