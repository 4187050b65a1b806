"""Objectives of policy gradients: pure functions of tensors.

Each returns a scalar to be made small, and refuses tensors of other ranks, which broadcasting would turn into another
objective without a word. Advantages are constants: no gradient flows through them.

A placement is B samples of M choices each. What is summed over the choices is their joint log-probability; a policy
that has only that gives it as [B, 1].
"""

from __future__ import annotations

import tensorflow as tf

from tfplace.errors import InputError


def reinforce(log_prob: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor | None = None) -> tf.Tensor:
    """The loss whose gradient is REINFORCE's.

    -sum over b of w[b] * A[b] * log p[b], divided by the sum of w: R. J. Williams: Simple Statistical
    Gradient-Following Algorithms for Connectionist Reinforcement Learning, Machine Learning 8, 1992; equation 3 of
    Mirhoseini 2017.

    Args:
      log_prob: [B] of what was sampled.
      advantage: [B] reward less baseline.
      weight: [B] 0 for samples that are left out, such as failed ones; by default all count alike.

    Raises:
      InputError: other ranks.
    """
    _ranks(log_prob=(log_prob, 1), advantage=(advantage, 1))
    return -_mean(tf.stop_gradient(advantage) * log_prob, weight)


def ppo_clip(
    log_prob: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, clip: float, *, weight: tf.Tensor | None = None
) -> tf.Tensor:
    """Proximal policy optimization with clipped ratios.

    -mean over b of sum over m of min(r * A, clip(r, 1 - c, 1 + c) * A) with r = exp(log p - log p_old): J. Schulman et
    al.: Proximal Policy Optimization Algorithms, 2017, equation 7.

    Args:
      log_prob: [B, M] of the choices, by the policy that is trained.
      old_log_prob: [B, M] by the one that sampled them.
      advantage: [B].
      clip: c, above 0.
      weight: [B] as for `reinforce`.

    Raises:
      InputError: other ranks, or a clip that is not above 0.
    """
    _ranks(log_prob=(log_prob, 2), old_log_prob=(old_log_prob, 2), advantage=(advantage, 1))
    if not clip > 0:
        raise InputError(f"clip {clip}", "a number above 0")
    ratio = _ratio(log_prob, old_log_prob)
    gain = tf.stop_gradient(advantage)[:, None]
    clipped = tf.clip_by_value(ratio, 1.0 - clip, 1.0 + clip)
    return -_mean(tf.reduce_sum(tf.minimum(ratio * gain, clipped * gain), axis=1), weight)


def ppo_kl(
    log_prob: tf.Tensor,
    old_log_prob: tf.Tensor,
    advantage: tf.Tensor,
    divergence: tf.Tensor,
    beta: float,
) -> tf.Tensor:
    """Proximal policy optimization with a penalty on the divergence from the policy that sampled.

    -mean over b of sum over m of r * A, plus beta * KL: Schulman et al. 2017, equation 8; the objective of Post's
    equation 11.

    Args:
      log_prob: [B, M] of the choices, by the policy that is trained.
      old_log_prob: [B, M] by the one that sampled them.
      advantage: [B].
      divergence: scalar, KL(old || new).
      beta: its weight, at least 0.

    Raises:
      InputError: other ranks, or a beta below 0.
    """
    _ranks(log_prob=(log_prob, 2), old_log_prob=(old_log_prob, 2), advantage=(advantage, 1), divergence=(divergence, 0))
    if beta < 0:
        raise InputError(f"beta {beta}", "a number of at least 0")
    gain = tf.reduce_sum(_ratio(log_prob, old_log_prob), axis=1) * tf.stop_gradient(advantage)
    return beta * divergence - tf.reduce_mean(gain)


def _ratio(log_prob: tf.Tensor, old_log_prob: tf.Tensor) -> tf.Tensor:
    return tf.exp(log_prob - tf.stop_gradient(old_log_prob))


def _mean(value: tf.Tensor, weight: tf.Tensor | None) -> tf.Tensor:
    """Over [B]; 0 if all weights are."""
    if weight is None:
        return tf.reduce_mean(value)
    _ranks(weight=(weight, 1))
    return tf.math.divide_no_nan(tf.reduce_sum(weight * value), tf.reduce_sum(weight))


def _ranks(**tensors: tuple[tf.Tensor, int]) -> None:
    for name, (tensor, rank) in tensors.items():
        found = tensor.shape.rank
        if found != rank:
            raise InputError(f"{name} of rank {found}", f"rank {rank}")
