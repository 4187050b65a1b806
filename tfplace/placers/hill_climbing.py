"""Hill climbing: only what is better is kept, again and again from new starts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import IntArray, LongArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.core.stepcost import Key
from tfplace.group.coarsen import hierarchy
from tfplace.local_search.batches import try_all
from tfplace.local_search.devices import single_devices
from tfplace.local_search.penalized_cost import begin
from tfplace.local_search.sampling import device_share, pick

Move = tuple[LongArray, int]
"""Units, and the device they go to."""


class HillClimbing(Placer):
    """Keeps any move that makes the placement better, until none does; then starts anew.

    A move puts a cluster of a level of `tfplace.group.coarsen.hierarchy`, or a single unit, on a device it may be on.
    The moves of one level are tried in a random order, round and round, until each has been tried since the last that
    helped; levels follow one another from coarse to fine, and round and round. A placement that no move of any level
    makes better is a local optimum, where the climb ends. Better is what fits better, or fits as well and is faster; a
    move that changes neither is not kept. What would be slower is given up while it is simulated.

    The first climb starts from the best single device, the others from a random device for each group of a random
    level. If there are at most 2,000 placements, all of them are tried instead.

    Exprimo's hill climbing moves single units only and tries them in their order, from random starts, or at random,
    from one device; `clusters=False` is the same in random order.

    Args:
      starts: [U] placements, from the best of which the first climb starts; by default everything on each device in
        turn.
      clusters: move clusters too; otherwise only single units.
    """

    citation = (
        "S. Russell, P. Norvig: Artificial Intelligence, A Modern Approach, section 4.1 (first-choice hill climbing, "
        "random restarts); for placement as in Exprimo, github.com/eivindlie/exprimo."
    )
    accepts_starts = True
    supports_workers = True

    def __init__(self, starts: Sequence[IntArray] = (), clusters: bool = True) -> None:
        self.starts = tuple(starts)
        self.clusters = clusters

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up, nothing can move, or all is tried."""
        starts = self.starts or single_devices(context.problem)
        start, key, _ = begin(context, starts)
        if not try_all(context):
            self._climbs(context, start.copy(), key)
        return start if context.best is None else context.best

    def _climbs(self, context: SearchContext, devices: IntArray, key: Key) -> None:
        """Climbs from `devices`, which cost `key`, then from one random placement after the other."""
        units = np.arange(context.problem.num_units, dtype=np.int32)
        labels = [units, *hierarchy(context.problem)] if self.clusters else [units]
        levels = [_moves(context.problem, label) for label in reversed(labels)]
        share = device_share(context.problem)
        while True:
            climb(context, levels, devices, key)
            label = labels[int(context.rng.integers(len(labels)))]
            devices = pick(context.rng.random((1, int(label.max()) + 1))[:, label], share)[0]
            key = context.key(devices)


def climb(context: SearchContext, levels: Sequence[Sequence[Move]], devices: IntArray, key: Key) -> None:
    """Changes [U] `devices`, which cost `key`, until no move of any level makes them better.

    Raises:
      BudgetSpentError: from the context.
    """
    quiet = 0
    for moves in itertools.cycle(levels):
        before, key = key, _climb_level(context, moves, devices, key)
        quiet = 1 if key < before else quiet + 1
        if quiet >= len(levels):
            return


def _climb_level(context: SearchContext, moves: Sequence[Move], devices: IntArray, key: Key) -> Key:
    """Changes `devices` until no move of the level makes them better; their key."""
    tried = 0
    for index in itertools.cycle(context.rng.permutation(len(moves)).tolist()):
        if tried == len(moves):
            break
        tried += 1
        units, device = moves[index]
        old = devices[units]
        if (old == device).all():
            continue
        devices[units] = device
        # bytes come before seconds: while some are missing, a longer step may be better
        moved = context.key(devices, math.inf if key[0] else key[1])
        if moved < key:
            key, tried = moved, 0
        else:
            devices[units] = old
    return key


def _moves(problem: Problem, label: IntArray) -> list[Move]:
    """Every cluster of a level with every device it may be on, but for clusters that have no choice."""
    order: LongArray = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(int(label.max()) + 2)).tolist()
    clusters = [order[a:b] for a, b in itertools.pairwise(bounds)]
    choices = [np.flatnonzero(problem.allowed[units[0]]).tolist() for units in clusters]
    return [(units, d) for units, row in zip(clusters, choices, strict=True) if len(row) > 1 for d in row]
