"""A grouper and a placer, with the gradient of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import sonnet as snt
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.learned.features.unit_features import neighbours, unit_edges, unit_features
from tfplace.learned.networks.attentional import Attentional
from tfplace.learned.networks.initial import draw_weights
from tfplace.learned.training.controller import Drawn
from tfplace.learned.training.losses import reinforce
from tfplace.local_search.devices import settle
from tfplace.local_search.sampling import device_share

if TYPE_CHECKING:
    from tfplace.learned.training.hierarchical_settings import HierarchicalSettings

NEIGHBOURS = 10
"""Producers, and as many consumers, that the grouper sees of a unit; 20 of both in TensorFlow's controller."""


class Hierarchy:
    """Draws a group for every unit, and a device for every group; a `tfplace.learned.training.controller.Learner`.

    Args:
      problem: what is placed.
      settings: constants.
      rng: draws the first parameters.
      start: [U] devices that the first distributions lean towards: each device gets groups of its own.
    """

    epochs = 1

    def __init__(
        self, problem: Problem, settings: HierarchicalSettings, rng: np.random.Generator, start: IntArray | None
    ) -> None:
        units, devices = problem.num_units, problem.num_devices
        self.settings = settings
        self._settled = np.stack([settle(problem, np.full(units, d, np.int32)) for d in range(devices)])
        self._groups = max(min(settings.groups, settings.groups_per_device * devices), devices)
        self._rows = tf.constant(unit_features(problem))
        self._seen = tf.concat([self._rows, neighbours(problem, NEIGHBOURS)], axis=1)
        self._src, self._dst = (tf.constant(ends) for ends in unit_edges(problem))
        self._group_prior, self._prior = (tf.constant(p, tf.float32) for p in self._priors(problem, start))
        self._grouper = snt.nets.MLP([settings.grouper, self._groups], w_init=tf.zeros, name="grouper")
        self._grouper(self._seen[:1])
        self._placer = Attentional(
            int(self._rows.shape[1]) + 2 * self._groups,
            devices,
            hidden=settings.hidden,
            embedding=settings.embedding,
            bidirectional=True,
            clip=settings.clip,
            temperature=settings.temperature,
            name="placer",
        )
        self.variables = (*self._grouper.trainable_variables, *self._placer.trainable_variables)
        draw_weights(self.variables, rng)

    def _priors(self, problem: Problem, start: IntArray | None) -> tuple[FloatArray, FloatArray]:
        """[U or 1, groups] and [groups, D] logits that are added to the grouper's and the placer's."""
        blind = np.tile(device_share(problem).mean(axis=0), (self._groups, 1))
        if start is None:
            return np.zeros((1, self._groups)), np.log(np.maximum(blind, 1e-30))
        lean, own = self.settings.lean, np.arange(self._groups) % problem.num_devices
        there = np.eye(problem.num_devices)[own]
        of_start = start[:, None] == own
        grouping = (1 - lean) / self._groups + lean * of_start / of_start.sum(axis=1, keepdims=True)
        return np.log(grouping), np.log(np.maximum((1 - lean) * blind + lean * there, 1e-30))

    def sample(self, count: int, seed: IntArray, updates: int) -> Drawn:
        """[B, U] devices: as many groupings as the settings say, and an equal part of B placements of each."""
        noisy = updates < self.settings.noise_updates
        groups, choice, noise = self._sample(count // self.settings.groupings, tf.constant(seed), noisy)
        labels = np.repeat(groups.numpy(), count // self.settings.groupings, axis=0)
        wanted = np.take_along_axis(choice.numpy(), labels, axis=1)
        devices = self._settled[wanted, np.arange(wanted.shape[1])]
        return Drawn(devices, {"groups": groups.numpy(), "choice": choice.numpy(), "noise": noise.numpy()})

    def gradients(
        self, drawn: Drawn, advantage: FloatArray, weight: FloatArray
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        """Of the sum of both REINFORCE terms."""
        numbers = (tf.constant(x, tf.float32) for x in (advantage, weight))
        choices = (tf.constant(drawn.choices[name]) for name in ("groups", "choice", "noise"))
        found: tuple[list[tf.Tensor], Mapping[str, tf.Tensor]] = self._gradients(*choices, *numbers)
        return found

    def _grouping(self) -> tfd.Categorical:
        return tfd.Categorical(logits=self._grouper(self._seen) + self._group_prior)

    def group_features(self, groups: tf.Tensor) -> tf.Tensor:
        """[G, F] of what the groups [U] contain: mean types and shapes, and parts of the edges from and to each group.

        Paper, section 2; both halves are divided by their row's sum, where TensorFlow's controller divides by one more
        than the row's largest.
        """
        count = tf.math.unsorted_segment_sum(tf.ones_like(groups, tf.float32), groups, self._groups)[:, None]
        rows = tf.math.unsorted_segment_sum(self._rows, groups, self._groups)
        pairs = tf.gather(groups, self._src) * self._groups + tf.gather(groups, self._dst)
        edges = tf.math.bincount(pairs, minlength=self._groups**2, maxlength=self._groups**2, dtype=tf.float32)
        edges = tf.reshape(edges, [self._groups, self._groups])
        both = tf.concat([edges, tf.transpose(edges)], axis=1)
        near = tf.math.divide_no_nan(both, tf.reduce_sum(both, axis=1, keepdims=True))
        return tf.concat([tf.math.divide_no_nan(rows, count), near], axis=1)

    @tf.function(autograph=False)
    def _sample(self, count: int, seed: tf.Tensor, noisy: bool) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        settings = self.settings
        groups = self._grouping().sample(settings.groupings, seed=seed)
        shape = [settings.groupings * count, self._groups, self._placer.devices]
        noise = tf.random.stateless_normal(shape, seed + 1) * (settings.noise if noisy else 0.0)
        choice = [
            self._placer.sample(
                self.group_features(groups[i]), self._prior, count, seed + 2 + i, noise[i * count : (i + 1) * count]
            )
            for i in range(settings.groupings)
        ]
        return groups, tf.concat(choice, axis=0), noise

    @tf.function(autograph=False)
    def _gradients(
        self, groups: tf.Tensor, choice: tf.Tensor, noise: tf.Tensor, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        number = self.settings.groupings
        parts = (tf.split(x, number) for x in (choice, noise))
        with tf.GradientTape() as tape:
            grouping = self._grouping()
            by_group = tf.reduce_sum(grouping.log_prob(groups), axis=1)
            placing = [
                self._placer.distribution(self.group_features(groups[i]), self._prior, devices, stirred)
                for i, (devices, stirred) in enumerate(zip(*parts, strict=True))
            ]
            by_device = tf.concat(
                [
                    tf.reduce_sum(choices.log_prob(devices), axis=1)
                    for choices, devices in zip(placing, tf.split(choice, number), strict=True)
                ],
                axis=0,
            )
            each = tf.shape(choice)[0] // number
            entropy = tf.reduce_mean([tf.reduce_mean(choices.entropy()) for choices in placing])
            both = tf.reduce_mean(grouping.entropy()) + entropy
            loss = reinforce(tf.repeat(by_group, each) + by_device, advantage, weight) - self.settings.entropy * both
        told = {"loss": loss, "entropy": entropy, "grouping_entropy": both - entropy}
        return tape.gradient(loss, self.variables), told
