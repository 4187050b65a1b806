"""GDP, trained on many graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import log_softmax, softmax

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.learned.features.graph_inputs import GraphInputs, graph_inputs
from tfplace.learned.policies.gdp import GdpSettings, network_of
from tfplace.learned.training.baselines import standardised
from tfplace.local_search.sampling import pick, together
from tfplace.pretraining.device_symmetry import alike, named_by_use
from tfplace.pretraining.teacher import Known
from tfplace.pretraining.trainable import Taught, reward
from tfplace.simulation.evaluate import Simulator

SETTINGS = GdpSettings()
"""Of what is trained."""

_SHARPER = 0.3
_LEAST = -30.0


@dataclass(frozen=True, eq=False)
class GdpLesson:
    """A problem; rows are those of its inputs.

    Attributes:
      problem: whose units are placed.
      simulator: of it.
      inputs: of it.
      together: [U] which of them draw together; see `tfplace.local_search.sampling.together`.
      best: [U] the best known placement; devices that are alike are named by their first use.
      best_s: its step seconds.
    """

    problem: Problem
    simulator: Simulator
    inputs: GraphInputs
    together: IntArray
    best: IntArray
    best_s: float


class TrainableGdp:
    """A `Trainable`.

    Imitation is of each unit's device, all at once. Reinforcement is REINFORCE on placements drawn side by side, each
    compared with the others: the paper's PPO needs several updates on one batch, and here each batch is another graph.
    What units that draw together came to is told each of them, with as little weight as there are many: as if each had
    drawn for itself, which is exact where they have the same probabilities.

    Args:
      seed: of the first weights.
      settings: constants.
    """

    def __init__(self, seed: int, settings: GdpSettings = SETTINGS) -> None:
        self._settings = settings
        self._network = network_of(settings, np.random.default_rng(seed))
        self._network.serve_all()

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """See `Trainable`."""
        variables: Sequence[tf.Variable] = self._network.trainable_variables
        return variables

    @property
    def settings(self) -> Mapping[str, Any]:
        """See `Trainable`."""
        names = ("hidden", "rounds", "heads", "layers", "segment", "attention", "superposition")
        return {name: getattr(self._settings, name) for name in names}

    @property
    def constants(self) -> Mapping[str, Any]:
        """See `Trainable`."""
        constants: Mapping[str, Any] = asdict(self._settings)
        return constants

    def lesson(self, problem: Problem, known: Known) -> GdpLesson:
        """See `Trainable`."""
        inputs = graph_inputs(problem)
        best = named_by_use(inputs.rows_of(known.devices), alike(problem))
        alike_rows = together(problem, inputs.order, self._settings.together)
        return GdpLesson(
            problem, Simulator(problem, threads=1), inputs, alike_rows, best.astype(np.int32), known.key[1]
        )

    def imitate(self, lesson: GdpLesson, rng: np.random.Generator) -> Taught:
        """See `Trainable`."""
        del rng
        logits, count = self._network.logits(lesson.inputs), len(lesson.best)
        log_share = log_softmax(logits, axis=1)
        wanted = np.eye(logits.shape[1])[lesson.best]
        weight = (0.5 + 0.5 * count * lesson.inputs.weight) / count  # a unit counts by itself, and by its seconds
        loss = -float((weight * np.maximum(log_share[np.arange(count), lesson.best], _LEAST)).sum())
        by_logits = weight[:, None] * (np.exp(log_share) - wanted)
        return Taught(self._network.gradients(lesson.inputs, by_logits), {"loss": loss})

    def reinforce(self, lesson: GdpLesson, rng: np.random.Generator) -> Taught:
        """See `Trainable`."""
        share = softmax(self._network.logits(lesson.inputs), axis=1)
        rows = self._drawn(lesson, share, self._settings.train.batch, rng)
        over, step_s = self._keys(lesson, rows)
        rewards = reward(lesson.problem, over, step_s)
        # the gradient of log p by the logits is the choice less the probabilities, of which the advantages sum up to 0
        taken = np.eye(share.shape[1])[rows]
        count = np.bincount(lesson.together)
        weight = 1 / (len(rows) * len(count) * count[lesson.together])  # units that draw together count as one
        by_logits = -np.einsum("b,bud->ud", standardised(rewards), taken) * weight[:, None]
        metrics = {"reward": float(rewards.mean()), "over_best": float(np.exp(np.log(step_s / lesson.best_s).mean()))}
        return Taught(self._network.gradients(lesson.inputs, by_logits), metrics)

    def sharpen(self) -> None:
        """See `Trainable`."""
        self._network.sharpen(_SHARPER)

    def examine(self, lesson: GdpLesson, rng: np.random.Generator) -> dict[str, float]:
        """See `Trainable`: with each unit where it is likeliest, of the best with draws, and of the mean draw."""
        logits = self._network.logits(lesson.inputs)
        share = softmax(logits / self._settings.temperature, axis=1)
        rows = np.concatenate([logits.argmax(axis=1)[None], self._drawn(lesson, share, self._settings.draws, rng)])
        over, step_s = self._keys(lesson, rows.astype(np.int32))
        over_best = np.where(over > 0, np.inf, step_s / lesson.best_s)
        return {
            "once": float(over_best[0]),
            "best": float(over_best.min()),
            "drawn": float(np.exp(np.log(over_best[1:]).mean())),
        }

    def _drawn(self, lesson: GdpLesson, share: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
        keys = rng.random((count, lesson.together.max(initial=0) + 1))
        return pick(keys[:, lesson.together], share)

    def _keys(self, lesson: GdpLesson, rows: IntArray) -> tuple[LongArray, FloatArray]:
        return lesson.simulator.keys(lesson.inputs.units_of(rows))
