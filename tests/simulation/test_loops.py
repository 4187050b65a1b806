"""Loops over several devices: each is told in every turn whether the loop goes on."""

import numpy as np

from tests.simulation.test_oracle import check_agreement
from tfplace.simulation.evaluate import Simulator
from tfplace.testing.graphs import make_graph
from tfplace.testing.problems import make_problem, make_topology

TURNS = 10
TYPES = {"cond": "LoopCond", "switch": "Switch", "exit": "Exit"}


def loop_problem():
    """A loop whose body has an op that reads nothing but what another op of the body makes."""
    inside = ("merge", "less", "cond", "switch", "first", "second", "next")
    ops = dict.fromkeys(("enter", *inside, "exit"), 4) | {"less": 1, "cond": 1, "switch": (4, 4)}
    edges = ["enter -> merge", "merge -> less", "less -> cond", "merge -> switch", "cond -> switch"]
    edges += ["switch:1 -> first", "first -> second", "second -> next", "next => merge", "switch -> exit"]
    trips = dict.fromkeys(inside, float(TURNS))
    graph = make_graph(ops, edges, types=TYPES, trips=trips)
    return make_problem(graph, make_topology(2), np.ones((graph.num_ops, 2)))


def test_each_device_with_an_op_of_the_body_is_sent_the_condition():
    problem = loop_problem()
    names = problem.graph.op_names
    apart = np.array([int(name == "second") for name in names], np.int32)
    timeline = Simulator(problem).timeline(apart)
    sent = dict(zip(timeline.moved, timeline.moved_bytes.tolist(), strict=True))
    assert sent["cond"] == TURNS and timeline.moved_dst[timeline.moved.index("cond")] == 1
    check_agreement(problem, problem.gather(apart))


def test_what_comes_after_a_loop_is_not():
    problem = loop_problem()
    last = np.array([int(name == "exit") for name in problem.graph.op_names], np.int32)
    timeline = Simulator(problem).timeline(last)
    assert "cond" not in timeline.moved
    check_agreement(problem, problem.gather(last))
