"""Hypothesis strategies of graphs, topologies and problems. The only module of tfplace that needs hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tfplace.core.arrays import IntArray
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.testing.graphs import make_graph
from tfplace.testing.problems import make_problem, make_topology

OP_TYPES = (
    *(
        "Op",
        "Op",
        "Identity",
        "Reshape",
        "StopGradient",
        "Switch",
        "IdentityN",
        "VariableV2",
        "Add",
        "Relu",
        "SelectV2",
    ),
    *("Const", "Placeholder", "ReadVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ResourceScatterAdd"),
)
SECONDS = (0.0, 0.5, 1.0, 1.5, 2.0, 0.1)
SIZES = (0, 1, 2, 3, 100)


@st.composite
def graphs(draw: Any, max_ops: int = 10) -> OpGraph:
    """Graphs of 1 to `max_ops` ops with everything a graph can have, drawn so that a failure shrinks well."""
    count = draw(st.integers(1, max_ops))
    names = [f"op{i}" for i in range(count)]
    ops = {name: draw(st.lists(st.sampled_from(SIZES), max_size=3)) for name in names}
    edges = []
    for dst in range(1, count):
        for src in draw(st.lists(st.integers(0, dst - 1), max_size=4)):
            slot = draw(st.integers(-1, len(ops[names[src]]) - 1))
            edges.append(f"{'^' if slot < 0 else ''}{names[src]}:{max(slot, 0)} -> {names[dst]}")
    back = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=2))
    edges += [f"^{names[max(pair)]} => {names[min(pair)]}" for pair in back]
    some = st.sets(st.sampled_from(names), max_size=3)
    return make_graph(
        ops,
        edges,
        types={name: draw(st.sampled_from(OP_TYPES)) for name in names},
        variables={name: draw(st.sampled_from(SIZES)) for name in sorted(draw(some))},
        trips={name: draw(st.sampled_from((2.0, 3.0))) for name in sorted(draw(some))},
        resource=dict.fromkeys(sorted(draw(some)), 0),
        replicable=draw(st.sets(st.sampled_from(names), max_size=1)),
    )


@st.composite
def topologies(draw: Any, max_devices: int = 4) -> Topology:
    """Topologies of 1 to `max_devices` devices with half duplex, shared channels and ports."""
    count = draw(st.integers(1, max_devices))
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]

    def of_links(values: tuple[Any, ...]) -> dict[tuple[int, int], Any]:
        return {pair: draw(st.sampled_from(values)) for pair in pairs}

    return make_topology(
        count,
        duplex=[draw(st.sampled_from(("full", "half"))) for _ in range(count)],
        bandwidth=of_links((1.0, 2.0, 100.0)),
        latency=of_links((0.0, 0.5, 1.0, 0.1)),
        shared=of_links(((), (), ("switch",), ("switch", "bus"))),
        ports=of_links(("main", "main", "side")),
    )


@st.composite
def problems(draw: Any, max_ops: int = 10, max_devices: int = 4) -> Problem:
    """Problems in which every unit may be on any of some devices; memory limits are often too tight."""
    graph, topology = draw(graphs(max_ops)), draw(topologies(max_devices))
    devices = len(topology.devices)
    row = st.lists(st.sampled_from(SECONDS), min_size=devices, max_size=devices)
    free = make_problem(graph, topology, np.array([draw(row) for _ in range(graph.num_ops)]))
    mask = st.lists(st.booleans(), min_size=devices, max_size=devices).filter(any)
    allowed = np.array([draw(mask) for _ in range(free.num_units)], np.bool_).reshape(-1, devices)
    limit = [draw(st.sampled_from((1, 100, 10**6))) for _ in range(devices)]
    return make_problem(graph, topology, free.costs.compute_s, memory_limit=limit, allowed=allowed)


@st.composite
def placed_problems(draw: Any, max_ops: int = 10, max_devices: int = 4) -> tuple[Problem, IntArray]:
    """A problem and an allowed device for each of its units, [U]."""
    problem = draw(problems(max_ops, max_devices))
    choices = [draw(st.sampled_from(np.flatnonzero(row).tolist())) for row in problem.allowed]
    return problem, np.array(choices, np.int32)
