"""Chunks of equal work."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.acyclic import is_acyclic
from tfplace.group.topological import topological
from tfplace.testing import make_graph, make_problem, make_topology, random_graph


def chain(seconds):
    names = [f"op{i}" for i in range(len(seconds))]
    edges = [f"op{i} -> op{i + 1}" for i in range(len(names) - 1)]
    return make_problem(make_graph(dict.fromkeys(names, 4), edges), make_topology(2), seconds)


def test_equal_work():
    assert topological(chain([1.0] * 8), 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert topological(chain([3.0, 1.0, 1.0, 1.0]), 2).tolist() == [0, 1, 1, 1]
    assert topological(chain([0.0] * 6), 3).tolist() == [0, 0, 1, 1, 2, 2]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 80), count=st.integers(1, 20))
def test_chunks_of_one_kind_make_no_circle(seed, num_ops, count):
    graph = random_graph(np.random.default_rng(seed), num_ops, cpu_only=0.0)
    problem = make_problem(graph, make_topology(2))
    assert is_acyclic(problem, topological(problem, count))
