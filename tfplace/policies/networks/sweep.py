"""Placeto's network: where each unit should go, given where all the others are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from scipy.special import softmax
from tensorflow_probability import distributions as tfd

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.learning.features import Float32
from tfplace.learning.graph_inputs import DEVICE_FEATURES, UNIT_FEATURES, GraphInputs
from tfplace.learning.losses import reinforce
from tfplace.learning.sweep_inputs import SweepInputs
from tfplace.learning.sweep_state import COLUMNS
from tfplace.policies.networks.initial import draw_weights

_FIRST_SCALE = 0.1


class Told(NamedTuple):
    """Of `GraphInputs` and `SweepInputs`, as tensors."""

    units: tf.Tensor
    src: tf.Tensor
    dst: tf.Tensor
    devices: tf.Tensor
    pairs: tf.Tensor
    prior: tf.Tensor
    ancestors: tf.Tensor
    descendants: tf.Tensor
    parallel: tf.Tensor


class Sweeps(NamedTuple):
    """N sweeps over G units.

    Attributes:
      before: [N, G] devices before each sweep.
      relations: [N, G, D, COLUMNS] of each unit when it was visited; see `tfplace.learning.sweep_state`.
      actions: [N, G] devices it was given.
    """

    before: Any
    relations: Any
    actions: Any


class Scorer(NamedTuple):
    """The network's last layers as plain arrays: a visit is less work than a call of TensorFlow.

    Attributes:
      summary: [G, N, S] of the units.
      devices: [D, S].
      relation: [COLUMNS, S] weights.
      pairs: [G, D, S].
      hidden: [S, S] weights and [S] biases.
      last: [S, 1] weights and [1] biases.
      prior: [G, D].
    """

    summary: Float32
    devices: Float32
    relation: Float32
    pairs: Float32
    hidden: tuple[Float32, Float32]
    last: tuple[Float32, Float32]
    prior: Float32

    def share(self, row: int, relation: Float32) -> FloatArray:
        """[N, D] probabilities for the unit of one row.

        Args:
          row: which one.
          relation: [N, D, COLUMNS] of that unit now.
        """
        x = self.summary[row][:, None] + self.devices + self.pairs[row] + relation @ self.relation
        for weight, bias in (self.hidden, self.last):
            x = np.maximum(x, 0) @ weight + bias
        return np.asarray(softmax((x[:, :, 0] + self.prior[row]).astype(np.float64), axis=1), np.float64)


class _Layer(snt.Module):
    """A linear layer along the last axis.

    All rows are multiplied at once: oneDNN products of batches of matrices, of one size after another, end the process
    in TensorFlow 2.21 ("could not set native handle of a memory object").
    """

    def __init__(self, size: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.linear = snt.Linear(size, w_init=tf.zeros)
        self._size = size

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        rows = self.linear(tf.reshape(x, [-1, x.shape[-1]]))
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [self._size]], axis=0))


class _TwoLayers(snt.Module):
    """Two layers of the same width with a ReLU between and, but for the last of a network, after them."""

    def __init__(self, size: int, out: int | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        self._first = _Layer(size)
        self._second = _Layer(out or size)
        self._last = out is not None

    @property
    def layers(self) -> tuple[snt.Linear, snt.Linear]:
        """Both."""
        return self._first.linear, self._second.linear

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        y = self._second(tf.nn.relu(self._first(x)))
        return y if self._last else tf.nn.relu(y)


class Sweep(snt.Module):
    """A distribution over devices for every unit of each of N placements.

    Addanki et al. 2019, section 3.2: a transform of each unit's features; k rounds of message passing
    x <- g(sum over producers of f(x)) + x0 along the edges and, with other weights, against them; summaries of the
    unit's ancestors, descendants and the rest, each g(mean of f(x)); a classifier.

    Departures. Means are taken where the paper sums, so that graphs of other sizes look alike. The device a unit is on
    is told by that device's features. Messages are passed once a sweep, with units where they are before it, and not
    once a visit, so that a sweep costs G times less; what has changed since is told exactly, by the relations of the
    visited unit to each device. Each device is scored by one network, from the unit's summary, the device's features
    and those relations, so that the number of devices is free and equal devices are told apart by what is on them.

    Args:
      rng: draws the first weights.
      hidden: d.
      rounds: k.
    """

    def __init__(self, rng: np.random.Generator, *, hidden: int, rounds: int, name: str = "placeto") -> None:
        super().__init__(name=name)
        self._static = _Layer(hidden, name="static")
        self._present = _Layer(hidden, name="present")
        self._transform = _TwoLayers(hidden, name="transform")
        self._rounds = rounds
        self._passing = [(_TwoLayers(hidden), _TwoLayers(hidden)) for _ in ("down", "up")]
        self._pooling = [(_TwoLayers(2 * hidden), _TwoLayers(2 * hidden)) for _ in SweepInputs._fields]
        self._unit = _Layer(4 * hidden, name="unit")
        self._device = _Layer(4 * hidden, name="device")
        self._score = _TwoLayers(4 * hidden, 1, name="score")
        self.scale = tf.Variable(_FIRST_SCALE, name="scale")
        one = tf.ones([1, 1])
        no = tf.zeros([0], tf.int32)
        told = Told(tf.ones([1, UNIT_FEATURES]), no, no, tf.ones([1, DEVICE_FEATURES]), one, one, one, one, one)
        self._logits(told, self._summary(told, tf.zeros([1, 1], tf.int32)), tf.zeros([1, 1, 1, COLUMNS]))
        draw_weights(self.trainable_variables, rng)

    def sharpen(self, by: float) -> None:
        """Divides logits, but for the prior, by a number."""
        self.scale.assign(self.scale / by)

    def scorer(self, told: Told, before: IntArray) -> Scorer:
        """What gives every unit's distribution in sweeps over [N, G] placements."""
        summary = self._summary(told, tf.constant(before)).numpy()
        weight, bias = (v.numpy() for v in (self._device.linear.w, self._device.linear.b))
        of_device, of_relation, of_pair = np.split(weight, [told.devices.shape[1], -1])
        hidden, last = self._score.layers
        return Scorer(
            summary + bias,
            told.devices.numpy() @ of_device,
            of_relation,
            told.pairs.numpy()[:, :, None] * of_pair,
            (hidden.w.numpy(), hidden.b.numpy()),
            (last.w.numpy() * self.scale.numpy(), last.b.numpy() * self.scale.numpy()),
            told.prior.numpy(),
        )

    def gradients(
        self, told: Told, sweeps: Sweeps, advantage: FloatArray, entropy: float
    ) -> tuple[list[tf.Tensor], Mapping[str, float]]:
        """Of REINFORCE and the weighted entropy, mean over the visits.

        Args:
          told: the problem.
          sweeps: N of them.
          advantage: [N, G] of each visit.
          entropy: weight of the mean entropy, which is made large.
        """
        tensors = Sweeps(*(tf.constant(x) for x in sweeps))
        found, loss, choice = self._back(told, tensors, tf.constant(advantage, tf.float32), tf.constant(entropy))
        return found, {"loss": float(loss), "entropy": float(choice)}

    @tf.function(reduce_retracing=True)
    def _back(
        self, told: Told, sweeps: Sweeps, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            choice = tfd.Categorical(logits=self._logits(told, self._summary(told, sweeps.before), sweeps.relations))
            entropy = tf.reduce_mean(choice.entropy())
            visits = tf.reshape(choice.log_prob(sweeps.actions), [-1]), tf.reshape(advantage, [-1])
            loss = reinforce(*visits) - weight * entropy
        found = tape.gradient(loss, self.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return found, loss, entropy

    def _summary(self, told: Told, before: tf.Tensor) -> tf.Tensor:
        units = self._embedded(told, before)
        parts = [units]
        for (f, g), near in zip(self._pooling, (told.ancestors, told.descendants, told.parallel), strict=True):
            parts.append(g(tf.einsum("gh,hnd->gnd", near, f(units))))
        return self._unit(tf.concat(parts, axis=-1))

    def _embedded(self, told: Told, before: tf.Tensor) -> tf.Tensor:
        """[G, N, 2d]."""
        on = tf.gather(told.devices, tf.transpose(before))
        x0 = self._transform(tf.nn.relu(self._static(told.units)[:, None] + self._present(on)))
        ways, count = [], tf.shape(told.units)[0]
        for (f, g), (src, dst) in zip(self._passing, ((told.src, told.dst), (told.dst, told.src)), strict=True):
            degree = tf.math.unsorted_segment_sum(tf.ones_like(dst, tf.float32), dst, count)
            share = tf.gather(tf.math.divide_no_nan(1.0, degree), dst)[:, None, None]
            x = x0
            for _ in range(self._rounds):
                x = g(tf.math.unsorted_segment_sum(share * tf.gather(f(x), src), dst, count)) + x0
            ways.append(x)
        return tf.concat(ways, axis=-1)

    def _logits(self, told: Told, summary: tf.Tensor, relations: tf.Tensor) -> tf.Tensor:
        """[N, G, D] from [G, N, S] and [N, G, D, COLUMNS], of as many units as are told `pairs` of."""
        shape = tf.shape(relations)
        columns = (told.devices[None, None], relations, told.pairs[None, :, :, None])
        each = tf.concat([tf.broadcast_to(x, tf.concat([shape[:3], [x.shape[-1]]], axis=0)) for x in columns], axis=-1)
        score = self._score(tf.nn.relu(tf.transpose(summary, [1, 0, 2])[:, :, None] + self._device(each)))
        return self.scale * score[..., 0] + told.prior[None]


def told(inputs: GraphInputs, sweep: SweepInputs) -> Told:
    """The tensors of a problem."""
    arrays = [getattr(inputs, name) for name in Told._fields[: -len(SweepInputs._fields)]] + list(sweep)
    return Told(*(tf.constant(array) for array in arrays))
