"""How urgent an op is: seconds of mean costs before and after it, on the longest path."""

# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import heapq

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.kernels import kernel
from tfplace.schedule.list_scheduling.tasks import Tasks


def upward_rank(t: Tasks) -> FloatArray:
    """[V] seconds from each op's start to the end of the step along the longest path of mean costs.

    H. Topcuoglu, S. Hariri, M.-Y. Wu: Performance-effective and low-complexity task scheduling for heterogeneous
    computing. IEEE Transactions on Parallel and Distributed Systems 13(3), 2002, equation 8. Departure: means are over
    the devices that are preferred for an op, not over a host that is only a last resort.
    """
    rank = t.mean_s.copy()
    _upward(rank, t.ops["first"].copy(), t.messages["reader_first"].copy(), t.reader, t.transfer_s)
    return rank


def downward_rank(t: Tasks) -> FloatArray:
    """[V] seconds from the start of the step to each op's start along the longest path of mean costs (equation 10)."""
    rank = np.zeros_like(t.mean_s)
    maker = t.messages["maker"][:-1].copy()
    _downward(rank, t.ops["input_first"].copy(), t.input, maker, t.transfer_s, t.mean_s)
    return rank


def by_rank(rank: FloatArray, of_op: IntArray) -> IntArray:
    """[V'] ops of units in order of falling rank.

    With a rank that never rises along an edge, such as the upward one, the order is topological: ops are numbered
    topologically, so ties, which zero costs make, keep producers first.
    """
    order: IntArray = np.argsort(-rank, kind="stable").astype(np.int32)
    return order[of_op[order] >= 0]


def ready_first(t: Tasks, of_op: IntArray, priority: FloatArray) -> IntArray:
    """[V'] a topological order of the ops of units that takes, of those ready, the one of highest priority."""
    first = t.ops["input_first"]
    missing = np.diff(first).tolist()
    out_first, reader_first = t.ops["first"].tolist(), t.messages["reader_first"].tolist()
    reader, urgent = t.reader.tolist(), (-priority).tolist()
    ready = [(urgent[v], v) for v in np.flatnonzero(of_op >= 0).tolist() if missing[v] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        v = heapq.heappop(ready)[1]
        order.append(v)
        for w in reader[reader_first[out_first[v]] : reader_first[out_first[v + 1]]]:
            missing[w] -= 1
            if missing[w] == 0:
                heapq.heappush(ready, (urgent[w], w))
    return np.array(order, np.int32)


@kernel
def _upward(
    rank: FloatArray, first: IntArray, reader_first: IntArray, reader: IntArray, transfer_s: FloatArray
) -> None:
    for v in range(len(rank) - 1, -1, -1):
        after = 0.0
        for m in range(first[v], first[v + 1]):
            for i in range(reader_first[m], reader_first[m + 1]):
                after = max(after, transfer_s[m] + rank[reader[i]])
        rank[v] += after


@kernel
def _downward(
    rank: FloatArray, first: IntArray, inputs: IntArray, maker: IntArray, transfer_s: FloatArray, mean_s: FloatArray
) -> None:
    for v in range(len(rank)):
        for i in range(first[v], first[v + 1]):
            m = inputs[i]
            rank[v] = max(rank[v], rank[maker[m]] + mean_s[maker[m]] + transfer_s[m])
