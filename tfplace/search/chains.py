"""Annealings of one problem side by side, which exchange where they are."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.search_context import Left
from tfplace.core.stepcost import Key
from tfplace.local_search.annealing import SECOND_CYCLE, temperature
from tfplace.local_search.penalized_cost import PenalizedCost
from tfplace.search.parts import Done, Part, Walk
from tfplace.search.team import Team

_EXCHANGES = 5
"""Parts of a run, before each of which chains exchange places; the temperature's first cycle ends with one of them.
More exchanges gave longer steps: all chains are soon near one place."""

_ROUND_S = (0.2, 10.0)
_ROUND_EVALUATIONS = 400
"""A part is a round or several: at least so many seconds, or evaluations of each chain, and at most so many seconds."""


@dataclass(frozen=True, eq=False)
class Chain:
    """One annealing.

    Attributes:
      name: under which what it finds is logged.
      walk: where it is.
      best: [U] the best placement of it, and of those whose places it took over.
      best_key: what that costs.
    """

    name: str
    walk: Walk
    best: IntArray
    best_key: Key

    @classmethod
    def begin(cls, name: str, start: IntArray, key: Key) -> Chain:
        """From [U] devices, which have that key."""
        return cls(name, Walk(start, key, key), start, key)

    def after(self, done: Done) -> Chain:
        """When a part of it has been done; the same if that was lost."""
        walk = done.walk or self.walk
        if done.devices is None or done.key is None or done.key >= self.best_key:
            return replace(self, walk=walk)
        return Chain(self.name, walk, done.devices, done.key)

    def from_best(self) -> Chain:
        """With its best placement as where it is."""
        return replace(self, walk=replace(self.walk, devices=self.best, key=self.best_key))


class Chains:
    """Simulated annealing on several workers: parallel chains with mixing of states.

    K.-W. Chu, Y. Deng, J. Reinitz: Parallel Simulated Annealing by Mixing of States. Journal of Computational Physics
    148, 1999: every chain anneals with the same temperatures, and every so often each goes on from the place of a chain
    that is drawn with the Boltzmann probability of its energy. Poor places die out, and all chains end near the best.

    Departures: the temperature falls as in `tfplace.local_search.annealing`, in two cycles, of which the second begins
    with the chains' best placements; places are drawn systematically, so that equal ones are all kept; and chains take
    over the price of missing memory with the place.

    Places are exchanged after each fifth of the run. Whatever a worker finds is told after a round, of at most ten
    seconds: that is what a worker that is killed, or Ctrl-C, can lose.

    Args:
      team: searches.
      until: part of the context's budget that is spent when they are done.
      exchange: whether they do; otherwise each goes its own way, and nothing of it is kept in a run's directory.
    """

    def __init__(self, team: Team, until: float = 1.0, *, exchange: bool = True) -> None:
        self._team = team
        self._until = until
        self._exchanges = exchange
        self._chains: list[Chain] = []
        self._round, self._rounds, self._begun = 0, 1, 0.0

    def run(self, chains: Sequence[Chain]) -> list[Chain]:
        """The chains when they are done; with exchanges as many as there are workers."""
        self._chains, self._begun = [*chains], self._team.context.spent
        self._rounds = self._how_many(self._team.context.left)
        return self._go_on()

    def resume(self, kept: Mapping[str, NDArray[Any]], name: str) -> list[Chain]:
        """Goes on from what was kept of it by `SearchContext.save_checkpoint`.

        Args:
          kept: what was kept.
          name: under which what is found is logged.
        """
        self._round, self._rounds = int(kept["round"]), int(kept["rounds"])
        self._begun = float(kept["begun"])
        self._chains = _unpacked(kept, name)
        return self._go_on()

    def _how_many(self, left: Left) -> int:
        """Rounds in which the chains are annealed."""
        width = self._team.width
        part = (self._until - self._begun) / (1 - self._begun) if self._begun < 1 else 0.0
        least, most = 1.0, (left.evaluations or 0) * part / (width * _ROUND_EVALUATIONS)
        if left.seconds is not None:
            each_s = left.seconds * part / math.ceil(len(self._chains) / width)
            least, most = each_s / _ROUND_S[1], each_s / _ROUND_S[0]
        if least <= 1.0 and (not self._exchanges or most < _EXCHANGES):
            return 1
        return _EXCHANGES * math.ceil(least / _EXCHANGES)

    def _go_on(self) -> list[Chain]:
        context = self._team.context
        while self._round < self._rounds and context.spent < 1.0:
            self._prepare()
            begin, end = (n / self._rounds for n in (self._round, self._round + 1))
            makes = [functools.partial(_part, chain, (begin, end)) for chain in self._chains]
            for k, done in self._team.together(self._begun + (self._until - self._begun) * end, makes):
                self._chains[k] = self._chains[k].after(done)
            self._round += 1
            if self._exchanges:
                context.save_checkpoint(self._state)
        return self._chains

    def _prepare(self) -> None:
        """Goes back to the best placements between the cycles, and exchanges places."""
        spent, context = self._round / self._rounds, self._team.context
        if self._round and math.isclose(spent, SECOND_CYCLE):
            self._chains = [chain.from_best() for chain in self._chains]
        if not self._exchanges or self._round * _EXCHANGES % self._rounds:
            return
        price = PenalizedCost(context, self._chains[0].walk.first)
        price.weight = max(chain.walk.weight for chain in self._chains)
        energies = np.array([price(chain.walk.key) for chain in self._chains])
        heat_s = temperature(spent) * price.scale_s / context.problem.num_units
        self._chains = [self._chains[i] for i in drawn(energies, heat_s, self._team.width, context.rng)]

    def _state(self) -> dict[str, NDArray[Any]]:
        counts = {"round": self._round, "rounds": self._rounds, "begun": self._begun}
        return {name: np.asarray(value) for name, value in counts.items()} | _packed(self._chains)


def _part(chain: Chain, span: tuple[float, float], left: Left, seed: int) -> Part:
    return Part(chain.name, left, seed, walk=chain.walk, span=span)


def drawn(energies: FloatArray, heat_s: float, count: int, rng: np.random.Generator) -> list[int]:
    """Which of the chains the next ones go on from: systematic draws with Boltzmann's probabilities.

    Args:
      energies: [N] seconds; not all infinite, or all are equally probable.
      heat_s: the temperature, above 0.
      count: of the next ones.
      rng: draws.
    """
    least = energies.min()
    chance = np.exp(-(energies - least) / heat_s) if np.isfinite(least) else np.ones(len(energies))
    points = (rng.random() + np.arange(count)) / count
    found = np.searchsorted(np.cumsum(chance) / chance.sum(), points, side="right")
    return [int(i) for i in np.minimum(found, len(energies) - 1)]


_KEYS = ("key", "first", "best_key")


def _packed(chains: Sequence[Chain]) -> dict[str, NDArray[Any]]:
    """Arrays with a row for each chain."""
    keys = {
        "key": [chain.walk.key for chain in chains],
        "first": [chain.walk.first for chain in chains],
        "best_key": [chain.best_key for chain in chains],
    }
    return {
        "devices": np.stack([chain.walk.devices for chain in chains]),
        "best": np.stack([chain.best for chain in chains]),
        "weight": np.array([chain.walk.weight for chain in chains]),
        **{f"{name}.over": np.array([over for over, _ in rows], np.int64) for name, rows in keys.items()},
        **{f"{name}.step_s": np.array([step_s for _, step_s in rows]) for name, rows in keys.items()},
    }


def _unpacked(kept: Mapping[str, NDArray[Any]], name: str) -> list[Chain]:
    keys = [zip(kept[f"{name}.over"].tolist(), kept[f"{name}.step_s"].tolist(), strict=True) for name in _KEYS]
    rows = zip(kept["devices"], kept["best"], kept["weight"].tolist(), *keys, strict=True)
    return [
        Chain(name, Walk(devices, key, first, weight), best, best_key)
        for devices, best, weight, key, first, best_key in rows
    ]
