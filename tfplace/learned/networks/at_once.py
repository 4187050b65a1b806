"""A policy that scores all units of a problem at once, with its gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.learned.features.graph_inputs import GraphInputs
from tfplace.learned.networks.one_shot import OneShot
from tfplace.learned.training.controller import Drawn
from tfplace.learned.training.losses import ppo_clip
from tfplace.local_search.sampling import pick


class AtOnce:
    """The policy of one problem, a `tfplace.learned.training.controller.Learner` with the objective of PPO.

    Args:
      inputs: the problem.
      network: scores it.
      together: [U] of the rows; see `tfplace.local_search.sampling.together`.
      clip: of PPO.
      epochs: see `Learner`.
      entropy: weight of the mean entropy of a choice, which is made large.
    """

    def __init__(
        self,
        inputs: GraphInputs,
        network: OneShot,
        together: IntArray,
        *,
        clip: float,
        epochs: int,
        entropy: float,
    ) -> None:
        self.epochs = epochs
        self._together = together
        self._inputs = inputs
        self._network = network
        self._clip = clip
        self._entropy = entropy
        self.variables = network.trainable_variables

    def sample(self, count: int, seed: IntArray, updates: int) -> Drawn:
        """[B, U] devices, drawn for many units together."""
        del updates
        return self.draw(count, seed)

    def draw(self, count: int, seed: IntArray, temperature: float = 1.0) -> Drawn:
        """The same with all logits divided by a temperature."""
        choice = tfd.Categorical(logits=self._network.logits(self._inputs) / temperature)
        share = choice.probs_parameter().numpy()
        keys = np.random.default_rng(seed).random((count, self._together.max(initial=0) + 1))
        rows = pick(keys[:, self._together], share)
        return Drawn(self._inputs.units_of(rows), {"rows": rows, "log_prob": choice.log_prob(rows).numpy()})

    def likeliest(self) -> IntArray:
        """[U] every unit where it is likeliest."""
        return self._inputs.units_of(self._network.logits(self._inputs).argmax(axis=1).astype(np.int32))

    def gradients(
        self, drawn: Drawn, advantage: FloatArray, weight: FloatArray
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        """Of `ppo_clip` per unit, less the entropy."""
        logits = tf.constant(self._network.logits(self._inputs), tf.float32)
        numbers = (tf.constant(x, tf.float32) for x in (drawn.choices["log_prob"], advantage, weight))
        by_logits, metrics = self._by_logits(logits, tf.constant(drawn.choices["rows"]), *numbers)
        return self._network.gradients(self._inputs, by_logits.numpy()), metrics

    @tf.function(reduce_retracing=True, autograph=False)
    def _by_logits(
        self, logits: tf.Tensor, rows: tf.Tensor, old: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            choice = tfd.Categorical(logits=logits)
            entropy, units = tf.reduce_mean(choice.entropy()), tf.cast(tf.shape(logits)[0], tf.float32)
            apart = ppo_clip(choice.log_prob(rows), old, advantage, self._clip, weight=weight) / units
            loss = apart - self._entropy * entropy
        return tape.gradient(loss, logits), {"loss": loss, "entropy": entropy}
