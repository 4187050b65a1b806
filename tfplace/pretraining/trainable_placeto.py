"""Placeto, trained on many graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.merge import merge_units
from tfplace.learned.features.graph_inputs import GraphInputs, graph_inputs
from tfplace.learned.features.sweep_state import SweepState
from tfplace.learned.networks.sweep import Sweeps
from tfplace.learned.networks.sweeping import Sweeper
from tfplace.learned.policies.placeto import alone, network_of
from tfplace.learned.training.baselines import standardised
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.local_search.devices import compute_devices
from tfplace.local_search.grouped_context import group_devices, labels
from tfplace.pretraining.device_symmetry import alike, named_by_use
from tfplace.pretraining.teacher import Known
from tfplace.pretraining.trainable import Taught, reward
from tfplace.simulation.evaluate import Simulator

_WRONG = (0.0, 0.02, 0.06, 0.15)
"""Parts of the visited units that are elsewhere than the best known placement has them, in sweeps side by side."""

_ELSEWHERE = (0.1, 0.3, 0.6)
"""The same of what sweeps begin with."""

_AGAIN = 0.25
"""How often sweeps go over what a sweep has made, and not over everything on one device."""

_SHARPER = 0.6

SETTINGS = PlacetoSettings(hidden=32, rounds=4)
"""Of what is trained."""


@dataclass(frozen=True, eq=False)
class PlacetoLesson:
    """A problem in groups; rows are those of its inputs.

    Attributes:
      problem: in groups.
      simulator: of it.
      inputs: of it.
      sweeper: of it.
      first: [G] what sweeps begin with.
      best: [G] the best known placement; devices that are alike are named by their first use.
      best_s: its step seconds.
      may: [G, D] where rows may be.
    """

    problem: Problem
    simulator: Simulator
    inputs: GraphInputs
    sweeper: Sweeper
    first: IntArray
    best: IntArray
    best_s: float
    may: BoolArray


class TrainablePlaceto:
    """A `Trainable`.

    Imitation is of what each visit should do, in sweeps over several placements, of which some visits went wrong, so
    that the policy learns to go on from its own mistakes (as in S. Ross, G. Gordon, D. Bagnell: A Reduction of
    Imitation Learning and Structured Prediction to No-Regret Online Learning, AISTATS 2011, where the mistakes are its
    own). Reinforcement is that of `Placeto`'s fine-tuning.

    Args:
      seed: of the first weights.
      settings: constants.
    """

    def __init__(self, seed: int, settings: PlacetoSettings = SETTINGS) -> None:
        self._settings = settings
        self._network = network_of(settings, np.random.default_rng(seed))
        self._network.serve_all()

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """See `Trainable`."""
        return self._network.variables

    @property
    def settings(self) -> Mapping[str, Any]:
        """See `Trainable`."""
        return {name: getattr(self._settings, name) for name in ("groups", "hidden", "rounds")}

    @property
    def constants(self) -> Mapping[str, Any]:
        """See `Trainable`."""
        constants: Mapping[str, Any] = asdict(self._settings)
        return constants

    def lesson(self, problem: Problem, known: Known) -> PlacetoLesson:
        """See `Trainable`."""
        label = labels(problem, self._settings.groups)
        grouped = merge_units(problem, label)
        best = group_devices(problem, label, known.devices)
        inputs = graph_inputs(grouped)
        return PlacetoLesson(
            grouped,
            Simulator(grouped, threads=1),
            inputs,
            Sweeper(grouped, inputs, self._settings.rounds),
            inputs.rows_of(alone(grouped)),
            named_by_use(inputs.rows_of(best), alike(grouped)),
            known.key[1],
            grouped.allowed[inputs.order],
        )

    def imitate(self, lesson: PlacetoLesson, rng: np.random.Generator) -> Taught:
        """See `Trainable`."""
        sides, units = len(_WRONG), len(lesson.first)
        shape = (sides, units)
        elsewhere = self._anywhere(lesson, sides, rng)
        before = np.repeat(lesson.first[None], sides, axis=0)
        for n, kind in enumerate(rng.integers(4, size=sides).tolist()):
            if kind == 1:
                moved = rng.random(units) < rng.choice(_ELSEWHERE)
                before[n] = np.where(moved, elsewhere[n], lesson.best)
            elif kind == 2:
                before[n] = elsewhere[n]
        wrong = rng.random(shape) < np.array(_WRONG)[:, None]
        visited = np.where(wrong, self._anywhere(lesson, sides, rng), lesson.best)
        relations = SweepState(lesson.sweeper.rows, before).follow(visited)
        actions = np.repeat(lesson.best[None], sides, axis=0)
        weight = 0.5 + 0.5 * units * lesson.inputs.weight  # a unit counts by itself, and by its seconds
        found, metrics = self._network.gradients(
            lesson.sweeper.told, Sweeps(before, relations, actions), np.broadcast_to(weight, shape), 0.0
        )
        return Taught(found, metrics)

    def reinforce(self, lesson: PlacetoLesson, rng: np.random.Generator) -> Taught:
        """See `Trainable`."""
        first = lesson.first[None]
        if rng.random() < _AGAIN:
            first, _ = lesson.sweeper.sweep(self._network.arrays, first)
        before = np.repeat(first, self._settings.draws, axis=0)
        actions, relations = lesson.sweeper.sweep(self._network.arrays, before, rng)
        over, step_s = self._keys(lesson, actions)
        rewards = reward(lesson.problem, over, step_s)
        advantage = np.repeat(standardised(rewards)[:, None], len(lesson.first), axis=1)
        sweeps = Sweeps(before, relations, actions)
        found, metrics = self._network.gradients(lesson.sweeper.told, sweeps, advantage, 0.0)
        over_best = float(np.exp(np.log(step_s / lesson.best_s).mean()))
        return Taught(found, {**metrics, "reward": float(rewards.mean()), "over_best": over_best})

    def sharpen(self) -> None:
        """See `Trainable`."""
        self._network.sharpen(_SHARPER)

    def examine(self, lesson: PlacetoLesson, rng: np.random.Generator) -> dict[str, float]:
        """See `Trainable`: after one sweep, of the best that `Placeto` does at once, and of the mean first draw."""
        settings, found = self._settings, []

        def judge(rows: IntArray) -> FloatArray:
            found.append(self._keys(lesson, rows))
            return reward(lesson.problem, *found[-1])

        lesson.sweeper.improve(
            self._network.arrays,
            lesson.first,
            judge,
            rng,
            again=settings.again,
            draws=settings.draws,
            temperature=settings.temperature,
        )
        over, step_s = (np.concatenate(column) for column in zip(*found, strict=True))
        over_best = np.where(over > 0, np.inf, step_s / lesson.best_s)
        return {
            "once": float(over_best[0]),
            "best": float(over_best.min()),
            "drawn": float(np.exp(np.log(over_best[1 : 1 + settings.draws]).mean())),
        }

    def _keys(self, lesson: PlacetoLesson, rows: IntArray) -> tuple[LongArray, FloatArray]:
        return lesson.simulator.keys(lesson.inputs.units_of(rows))

    def _anywhere(self, lesson: PlacetoLesson, count: int, rng: np.random.Generator) -> IntArray:
        """[count, G] random devices that compute, of rows that may be on some; others stay where they begin."""
        compute = np.zeros(lesson.may.shape[1], bool)
        compute[compute_devices(lesson.problem)] = True
        may = lesson.may & compute
        drawn = np.where(may, rng.random((count, *may.shape)), -1.0).argmax(axis=2)
        return np.where(may.any(axis=1), drawn, lesson.first).astype(np.int32)
