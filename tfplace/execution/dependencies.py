"""Which ops of a placed graph come before which, and how they can be put together without a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, freeze
from tfplace.core.control_flow import control_flow, idle_constants
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.xla_ops import EMPTY_LISTS
from tfplace.execution.waits import Waits

GIVEN = frozenset({"_Arg", "Placeholder", "VarHandleOp", "VariableV2", "Variable"})
"""Arguments and state: nothing runs there."""


@dataclass(frozen=True)
class Dependencies:
    """An acyclic graph of what runs: ops, and the joints at which they wait for each other.

    An outermost loop is one vertex, since what leaves it may come from anything that enters, by a later turn. Constants
    and empty lists that are copied are none, as each reader has a copy: the reader waits for what they wait for.

    Attributes:
      vertex: [V] of each op.
      before: vertex -> vertices that it reads or waits for.
    """

    vertex: IntArray
    before: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, graph: OpGraph, waits: Waits) -> Dependencies:
        """Those of a graph whose ops wait as told besides."""
        own = _own(graph)
        if not waits.joints and not waits.after:
            return own
        vertex = own.vertex.tolist()
        joints = {name: graph.num_ops + i for i, name in enumerate(waits.joints)}
        before = [*own.before, *[frozenset[int]() for _ in joints]]
        index = graph.index
        for name, after in waits.after.items():
            v = joints[name] if name in joints else vertex[index[name]]
            before[v] |= {joints[u] if u in joints else vertex[index[u]] for u in after} - {v}
        return cls(own.vertex, tuple(before))

    def order(self) -> list[int]:
        """The vertices, each after those before it."""
        done = [False] * len(self.before)
        out: list[int] = []
        for root in range(len(self.before)):
            todo = [root]
            while todo:
                v = todo[-1]
                missing = [u for u in self.before[v] if not done[u]]
                todo += missing
                if not missing:
                    todo.pop()
                    if not done[v]:
                        done[v] = True
                        out.append(v)
        return out


@kept
def _own(graph: OpGraph) -> Dependencies:
    """Those of a graph whose ops wait for nothing besides."""
    loop = control_flow(graph).loop.tolist()
    first = {one: v for v, one in reversed([*enumerate(loop)])}
    vertex = [v if one < 0 else first[one] for v, one in enumerate(loop)]
    before: list[set[int]] = [set() for _ in range(graph.num_ops)]
    for v, ops in enumerate(awaited(graph)):
        before[vertex[v]].update(vertex[u] for u in ops)
    return Dependencies(
        freeze(np.array(vertex, np.int32)), tuple(frozenset(some - {v}) for v, some in enumerate(before))
    )


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


def changes(before: Sequence[frozenset[int]], order: Sequence[int], label: Sequence[int]) -> list[int]:
    """The most changes of label on a path to each vertex: this never falls along an edge, and rises between labels."""
    out = [0] * len(label)
    for v in order:
        out[v] = max((out[u] + (label[u] != label[v]) for u in before[v]), default=0)
    return out


def merged(
    before: Sequence[frozenset[int]], order: Sequence[int], label: Sequence[int], level: Sequence[int]
) -> list[int]:
    """Blocks of vertices of one label that can each be done at once without a cycle; -1 for those of label -1.

    Vertices of one label and level are a block, as an edge between two such goes up a level. Blocks of one label are
    then joined, from low levels to high, where no path goes from one to the other through something else.

    Args:
      before: vertex -> vertices before it.
      order: the vertices, each after those before it.
      label: of each vertex.
      level: of each vertex, such as `changes`; never lower than of what is before it, and higher than of what is before
        it and has another label.
    """
    blocks: dict[tuple[int, int], int] = {}
    block = [blocks.setdefault((label[v], level[v]), len(blocks)) if label[v] >= 0 else -1 for v in range(len(label))]
    place = [block[v] if block[v] >= 0 else len(blocks) + v for v in range(len(label))]
    after: dict[int, set[int]] = {}
    lowest: dict[int, int] = {}
    for v in order:
        lowest[place[v]] = min(lowest.get(place[v], level[v]), level[v])
        for u in before[v]:
            if place[u] != place[v]:
                after.setdefault(place[u], set()).add(place[v])
    joined: dict[int, int] = {}

    def now(one: int) -> int:
        while one in joined:
            one = joined[one]
        return one

    def passes(start: int, end: int, top: int) -> bool:
        """Whether a path goes from `start` to `end` through another; levels above `top` cannot come back."""
        seen = {start, end}
        todo = [one for one in map(now, after.get(start, ())) if one not in seen]
        while todo:
            one = todo.pop()
            if one in seen or lowest[one] > top:
                continue
            seen.add(one)
            following = {now(next_one) for next_one in after.get(one, ())}
            if end in following:
                return True
            todo += following - seen
        return False

    last: dict[int, int] = {}
    for (kind, height), one in sorted(blocks.items(), key=lambda item: item[0][1]):
        start = last.get(kind)
        if start is None or passes(start, one, height):
            last[kind] = one
            continue
        joined[one] = start
        after[start] = {now(next_one) for next_one in after.get(start, set()) | after.pop(one, set())} - {start}
    return [-1 if one < 0 else now(one) for one in block]
