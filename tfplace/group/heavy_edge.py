"""Heavy edge: multilevel coarsening down to a number of groups."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.coarsen import coarsen
from tfplace.group.limits import check_count, finish
from tfplace.group.unit_graph import unit_graph


def heavy_edge(problem: Problem, count: int) -> IntArray:
    """[U] what `tfplace.group.coarsen.coarsen` joins over the heaviest edges, numbered by first unit.

    Units with only one device to be on are left out of that and joined afterwards, as far as `count` asks for.

    Args:
      problem: what is placed.
      count: at most so many groups, but for what `tfplace.group.limits.finish` says; exactly so many where the graph is
        connected enough.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    graph = unit_graph(problem)
    label: IntArray = np.arange(problem.num_units, dtype=np.int32)
    rest = graph._replace(room_bytes=np.where(graph.decided, -1.0, graph.room_bytes))
    goal = max(count - int(graph.decided.sum()), 1) + int(graph.decided[graph.kind].sum())
    for level in coarsen(rest, goal):
        label = level
    return finish(problem, label, count, graph)
