"""Units that TensorFlow, the program or the user will not have split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping


def colocate(graph: OpGraph, extra: Iterable[Sequence[int]] = ()) -> Grouping:
    """Joins ops that must share a device; every other op is a unit of its own.

    Joined are ops that touch the same resource or reference variable, ops of one `_class` colocation group, and the ops
    of each list in `extra`. A replicable constant belongs to no unit, since it is copied to wherever it is read, unless
    one of those lists names it.

    Args:
      graph: the ops.
      extra: lists of op indices that the user wants together.
    """
    root = list(range(graph.num_ops))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    def join(ops: Sequence[int]) -> None:
        for v in ops[1:]:
            a, b = sorted((find(ops[0]), find(v)))
            root[b] = a

    forced: set[int] = set()
    for labels in (graph.resource, graph.colocation):
        for bonded in _by_label(labels):
            join(bonded)
    for ops in extra:
        join(ops)
        forced.update(ops)
    free = graph.replicable & ~np.isin(np.arange(graph.num_ops), list(forced)) & (graph.resource < 0)
    return _number([-1 if free[v] and graph.colocation[v] < 0 else find(v) for v in range(graph.num_ops)])


def _by_label(labels: IntArray) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for v, label in enumerate(labels.tolist()):
        if label >= 0:
            groups.setdefault(label, []).append(v)
    return list(groups.values())


def _number(roots: Sequence[int]) -> Grouping:
    ids: dict[int, int] = {}
    unit_of = [-1 if r < 0 else ids.setdefault(r, len(ids)) for r in roots]
    return Grouping(np.array(unit_of, np.int32), len(ids))
