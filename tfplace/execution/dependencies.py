"""Which ops of a placed graph come before which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, IntArray, LongArray, freeze
from tfplace.core.control_flow import control_flow, idle_constants
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.xla_ops import EMPTY_LISTS
from tfplace.execution.waits import Waits

GIVEN = frozenset({"_Arg", "Placeholder", "VarHandleOp", "VariableV2", "Variable"})
"""Arguments and state: nothing runs there."""


@dataclass(frozen=True, eq=False)
class Dependencies:
    """An acyclic graph of what runs: ops, and the joints at which they wait for each other.

    An outermost loop is one vertex, since what leaves it may come from anything that enters, by a later turn. Constants
    and empty lists that are copied are none, as each reader has a copy: the reader waits for what they wait for.

    Attributes:
      vertex: [V] of each op.
      first: [N + 1] offsets: vertex v waits for `before[first[v]]` to `before[first[v + 1] - 1]`.
      before: [E] vertices that others read or wait for, of each in rising order and once.
    """

    vertex: IntArray
    first: IntArray
    before: IntArray

    @classmethod
    def of(cls, graph: OpGraph, waits: Waits) -> Dependencies:
        """Those of a graph whose ops wait as told besides."""
        own = _own(graph)
        if not waits.joints and not waits.after:
            return own
        index, joints = graph.index, {name: graph.num_ops + i for i, name in enumerate(waits.joints)}
        at = {name: joints[name] if name in joints else int(own.vertex[index[name]]) for name in _named(waits)}
        added = [(at[u], at[name]) for name, after in waits.after.items() for u in after]
        return cls.made(own.vertex, graph.num_ops + len(joints), [own.pairs, np.array(added).reshape(-1, 2)])

    @classmethod
    def made(cls, vertex: IntArray, count: int, pairs: Sequence[NDArray[np.integer]]) -> Dependencies:
        """Those of [P, 2] pairs of a vertex of `count` and one that waits for it; none waits for itself."""
        src, dst = np.concatenate(pairs).astype(np.int64).T
        key = np.unique((dst * count + src)[src != dst])
        first = np.searchsorted(key, np.arange(count + 1, dtype=np.int64) * count).astype(np.int32)
        return cls(vertex, freeze(first), freeze((key % max(count, 1)).astype(np.int32)))

    @property
    def count(self) -> int:
        """N, the number of vertices."""
        return len(self.first) - 1

    @property
    def pairs(self) -> LongArray:
        """[E, 2] a vertex and one that waits for it."""
        return np.stack([self.before, np.repeat(np.arange(self.count), np.diff(self.first))], axis=1).astype(np.int64)


def _named(waits: Waits) -> set[str]:
    return {name for own, after in waits.after.items() for name in (own, *after)}


@kept
def _own(graph: OpGraph) -> Dependencies:
    """Those of a graph whose ops wait for nothing besides."""
    loop = control_flow(graph).loop
    vertex = np.arange(graph.num_ops, dtype=np.int32)
    _, firsts, of = np.unique(loop, return_index=True, return_inverse=True)
    vertex = np.where(loop < 0, vertex, firsts[of]).astype(np.int32)
    lengths = [len(ops) for ops in awaited(graph)]
    src = np.fromiter((u for ops in awaited(graph) for u in ops), np.int64, sum(lengths))
    dst = np.repeat(np.arange(graph.num_ops), lengths)
    return Dependencies.made(freeze(vertex), graph.num_ops, [np.stack([vertex[src], vertex[dst]], axis=1)])


@kept
def copied(graph: OpGraph) -> BoolArray:
    """[V] constants that are copied, and empty lists of a constant size."""
    out = graph.replicable.copy()
    for v, kind in enumerate(graph.op_types):
        if kind in EMPTY_LISTS:
            out[v] = bool(graph.replicable[graph.tensor_op[list(graph.inputs[v])]].all())
    return freeze(out)


@kept
def awaited(graph: OpGraph) -> Sequence[Sequence[int]]:
    """[V] ops that each op reads or waits for within a turn of a loop; of what is copied what that waits for."""
    is_copied, idle = copied(graph), idle_constants(graph, control_flow(graph))
    out: list[list[int]] = [[] for _ in range(graph.num_ops)]
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_back.tolist(), strict=True)
    for u, v, back in sorted(edges, key=lambda edge: edge[1]):
        if not back and not idle[v] and graph.op_types[u] not in GIVEN:
            out[v] += out[u] if is_copied[u] else [u]
    return out
