"""Moves that were tried on many graphs, what was known of them beforehand, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray, digest
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext, best_of
from tfplace.learned.policies.placeto import Placeto
from tfplace.learned.training.learned_move_selector import AMONG, LearnedMoveSelector
from tfplace.local_search.annealing import Annealing
from tfplace.local_search.devices import single_devices
from tfplace.local_search.move_features_kernel import Feature
from tfplace.local_search.move_selector import MoveSelector
from tfplace.local_search.penalized_cost import begin
from tfplace.pretraining.artifact_cache import Arrays, kept
from tfplace.pretraining.corpus import Entry
from tfplace.search.budget import Budget
from tfplace.search.search import Search

_AT_RANDOM = 0.3
_ARRAYS = ("move_features", "gains")


class Lessons(NamedTuple):
    """[N] moves: [N, F] their features, [N] gains, and the graph's fingerprint."""

    move_features: NDArray[np.float32]
    gains: NDArray[np.float32]
    fingerprint: str


class MoveSchool:
    """Searches on one of several graphs at a time, and writes down what moves it tries.

    Args:
      entries: by number.
      evaluations: of each search.
      folder: where what was written down is kept, a file for each search, which is read the next time.
    """

    def __init__(self, entries: Sequence[Entry], evaluations: int, folder: Path) -> None:
        self.entries = entries
        self.evaluations = evaluations
        self.folder = folder

    def search(self, number: int, alone: bool, values: Sequence[NDArray[np.float32]] | None, seed: int) -> Lessons:
        """One search.

        Args:
          number: of the entry.
          alone: whether it begins with everything on one device, rather than with what Placeto places.
          values: of the `LearnedMoveSelector` whose moves are tried, but for a part; without, all are drawn.
          seed: of everything random.

        Raises:
          InputError: a file is of another search, or damaged.
        """
        problem = self.entries[number].problem()

        def find() -> Arrays:
            recorder = _Recorder(
                None if values is None else LearnedMoveSelector(values), np.random.default_rng([seed, 1])
            )
            start = single_devices(problem)[0] if alone else placed(problem, seed)
            Search(problem, Budget(evaluations=self.evaluations), seed).run(Annealed(start, recorder), "moves")
            return dict(zip(_ARRAYS, recorder.written(), strict=True))

        case = self.entries[number].case
        name = f"{case.graph}@{case.topology}-{'alone' if alone else 'placed'}-{seed}.npz"
        of = f"{problem.fingerprint} {self.evaluations} {'all drawn' if values is None else digest(values)}"
        found = kept(self.folder / name, of, find, _ARRAYS)
        return Lessons(found["move_features"], found["gains"], problem.graph.fingerprint)


def search(
    school: MoveSchool, number: int, alone: bool, values: Sequence[NDArray[np.float32]] | None, seed: int
) -> Lessons:
    """`MoveSchool.search`: a task of workers."""
    return school.search(number, alone, values, seed)


class Annealed(Placer):
    """Anneals from one placement until the budget is used up.

    Args:
      start: [U].
      selector: which of the moves drawn are tried; by default all.
    """

    citation = "As local_search and placeto."

    def __init__(self, start: IntArray, selector: MoveSelector | None = None) -> None:
        self.start = start
        self.selector = selector

    def place(self, context: SearchContext) -> IntArray:
        """See `Placer.place`."""
        Annealing(context, *begin(context, [self.start]), self.selector).run()
        return best_of(context)


class _Recorder:
    """Picks as a selector would, but for a part that is left to chance, and remembers."""

    among = AMONG

    def __init__(self, selector: LearnedMoveSelector | None, rng: np.random.Generator) -> None:
        self._selector = selector
        self._rng = rng
        self._picked = np.zeros((0, len(Feature)), np.float32)
        self._move_features: list[NDArray[np.float32]] = []
        self._gains: list[NDArray[np.float32]] = []

    def pick(self, move_features: FloatArray, count: int) -> LongArray:
        order = self._rng.permutation(len(move_features))
        if self._selector is not None:
            best = self._selector.pick(move_features, len(move_features))
            chance = self._rng.random(len(move_features)) < _AT_RANDOM
            order = np.array([*dict.fromkeys([*np.where(chance, order, best).tolist(), *best.tolist()])], np.int64)
        self._picked = move_features[order[:count]].astype(np.float32)
        return order[:count]

    def tell(self, gains: FloatArray) -> None:
        self._move_features.append(self._picked[: len(gains)])
        self._gains.append(np.maximum(gains, -1.0).astype(np.float32))

    def written(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """[N, F] and [N]."""
        return np.concatenate([np.zeros((0, len(Feature)), np.float32), *self._move_features]), np.concatenate(
            [np.zeros(0, np.float32), *self._gains]
        )


def placed(problem: Problem, seed: int) -> IntArray:
    """[U] what Placeto places without moves."""
    return Search(problem, Budget(evaluations=100), seed).run(Placeto(moves=0), "placeto")
