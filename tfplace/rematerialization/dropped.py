"""Dropped: results that are not kept for the backward pass, with the ops that make them again."""

from __future__ import annotations

from tfplace.core.arrays import FloatArray
from tfplace.rematerialization.stash import Stash


class Dropped:
    """Grows result by result; what is computed again is a function of what is dropped.

    To make a dropped result again, ops are run from the nearest results that are kept, through those that are dropped
    or that nothing keeps. Ops that read one another's results are a part: it is computed at once, when the backward
    pass first needs any of it, and takes memory for all that was dropped in it.

    Attributes:
      stash: what may be dropped.
      results: ops whose results are dropped.
      ops: ops that are computed again.

    Args:
      stash: what may be dropped.
      seconds: [V] of each op.
    """

    def __init__(self, stash: Stash, seconds: FloatArray) -> None:
        self.stash, self._seconds = stash, seconds
        self._readers: list[list[int]] = [[] for _ in stash.inputs]
        for v, read in enumerate(stash.inputs):
            for u, _ in read:
                self._readers[u].append(v)
        self.ops: set[int] = set()
        self.results: set[int] = set()
        self._part: dict[int, int] = {}
        self._bytes: dict[int, int] = {}

    def drop(self, v: int, most_bytes: float) -> bool:
        """Drops the results of an op, unless a part would have to make more than so many bytes again."""
        more = self._more(v)
        joined = {self._find(u) for w in more for u in self._beside(w) if u in self.ops}
        size = int(self.stash.kept_bytes[v]) + sum(self._bytes[part] for part in joined)
        if size > most_bytes:
            return False
        self.results.add(v)
        self.ops |= more
        self._part |= dict.fromkeys(more, v)
        self._part |= dict.fromkeys(joined, v)
        self._part[v] = v
        self._bytes[v] = size
        return True

    def more_seconds(self, v: int) -> float:
        """Seconds that it takes to make the results of one more op again."""
        return float(sum(self._seconds[w] for w in self._more(v)))

    def _more(self, v: int) -> set[int]:
        """Ops that are computed again if the results of `v` are dropped, and are not yet."""
        stash = self.stash
        out = {v, *stash.views[v]} - self.ops
        ahead = list(out)
        while ahead:
            for u, maker in stash.inputs[ahead.pop()]:
                kept = maker != v and maker not in self.results and stash.kept_bytes[maker] > 0
                if not kept and stash.possible[u] and u not in self.ops and u not in out:
                    out.add(u)
                    ahead.append(u)
        return out

    def _beside(self, w: int) -> list[int]:
        return [u for u, _ in self.stash.inputs[w]] + self._readers[w]

    def _find(self, v: int) -> int:
        while self._part[v] != v:
            v = self._part[v]
        return v
