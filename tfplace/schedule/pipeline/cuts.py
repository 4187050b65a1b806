"""The program that cuts the order of a pipeline's blocks into pieces."""

# Kernels take plain arguments, of which there are many; a NamedTuple's fields are of type Any once compiled.
# mypy: disable-error-code="no-any-return, untyped-decorator"
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.kernels import helper, kernel
from tfplace.schedule.pipeline.ideals import Ideals
from tfplace.schedule.pipeline.pieces import Pieces


class Table(NamedTuple):
    """The program's table. [N] ideals, [S] numbers of devices used of each kind, [K] kinds.

    Attributes:
      best: [N, S] the least largest load, or infinite.
      parent: [N, S] the ideal before the last piece.
      last: [N, S] the kind of device of the last piece.
      used: [S, K] devices used.
      spare: [S] weights of the devices not used.
      rest: [N] work of the blocks outside the ideal.
      seen: [N] scratch.
      queue: [N] scratch.
      seconds: [N, K] scratch.
      out: [N, K] scratch.
      into: [N, K] scratch.
      held: [N, 2] scratch, bytes of the blocks and of what they receive.
    """

    best: FloatArray
    parent: IntArray
    last: IntArray
    used: IntArray
    spare: FloatArray
    rest: FloatArray
    seen: IntArray
    queue: IntArray
    seconds: FloatArray
    out: FloatArray
    into: FloatArray
    held: LongArray


def make_table(pieces: Pieces, ideals: Ideals) -> Table:
    """An empty table."""
    n, kinds = len(ideals.member), len(pieces.number)
    used = np.indices((pieces.number + 1).tolist(), np.int32).reshape(kinds, -1).T.copy()
    best = np.full((n, len(used)), np.inf)
    best[0, 0] = 0.0
    scratch = [np.zeros((n, kinds)) for _ in range(3)]
    return Table(
        best=best,
        parent=np.full(best.shape, -1, np.int32),
        last=np.full(best.shape, -1, np.int32),
        used=used,
        spare=(pieces.number - used) @ pieces.weight,
        rest=np.where(ideals.member, 0.0, pieces.work).sum(axis=1),
        seen=np.full(n, -1, np.int32),
        queue=np.zeros(n, np.int32),
        seconds=scratch[0],
        out=scratch[1],
        into=scratch[2],
        held=np.zeros((n, 2), np.int64),
    )


@helper
def _state(t: Table, p: Pieces, s: int, k: int) -> int:
    """The state with one more device of kind k, -1 if there is none."""
    if t.used[s, k] == p.number[k]:
        return -1
    stride = 1
    for j in range(k + 1, len(p.number)):
        stride *= p.number[j] + 1
    return s + stride


@helper
def _least(row: FloatArray) -> float:
    least = row[0]
    for k in range(1, len(row)):
        least = min(least, row[k])
    return least


@helper
def _grow(p: Pieces, i: Ideals, t: Table, start: int, at: int, to: int, b: int) -> None:
    """Costs of the piece between `start` and `to`, which is that between `start` and `at` and block b."""
    kinds = len(p.number)
    for k in range(kinds):
        t.seconds[to, k], t.out[to, k], t.into[to, k] = t.seconds[at, k] + p.seconds[b, k], t.out[at, k], t.into[at, k]
    t.held[to, 0], t.held[to, 1] = t.held[at, 0] + p.held[b], t.held[at, 1]
    for x in range(p.touch_first[b], p.touch_first[b + 1]):
        m = p.touch[x]
        made = p.maker[m] == b
        maker_in = p.maker[m] >= 0 and i.member[at, p.maker[m]] and not i.member[start, p.maker[m]]
        # readers in the piece, and outside it before and after
        read_in, away, away_then = False, p.outside[m], p.outside[m]
        for r in range(p.first[m], p.first[m + 1]):
            c = p.reader[r]
            inside = i.member[at, c] and not i.member[start, c]
            read_in |= inside
            away |= not inside
            away_then |= not inside and c != b
        if made:
            if read_in:  # it was received, and no longer is
                for k in range(kinds):
                    t.into[to, k] -= p.into[m, k]
                t.held[to, 1] -= p.size[m]
            if away:
                for k in range(kinds):
                    t.out[to, k] += p.out[m, k]
        elif maker_in:
            if away and not away_then:
                for k in range(kinds):
                    t.out[to, k] -= p.out[m, k]
        elif not read_in:
            for k in range(kinds):
                t.into[to, k] += p.into[m, k]
            t.held[to, 1] += p.size[m]


@kernel
def cut(p: Pieces, i: Ideals, t: Table, first: int, end: int, limit_s: float) -> float:
    """Adds every piece that starts at one of the ideals `first` to `end`.

    Args:
      p: the blocks.
      i: the ideals.
      t: filled in.
      first: of the ideals, all before which have been done.
      end: where they end.
      limit_s: only solutions below it are wanted.

    Returns:
      The limit, or the value of the best solution found if that is lower.
    """
    full, kinds, states = len(t.rest) - 1, len(p.number), len(t.spare)
    slack = 1 + 1e-9
    for start in range(first, end):
        if _least(t.best[start]) >= limit_s:
            continue
        t.seen[start], t.queue[0], n = start, start, 1
        for k in range(kinds):
            t.seconds[start, k] = t.out[start, k] = t.into[start, k] = 0.0
        t.held[start, 0] = t.held[start, 1] = 0
        q = 0
        while q < n:
            at = t.queue[q]
            q += 1
            for k in range(kinds if at != start else 0):
                load = t.seconds[at, k] + t.out[at, k] + t.into[at, k]
                if load >= limit_s or t.held[at, 0] + t.held[at, 1] > p.limit[k]:
                    continue
                for s in range(states):
                    then = _state(t, p, s, k)
                    value = max(t.best[start, s], load)
                    if then < 0 or value >= limit_s or value >= t.best[at, then]:
                        continue
                    if t.rest[at] > t.spare[then] * limit_s * slack:
                        continue
                    t.best[at, then], t.parent[at, then], t.last[at, then] = value, start, k
                    if at == full:
                        limit_s = value
            for x in range(i.first[at], i.first[at + 1]):
                to = i.larger[x]
                if t.seen[to] == start:
                    continue
                t.seen[to] = start
                _grow(p, i, t, start, at, to, i.added[x])
                if _least(t.seconds[to]) < limit_s:
                    t.queue[n] = to
                    n += 1
    return limit_s
