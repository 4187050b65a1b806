"""Greedy: results are dropped by bytes saved at the peak per second of computing them again, until the step fits.

Simulation tells the peak and what is held then, and so what is worth to be dropped next. How much may be computed again
at once is tried from much to little: with less, results are kept in between, and copies take less memory themselves
(as the segments of T. Chen et al., arXiv:1604.06174, algorithm 3, whose budget it is). Dropping by bytes, seconds and
what has to be computed besides is what M. Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021, section 3, do
while a step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.stepcost import StepCost
from tfplace.rematerialization.dropped import Dropped
from tfplace.rematerialization.sqrt import sqrt_segments
from tfplace.rematerialization.stash import Stash
from tfplace.rematerialization.trial import Trial, Trials

_PARTS = (2, 4, 8, 16, 32)
"""The largest part that is computed again at once is that fraction of what the step keeps."""

_SEGMENTS = (None, 4, 6, 8, 12, 16, 24)
"""How many segments of equal bytes are tried where no such choice fits; None for the square root of the layers."""

_ROUNDS = 8
_SHORTEST_S = 1e-9
_AHEAD = 1.05
"""So much of what is missing is dropped before it is simulated again."""


def greedy(trials: Trials, limit: LongArray, goes_on: Callable[[], bool] = lambda: True) -> Trial:
    """The shortest step that was found within some memory, or the one that exceeds it least.

    Args:
      trials: the step.
      limit: [D] bytes that each device may use.
      goes_on: asked after each choice that drops something, whether to try another.
    """
    whole = trials(())
    if _excess(whole.cost, limit) == 0:
        return whole
    stash = Stash(trials.problem.graph)
    seconds = _seconds(trials)
    all_bytes = float(stash.kept_bytes[stash.droppable].sum())
    best = whole
    for part in _PARTS:
        for trial in _filled(trials, Dropped(stash, seconds), whole, all_bytes / part, limit):
            best = min(best, trial, key=lambda one: _key(one, limit))
            if not goes_on():
                return best
    for count in _SEGMENTS if _excess(best.cost, limit) else ():
        best = min(best, trials(sqrt_segments(trials.problem.graph, count)), key=lambda one: _key(one, limit))
        if not goes_on():
            break
    return best


def _filled(trials: Trials, dropped: Dropped, whole: Trial, most_bytes: float, limit: LongArray) -> Iterator[Trial]:
    """Drops results, the best first, as long as that helps."""
    trial = whole
    for _ in range(_ROUNDS):
        if _excess(trial.cost, limit) == 0 or not _drop(trials, dropped, trial, most_bytes, limit):
            return
        trial = trials([dropped.ops])
        yield trial


def _drop(trials: Trials, dropped: Dropped, trial: Trial, most_bytes: float, limit: LongArray) -> bool:
    """Drops what is held at the peaks of devices that exceed their limits, as much as is missing there."""
    found = False
    for d, missing in enumerate((trial.cost.peak_bytes - limit).tolist()):
        if missing <= 0:
            continue
        held = _held(trials, dropped, trial, d)
        worth = {v: held[v] / max(dropped.more_seconds(v), _SHORTEST_S) for v in held}
        left = _AHEAD * missing
        for v in sorted(worth, key=lambda v: -worth[v]):
            if dropped.drop(v, most_bytes):
                found = True
                left -= held[v]
            if left <= 0:
                break
    return found


def _held(trials: Trials, dropped: Dropped, trial: Trial, d: int) -> dict[int, int]:
    """Op -> bytes of its results that a device holds at its peak for late ops, and that can be dropped."""
    stash, when = dropped.stash, trial.peak_s[d]
    out = {}
    for v in np.flatnonzero(stash.droppable).tolist():
        users = [u for u in (v, *stash.readers[v]) if trials.op_device[u] == d]
        held = any(trial.finish_s[u] > when for u in users) and trial.start_s[v] <= when
        if held and v not in dropped.results:
            out[v] = int(stash.kept_bytes[v])
    return out


def _seconds(trials: Trials) -> FloatArray:
    """[V] of each op where it is."""
    table = trials.problem.costs.compute_s
    seconds: FloatArray = table[np.arange(len(table)), trials.op_device]
    return seconds


def _excess(cost: StepCost, limit: LongArray) -> int:
    return int(np.maximum(cost.peak_bytes - limit, 0).sum())


def _key(trial: Trial, limit: LongArray) -> tuple[int, float]:
    return _excess(trial.cost, limit), trial.cost.step_s
