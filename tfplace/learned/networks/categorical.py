"""Independent categorical distributions, moved by proximal policy optimization."""

from __future__ import annotations

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.learned.training.host import on_host
from tfplace.learned.training.losses import ppo_kl


def descend(
    logits: FloatArray, devices: IntArray, advantage: FloatArray, *, steps: int, rate: float, beta: float
) -> tuple[FloatArray, dict[str, float]]:
    """Steps of gradient descent from the distribution that drew a batch.

    Args:
      logits: [G, D].
      devices: [B, G].
      advantage: [B].
      steps: how many.
      rate: of descent.
      beta: weight of the divergence; see `ppo_kl`.

    Returns:
      [G, D] logits, and the mean entropy of a group's choice before and the mean divergence after, in nats.

    Raises:
      InputError: see `on_host`.
    """
    with on_host():
        arrays = (tf.constant(logits), tf.constant(devices), tf.constant(advantage))
        moved, entropy, divergence = _descend(*arrays, steps=steps, rate=rate, beta=beta)
    return moved.numpy(), {"entropy": float(entropy), "divergence": float(divergence)}


@tf.function(reduce_retracing=True)
def _descend(
    logits: tf.Tensor, devices: tf.Tensor, advantage: tf.Tensor, *, steps: int, rate: float, beta: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    old = tfd.Categorical(logits=logits)
    old_log_prob = old.log_prob(devices)
    for _ in tf.range(steps):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            new = tfd.Categorical(logits=logits)
            apart = tf.reduce_sum(tfd.kl_divergence(old, new))
            loss = ppo_kl(new.log_prob(devices), old_log_prob, advantage, apart, beta)
        logits -= rate * tape.gradient(loss, logits)
    divergence = tf.reduce_mean(tfd.kl_divergence(old, tfd.Categorical(logits=logits)))
    return logits, tf.reduce_mean(old.entropy()), divergence
