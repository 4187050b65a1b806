"""What tests of placers and simulators need: graphs, topologies and problems, by hand or at random.

`tfplace.testing.strategies` offers the same to hypothesis, which only that module imports.
"""

from tfplace.testing.graphs import make_graph, random_graph
from tfplace.testing.problems import make_problem, make_topology, random_devices, random_problem, random_topology

__all__ = [
    "make_graph",
    "make_problem",
    "make_topology",
    "random_devices",
    "random_graph",
    "random_problem",
    "random_topology",
]
