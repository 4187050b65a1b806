"""Teaches which moves are worth a try, from what became of those that were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfplace.core.engine import Workers
from tfplace.errors import InputError
from tfplace.learned.training.learned_move_selector import POLICY, LearnedMoveSelector, lesson, stretched
from tfplace.learned.training.pretrained import Pretrained
from tfplace.pretraining.corpus import Entry
from tfplace.pretraining.move_lessons import Lessons, search

_BATCH = 256
_RATE, _DECAY = 2e-3, 1e-4
_LEAST_SCALE = 1e-3
_BETTER = 1e-5
_QUARTER = 0.25
_EXAM_SEED = 10**6

Values = list[NDArray[np.float32]]


@dataclass(frozen=True)
class MoveCourse:
    """Constants.

    Attributes:
      evaluations: of each search.
      rounds: of searches on all graphs; the first draws moves, later ones have what was learned from those before.
      hidden: width of the network.
      epochs: how often it sees each move.
      seed: of everything random.

    Raises:
      InputError: numbers that make no course.
    """

    evaluations: int = 1500
    rounds: int = 2
    hidden: int = 16
    epochs: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.evaluations, self.rounds, self.hidden, self.epochs) < 1:
            raise InputError(f"{self}", "numbers above 0")


def train(
    entries: Sequence[Entry], course: MoveCourse, workers: Workers, shown: Callable[[str, int, int], None]
) -> Pretrained:
    """Searches, learns, searches with that, and learns from both; then tries it on graphs that are held out.

    Args:
      entries: what is learned from, and what is held out.
      course: constants.
      workers: each with a `MoveSchool` of the entries.
      shown: is told the stage, what of it is done, and of how much.

    Raises:
      InputError: nothing to learn from.
      WorkersError: workers do not come back.
    """
    learned = [n for n, entry in enumerate(entries) if not entry.held_out]
    held = [n for n, entry in enumerate(entries) if entry.held_out]
    if not learned:
        raise InputError(f"{len(entries)} graphs, all held out", "some graphs to learn from")
    searches = _Searches(workers, shown)
    lessons: list[Lessons] = []
    values: Values | None = None
    for number in range(course.rounds):
        lessons += searches.on(learned, values, course.seed + number, f"searches {number + 1} of {course.rounds}")
        shown("network", number, course.rounds)
        values = fit(lessons, course)
    assert values is not None
    exams = searches.on(held, None, _EXAM_SEED + course.seed, "held-out graphs")
    firsts = [*zip(learned, lessons[::2], strict=False), *zip(held, exams[::2], strict=True)]
    card = {
        "moves": sum(len(one.gains) for one in lessons),
        "graphs": _counts(entries),
        "exams": _examined(LearnedMoveSelector(values), [entries[n].family for n in held for _ in range(2)], exams),
        "fingerprints": {entries[n].case.graph: one.fingerprint for n, one in firsts},
        "config": asdict(course),
    }
    return Pretrained(POLICY, {}, values, card)


def fit(lessons: Sequence[Lessons], course: MoveCourse) -> Values:
    """Parameters of a `LearnedMoveSelector`: least squares, by Adam."""
    keras.utils.set_random_seed(course.seed)
    x = stretched(np.concatenate([one.move_features for one in lessons]).astype(np.float64))
    y = lesson(np.concatenate([one.gains for one in lessons]).astype(np.float64))
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), _LEAST_SCALE)
    network = keras.Sequential([keras.layers.Dense(course.hidden, activation="relu"), keras.layers.Dense(1)])
    steps = course.epochs * -(-len(x) // _BATCH)
    rate = keras.optimizers.schedules.CosineDecay(_RATE, steps)
    network.compile(optimizer=keras.optimizers.AdamW(rate, weight_decay=_DECAY), loss="mse")
    network.fit((x - mean) / scale, y, batch_size=_BATCH, epochs=course.epochs, verbose=0)
    weights, biases, end_weights, end_bias = network.get_weights()
    return [np.asarray(a, np.float32) for a in (mean, scale, weights, biases, end_weights[:, 0], end_bias)]


@dataclass(frozen=True)
class _Searches:
    """Who searches, and who is told."""

    workers: Workers
    shown: Callable[[str, int, int], None]

    def on(self, numbers: Sequence[int], values: Values | None, seed: int, stage: str) -> list[Lessons]:
        """Two searches on each graph: from Placeto's placement, and from everything on one device."""
        cases = [(number, alone) for number in numbers for alone in (False, True)]
        futures = [self.workers.submit(search, number, alone, values, seed) for number, alone in cases]
        found = []
        for done, future in enumerate(futures):
            self.shown(stage, done, len(futures))
            found.append(future.result())
        return found


def _examined(
    selector: LearnedMoveSelector, families: Sequence[str], exams: Sequence[Lessons]
) -> dict[str, dict[str, float]]:
    """Of moves that were drawn on held-out graphs, family by family.

    How many make the step shorter, what part of those is in the quarter of which most is expected, and what part of
    what they gain together.
    """
    rows: dict[str, dict[str, float]] = {}
    for family in dict.fromkeys(families):
        move_features = np.concatenate(
            [one.move_features for one, of in zip(exams, families, strict=True) if of == family]
        )
        gains = np.concatenate([one.gains for one, of in zip(exams, families, strict=True) if of == family])
        first = selector.pick(move_features.astype(np.float64), int(_QUARTER * len(gains)))
        better, gained = gains > _BETTER, np.maximum(gains, 0.0)
        rows[family] = {
            "moves": len(gains),
            "better": float(better.mean()),
            "quarter_better": float(better[first].sum() / max(better.sum(), 1)),
            "quarter_gained": float(gained[first].sum() / max(gained.sum(), 1e-30)),
        }
    return rows


def _counts(entries: Sequence[Entry]) -> dict[str, Any]:
    rows: dict[str, dict[str, int]] = {}
    for entry in entries:
        row = rows.setdefault(f"{entry.family} on {entry.case.topology}", {"learned": 0, "held_out": 0})
        row["held_out" if entry.held_out else "learned"] += 1
    return rows
