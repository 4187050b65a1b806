"""Topological: chunks of equal work along a topological order."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.acyclic import precedence
from tfplace.group.limits import check_count, finish
from tfplace.group.unit_graph import unit_graph


def topological(problem: Problem, count: int) -> IntArray:
    """[U] stretches of `precedence(problem).order` with about equal seconds, numbered by first unit.

    Units of different kinds in one stretch are different groups. Units of no seconds weigh as much as a thousandth of
    the mean, so that a graph without costs is cut evenly too.

    Args:
      problem: what is placed.
      count: at most so many groups, but for what `tfplace.group.limits.finish` says.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    graph = unit_graph(problem)
    order = precedence(problem).order
    total = float(graph.seconds.sum())
    work = graph.seconds[order] + (1e-3 * total / max(len(order), 1) or 1.0)
    middle = np.cumsum(work) - work / 2
    label = np.empty(len(order), np.int32)
    label[order] = np.minimum(middle / max(float(work.sum()), 1e-300) * count, count - 1)
    return finish(problem, label, count, graph)
