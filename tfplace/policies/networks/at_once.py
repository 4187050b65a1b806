"""A policy that scores all units of a problem at once, with its gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.learning.controller import Drawn
from tfplace.learning.graph_inputs import GraphInputs
from tfplace.learning.losses import ppo_clip
from tfplace.learning.prior import softmax
from tfplace.policies.networks.one_shot import OneShot
from tfplace.study.draws import pick


class AtOnce:
    """The policy of one problem, a `tfplace.learning.controller.Learner` with the objective of PPO.

    Args:
      inputs: the problem.
      network: scores it.
      prior: [U, D] logits that are added to the network's; by default those of the inputs.
      clip: of PPO.
      entropy: weight of the mean entropy of a choice, which is made large.
    """

    def __init__(
        self, inputs: GraphInputs, network: OneShot, prior: FloatArray | None = None, *, clip: float, entropy: float
    ) -> None:
        self._inputs = inputs if prior is None else inputs._replace(prior=prior.astype(np.float32)[inputs.order])
        self._network = network
        self._clip = clip
        self._entropy = entropy
        self.variables = network.trainable_variables

    def sample(self, count: int, seed: IntArray, updates: int) -> Drawn:
        """[B, U] devices, each unit's drawn by itself."""
        del updates
        logits = self._network.logits(self._inputs)
        share = softmax(logits)
        rows = pick(np.random.default_rng(seed).random((count, len(logits))), share)
        log_prob = np.log(share + 1e-30)
        return Drawn(self._inputs.units_of(rows), {"rows": rows, "log_prob": log_prob[np.arange(len(logits)), rows]})

    def gradients(
        self, drawn: Drawn, advantage: FloatArray, weight: FloatArray
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        """Of `ppo_clip` per unit, less the entropy."""
        logits = tf.constant(self._network.logits(self._inputs), tf.float32)
        numbers = (tf.constant(x, tf.float32) for x in (drawn.choices["log_prob"], advantage, weight))
        by_logits, metrics = self._by_logits(logits, tf.constant(drawn.choices["rows"]), *numbers)
        return self._network.gradients(self._inputs, by_logits.numpy()), metrics

    @tf.function(reduce_retracing=True)
    def _by_logits(
        self, logits: tf.Tensor, rows: tf.Tensor, old: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            log_share = tf.nn.log_softmax(logits)
            units = tf.range(tf.shape(rows)[1])[None] + tf.zeros_like(rows)
            log_prob = tf.gather_nd(log_share, tf.stack([units, rows], axis=-1))
            possible = log_share > -1e6
            entropy = -tf.reduce_sum(tf.where(possible, tf.exp(log_share) * log_share, 0.0), axis=1)
            mean_entropy = tf.reduce_mean(entropy)
            count = tf.cast(tf.shape(rows)[1], tf.float32)
            loss = ppo_clip(log_prob, old, advantage, self._clip, weight=weight) / count - self._entropy * mean_entropy
        return tape.gradient(loss, logits), {"loss": loss, "entropy": mean_entropy}
