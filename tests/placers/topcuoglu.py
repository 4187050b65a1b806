"""The worked example of Topcuoglu, Hariri, Wu 2002: figure 2 (the graph), table 1 (the costs), table 2 (the ranks)."""

from __future__ import annotations

import numpy as np

from tfplace.testing import make_graph, make_problem, make_topology

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
UPWARD = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
DOWNWARD = [0.000, 31.000, 25.000, 22.000, 24.000, 27.000, 62.333, 66.667, 63.667, 93.333]
CRITICAL_PATH = [1, 2, 9, 10]


def example():
    """Ten tasks on three processors; one tensor per edge, at one byte a second."""
    out = {t: [size for (src, _), size in EDGES.items() if src == t] for t in range(1, 11)}
    slot = {edge: [e for e in EDGES if e[0] == edge[0]].index(edge) for edge in EDGES}
    graph = make_graph(
        {f"n{t}": out[t] for t in range(1, 11)},
        [f"n{src}:{slot[src, dst]} -> n{dst}" for src, dst in EDGES],
    )
    topology = make_topology(3, bandwidth=1.0, latency=0.0, memory=2**40)
    return make_problem(graph, topology, np.array(COSTS, float))
