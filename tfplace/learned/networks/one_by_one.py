"""A policy that reads all units and decides them one after the other, with its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.learned.features.unit_features import Float32, adjacency, unit_features
from tfplace.learned.networks.attentional import Attentional
from tfplace.learned.networks.initial import draw_weights
from tfplace.learned.training.controller import Drawn
from tfplace.learned.training.losses import reinforce


class OneByOne:
    """The policy of one problem, a `tfplace.learned.training.controller.Learner`.

    Args:
      problem: what is placed.
      prior: [U, D] logits that are added to the policy's.
      rng: draws the first parameters.
      network: sizes of `Attentional`.
      entropy: weight of the mean entropy of a choice, which is made large.
      features: [U, F] what the policy sees of the units, instead of the paper's, which are of one problem alone.
    """

    epochs = 1

    def __init__(
        self,
        problem: Problem,
        prior: FloatArray,
        rng: np.random.Generator,
        network: Mapping[str, Any],
        *,
        entropy: float = 0.0,
        features: Float32 | None = None,
    ) -> None:
        own = [unit_features(problem), adjacency(problem)] if features is None else [features]
        self._features = tf.concat(own, axis=1)
        self._prior = tf.constant(prior, tf.float32)
        self._entropy = entropy
        self._network = Attentional(int(self._features.shape[1]), problem.num_devices, **network)
        self.variables = self._network.trainable_variables
        draw_weights(self.variables, rng)

    def sample(self, count: int, seed: IntArray, updates: int) -> Drawn:
        """[B, U] devices, drawn one after the other."""
        del updates
        return Drawn(self._sample(count, tf.constant(seed)).numpy())

    def gradients(
        self, drawn: Drawn, advantage: FloatArray, weight: FloatArray
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        """Of REINFORCE."""
        numbers = (tf.constant(x, tf.float32) for x in (advantage, weight))
        found: tuple[list[tf.Tensor], Mapping[str, tf.Tensor]] = self._gradients(tf.constant(drawn.devices), *numbers)
        return found

    @tf.function(autograph=False)
    def _sample(self, count: int, seed: tf.Tensor) -> tf.Tensor:
        return self._network.sample(self._features, self._prior, count, seed)

    @tf.function(autograph=False)
    def _gradients(
        self, devices: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            choice = self._network.distribution(self._features, self._prior, devices)
            entropy = tf.reduce_mean(choice.entropy())
            log_prob = tf.reduce_sum(choice.log_prob(devices), axis=1)
            loss = reinforce(log_prob, advantage, weight) - self._entropy * entropy
        return tape.gradient(loss, self.variables), {"loss": loss, "entropy": entropy}
