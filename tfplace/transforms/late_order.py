"""When the backward pass can and must compute an op, counted in ops, and when copies of forward ops should start."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.control_flow import ControlFlow, control_flow
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.passes import late_ops

_NO_GRADIENTS = frozenset({"bool", "int32", "int64", "resource", "string", "variant"})
"""Types of tensors that gradients never have: of shapes, indices and handles, which come long before them."""


def whole_loops(graph: OpGraph, flow: ControlFlow) -> IntArray:
    """[V] a vertex for each op, one for all ops of a loop: what waits for a loop waits for all that it is given."""
    apart = np.where(flow.loop >= 0, graph.num_ops + flow.loop, np.arange(graph.num_ops))
    return np.unique(apart, return_inverse=True)[1].astype(np.int32)


@kept
def late_order(graph: OpGraph) -> LateOrder:
    """The backward pass of a graph."""
    return LateOrder(graph, late_ops(graph))


class LateOrder:
    """The backward pass as a partial order, in which a loop is as one op.

    Args:
      graph: [V] ops.
      late: [V] ops of the backward pass and after it.
    """

    def __init__(self, graph: OpGraph, late: BoolArray) -> None:
        flow = control_flow(graph)
        self._vertex = whole_loops(graph, flow)
        self._can_trigger = late & flow.always_ends & (flow.loop < 0) & ~graph.replicable
        size = int(self._vertex.max()) + 1
        self._after: list[set[int]] = [set() for _ in range(size)]
        self._gradients: list[list[int]] = [[] for _ in range(size)]
        for e in np.flatnonzero(late[graph.edge_src] & late[graph.edge_dst]).tolist():
            u, t = int(graph.edge_src[e]), int(graph.edge_tensor[e])
            a, b = int(self._vertex[u]), int(self._vertex[graph.edge_dst[e]])
            if a != b:
                self._after[a].add(b)
                if t >= 0 and graph.tensor_dtype[t] not in _NO_GRADIENTS and self._can_trigger[u]:
                    self._gradients[b].append(u)
        self._earliest, self._latest = self._times()

    def _times(self) -> tuple[list[int], list[int]]:
        """How many vertices each comes after at least, and as late as the longest path of all lets it be."""
        missing = [0] * len(self._after)
        for after in self._after:
            for b in after:
                missing[b] += 1
        order = [a for a, count in enumerate(missing) if not count]
        earliest = [0] * len(missing)
        for a in order:  # which grows
            for b in self._after[a]:
                earliest[b] = max(earliest[b], earliest[a] + 1)
                missing[b] -= 1
                if not missing[b]:
                    order.append(b)
        last = max(earliest)
        latest = [last] * len(missing)
        for a in reversed(order):
            latest[a] = min((latest[b] - 1 for b in self._after[a]), default=last)
        return earliest, latest

    def needed(self, readers: Iterable[int]) -> int:
        """The latest time at which the first of some late ops must run, so that the backward pass is not delayed."""
        return min(self._latest[int(self._vertex[v])] for v in readers)

    def triggers(self, readers: Iterable[int]) -> list[int]:
        """What copies that `readers` read should wait for: the last gradients to come before the copies are needed.

        They come to the readers, or to what depends on these, but depend on none of them: so copies that wait for such
        gradients, and readers that wait for the copies, wait for nothing that waits for them.

        Returns:
          The ops; none if there is no such gradient.
        """
        readers = list(readers)
        needed = self.needed(readers)
        reached = self.reached(readers, needed + 1)
        coming = self._coming(reached)
        if in_time := [u for u in coming if self._time(u) <= needed]:
            last = max(map(self._time, in_time))
            return [u for u in in_time if self._time(u) == last]
        coming = self._coming(self.reached(readers, max(self._earliest)))
        first = min(map(self._time, coming), default=0)
        return [u for u in coming if self._time(u) == first]

    def apart(self, ops: Iterable[int], readers: Iterable[int]) -> list[int]:
        """Those of some late ops for which copies that `readers` read can wait too: they come early and need none."""
        readers = list(readers)
        needed = self.needed(readers)
        reached = self.reached(readers, needed)
        return [
            v for v in ops if self._can_trigger[v] and self._time(v) <= needed and int(self._vertex[v]) not in reached
        ]

    def last(self, ops: Iterable[int]) -> list[int]:
        """Those of some late ops that no other one of them depends on: who waits for them waits for all."""
        ops = list(dict.fromkeys(ops))
        until = max((self._time(v) for v in ops), default=0)
        behind = [self.reached([v], until) for v in ops]
        return [
            v
            for v, after in zip(ops, behind, strict=True)
            if not any(int(self._vertex[u]) in after for u in ops if self._vertex[u] != self._vertex[v])
        ]

    def reached(self, readers: Iterable[int], until: int) -> set[int]:
        """Vertices of the readers, and of all that depends on them and can run by a time."""
        ahead = [int(self._vertex[v]) for v in readers]
        reached = set(ahead)
        while ahead:
            for b in self._after[ahead.pop()]:
                if b not in reached and self._earliest[b] <= until:
                    reached.add(b)
                    ahead.append(b)
        return reached

    def _time(self, v: int) -> int:
        return self._earliest[int(self._vertex[v])]

    def _coming(self, reached: set[int]) -> list[int]:
        """Gradients that come to some vertices from others, ascending."""
        return sorted({u for b in reached for u in self._gradients[b] if int(self._vertex[u]) not in reached})
