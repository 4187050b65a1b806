"""Favorite children: which task should follow each task on its device, by a linear program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.schedule.list_scheduling.scheduler import Favourites
from tfplace.schedule.list_scheduling.tasks import Tasks

_EARLY = 1e-4
"""Weight of the mean start beside the length, so that the choice off the critical path matters too."""

_HALF = 0.5 + 1e-7

_METHODS = ("highs", "highs-ipm")  # the dual simplex ends without an answer for some graphs of a dozen thousand tasks


def no_favourites(t: Tasks) -> Favourites:
    """No task has one."""
    return Favourites(np.full(len(t.mean_s), -1, np.int32), np.zeros(len(t.mean_s)))


class Relaxed(NamedTuple):
    """The solution of the linear relaxation.

    Attributes:
      src: [P] task.
      dst: [P] a child of it.
      transfer_s: [P] mean seconds of all that it sends the child.
      apart: [P] from 0, the child follows on the same device, to 1, it does not.
      length_s: of the relaxed schedule.
    """

    src: IntArray
    dst: IntArray
    transfer_s: FloatArray
    apart: FloatArray
    length_s: float


def favourites(t: Tasks) -> Favourites:
    """Rounds the relaxation: a child apart by at most a half is a favorite.

    A task has at most one favorite child and is that of at most one parent: pairs are taken from the least apart on,
    of those alike the one with the longer transfer first, and left out if either end is taken. The relaxation's own
    constraints leave no conflict but at exactly a half.
    """
    relaxed = relax(t)
    child = np.full(len(t.mean_s), -1, np.int32)
    seconds = np.zeros(len(t.mean_s))
    parent = np.full(len(t.mean_s), -1, np.int32)
    order = np.lexsort((relaxed.dst, relaxed.src, -relaxed.transfer_s, np.round(relaxed.apart, 6)))
    for e in order[relaxed.apart[order] <= _HALF].tolist():
        a, b = relaxed.src[e], relaxed.dst[e]
        if child[a] < 0 and parent[b] < 0:
            child[a], parent[b], seconds[a] = b, a, relaxed.transfer_s[e]
    return Favourites(child, seconds)


def relax(t: Tasks) -> Relaxed:
    """Solves, with HiGHS, the relaxation of C. Hanen and A. Munier that Baechi's m-SCT uses.

    Minimize w over starts s and x in [0, 1] for every pair of a task and a child:

        s_i + p_i + c_ij x_ij <= s_j           (a favorite's transfer costs nothing)
        sum over children j of x_ij >= their number - 1
        sum over parents i of x_ij >= their number - 1
        s_i + p_i <= w

    with mean costs p and c. Departures: several messages between two tasks count as one, of the sum of their seconds;
    and the mean of all starts is added to w with a small weight, since w alone leaves all pairs off the critical path
    undetermined.

    C. Hanen, A. Munier: An approximation algorithm for scheduling dependent tasks on m processors with small
    communication delays. INRIA/IEEE Symposium on Emerging Technologies and Factory Automation, 1995.

    Raises:
      RuntimeError: the solver failed.
    """
    src, dst, transfer = pairs_of(t)
    tasks, pairs = len(t.mean_s), len(src)
    scale = float(t.mean_s.sum() + transfer.sum()) or 1.0  # the solver's tolerances are absolute
    p, c = t.mean_s / scale, transfer / scale
    each, rows = np.arange(pairs), np.arange(tasks)
    blocks: list[_Block] = [
        # columns: x [pairs], s [tasks], w
        (pairs, [(each, each, c), (each, pairs + src, 1.0), (each, pairs + dst, -1.0)], -p[src]),
        (tasks, [(rows, pairs + rows, 1.0), (rows, np.full(tasks, pairs + tasks), -1.0)], -p),
        *(_one_at_most(ends, each) for ends in (src, dst)),
    ]
    matrix, bound = _stack(blocks, pairs + tasks + 1)
    cost = np.concatenate([np.zeros(pairs), np.full(tasks, _EARLY / max(tasks, 1)), [1.0]])
    limits = [(0.0, 1.0)] * pairs + [(0.0, None)] * (tasks + 1)
    for method in _METHODS:
        found = linprog(cost, A_ub=matrix, b_ub=bound, bounds=limits, method=method)
        if found.x is not None:
            return Relaxed(src, dst, transfer, found.x[:pairs], float(found.x[-1]) * scale)
    raise RuntimeError(f"received no favourite children from HiGHS ({found.message}); expected a solution.")


_Entries = tuple[IntArray | LongArray, IntArray | LongArray, FloatArray | float]
_Block = tuple[int, list[_Entries], FloatArray]


def _one_at_most(ends: IntArray, each: LongArray) -> _Block:
    """Of the pairs at one end at most one is not apart; ends with a single pair need no row."""
    row, count = np.unique(ends, return_inverse=True, return_counts=True)[1:]
    several = count > 1
    number = np.cumsum(several) - 1
    mine = several[row]
    return int(several.sum()), [(number[row[mine]], each[mine], -1.0)], 1.0 - count[several].astype(np.float64)


def _stack(blocks: list[_Block], columns: int) -> tuple[csr_array, FloatArray]:
    rows, cols, values, bounds, first = [], [], [], [], 0
    for height, entries, bound in blocks:
        for row, column, value in entries:
            rows.append(row + first)
            cols.append(column)
            values.append(np.broadcast_to(value, row.shape))
        bounds.append(bound)
        first += height
    index = (np.concatenate(rows), np.concatenate(cols))
    return csr_array((np.concatenate(values), index), shape=(first, columns)), np.concatenate(bounds)


def pairs_of(t: Tasks) -> tuple[IntArray, IntArray, FloatArray]:
    """Each task with each child, ascending, and the mean seconds of all messages from one to the other."""
    count = len(t.mean_s)
    readers = np.diff(t.messages["reader_first"])
    maker = np.repeat(t.messages["maker"][:-1], readers).astype(np.int64)
    ids, index = np.unique(maker * count + t.reader, return_inverse=True)
    seconds = np.bincount(index, np.repeat(t.transfer_s, readers), len(ids)).astype(np.float64)
    return (ids // count).astype(np.int32), (ids % count).astype(np.int32), seconds
