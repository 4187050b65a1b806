"""Placeto's network: where one unit should go, given where all the others are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.learning.graph_inputs import GraphInputs
from tfplace.learning.losses import reinforce
from tfplace.learning.sweep_inputs import SweepInputs
from tfplace.policies.networks.initial import draw_weights

_CHUNK = 32
_FIRST_SCALE = 0.1


class Told(NamedTuple):
    """Of `GraphInputs` and `SweepInputs`, as tensors."""

    units: tf.Tensor
    src: tf.Tensor
    dst: tf.Tensor
    devices: tf.Tensor
    pairs: tf.Tensor
    prior: tf.Tensor
    weight: tf.Tensor
    ancestors: tf.Tensor
    descendants: tf.Tensor
    parallel: tf.Tensor
    sent: tf.Tensor


class Visits(NamedTuple):
    """N steps: [N, G] devices before each, [N] the unit that was visited, what it was given, and the advantage."""

    devices: Any
    current: Any
    actions: Any
    advantage: Any


class _TwoLayers(snt.Module):
    """Two layers of the same width with a ReLU between and, but for the last of a network, after them."""

    def __init__(self, size: int, out: int | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        self._first = snt.Linear(size, w_init=tf.zeros)
        self._second = snt.Linear(out or size, w_init=tf.zeros)
        self._last = out is not None

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        y = self._second(tf.nn.relu(self._first(x)))
        return y if self._last else tf.nn.relu(y)


class Sweep(snt.Module):
    """A distribution over devices for one unit of each of N placements.

    Addanki et al. 2019, section 3.2: a transform of each unit's features; k rounds of message passing
    x <- g(sum over producers of f(x)) + x0 along the edges and, with other weights, against them; summaries of the
    unit's ancestors, descendants and the rest, each g(mean of f(x)); a classifier.

    Departures. Means are taken where the paper sums, so that graphs of other sizes look alike. The device a unit is on
    is told by that device's features; each device is scored by one network, from the unit's summary, the device's
    features, and what the unit has to do with the device now, so that the number of devices is free and equal devices
    are told apart by what is on them.

    Args:
      features: (F, K), sizes of a unit's and a device's features.
      rng: draws the first weights.
      hidden: d.
      rounds: k.
    """

    def __init__(
        self, features: tuple[int, int], rng: np.random.Generator, *, hidden: int, rounds: int, name: str = "placeto"
    ) -> None:
        super().__init__(name=name)
        self._static = snt.Linear(hidden, w_init=tf.zeros, name="static")
        self._present = snt.Linear(hidden, w_init=tf.zeros, name="present")
        self._transform = _TwoLayers(hidden, name="transform")
        self._rounds = rounds
        self._passing = [(_TwoLayers(hidden), _TwoLayers(hidden)) for _ in ("down", "up")]
        self._pooling = [(_TwoLayers(2 * hidden), _TwoLayers(2 * hidden)) for _ in SweepInputs._fields[:3]]
        self._unit = snt.Linear(2 * hidden, w_init=tf.zeros, name="unit")
        self._device = snt.Linear(2 * hidden, w_init=tf.zeros, name="device")
        self._score = _TwoLayers(2 * hidden, 1, name="score")
        self._scale = tf.Variable(_FIRST_SCALE, name="scale")
        of_unit, of_device = features
        one = tf.ones([1, 1])
        no = tf.zeros([0], tf.int32)
        told = Told(tf.ones([1, of_unit]), no, no, tf.ones([1, of_device]), one, one, one[0], one, one, one, one)
        self._logits(told, tf.zeros([1, 1], tf.int32), tf.zeros([1], tf.int32))
        draw_weights(self.trainable_variables, rng)

    def share(self, told: Told, devices: IntArray, current: int) -> FloatArray:
        """[N, D] probabilities for unit `current` of each of N placements, [N, G]; those before it are visited."""
        rows = tf.constant(devices, tf.int32)
        found = self._share(told, rows, tf.fill([len(devices)], current))
        return np.asarray(found.numpy(), np.float64)

    def gradients(self, told: Told, visits: Visits, entropy: float) -> tuple[list[tf.Tensor], Mapping[str, float]]:
        """Of REINFORCE and the weighted entropy, mean over the visits; a few at a time, to bound memory.

        Args:
          told: the problem.
          visits: N of them.
          entropy: weight of the mean entropy, which is made large.
        """
        count = len(visits.current)
        total, sums = [tf.zeros_like(v) for v in self.trainable_variables], np.zeros(2)
        for first in range(0, count, _CHUNK):
            part = Visits(*(tf.constant(column[first : first + _CHUNK]) for column in visits))
            share = int(part.current.shape[0]) / count
            found, *said = self._back(told, part, tf.constant(entropy))
            total = [a + share * b for a, b in zip(total, found, strict=True)]
            sums += share * np.array([float(x) for x in said])
        return total, {"loss": float(sums[0]), "entropy": float(sums[1])}

    @tf.function(reduce_retracing=True)
    def _share(self, told: Told, devices: tf.Tensor, current: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(self._logits(told, devices, current))

    @tf.function(reduce_retracing=True)
    def _back(self, told: Told, visits: Visits, weight: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            choice = tfd.Categorical(logits=self._logits(told, visits.devices, visits.current))
            entropy = tf.reduce_mean(choice.entropy())
            loss = reinforce(choice.log_prob(visits.actions), visits.advantage) - weight * entropy
        found = tape.gradient(loss, self.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return found, loss, entropy

    def _logits(self, told: Told, devices: tf.Tensor, current: tf.Tensor) -> tf.Tensor:
        placed = tf.one_hot(devices, tf.shape(told.devices)[0])  # [N, G, D]
        units = self._embedded(told, devices, current)  # [G, N, 2d]
        own = tf.gather(tf.transpose(units, [1, 0, 2]), current, batch_dims=1)
        parts = [own]
        for (f, g), near in zip(self._pooling, (told.ancestors, told.descendants, told.parallel), strict=True):
            parts.append(g(tf.einsum("ng,gnd->nd", tf.gather(near, current), f(units))))
        summary = self._unit(tf.concat(parts, axis=1))[:, None]
        relation = self._relation(told, placed, current)
        each = tf.concat([tf.broadcast_to(told.devices, [tf.shape(relation)[0], *told.devices.shape]), relation], 2)
        score = self._score(tf.nn.relu(summary + self._device(each)))[:, :, 0]
        return self._scale * score + tf.gather(told.prior, current)

    def _embedded(self, told: Told, devices: tf.Tensor, current: tf.Tensor) -> tf.Tensor:
        """[G, N, 2d]."""
        place = tf.range(tf.shape(told.units)[0])[:, None]
        marks = tf.cast(tf.stack([place < current[None], place == current[None]], axis=-1), tf.float32)
        on = tf.gather(told.devices, tf.transpose(devices))
        x0 = self._static(told.units)[:, None] + self._present(tf.concat([on, marks], axis=-1))
        x0 = self._transform(tf.nn.relu(x0))
        ways = []
        for (f, g), (src, dst) in zip(self._passing, ((told.src, told.dst), (told.dst, told.src)), strict=True):
            count = tf.shape(told.units)[0]
            degree = tf.math.unsorted_segment_sum(tf.ones_like(dst, tf.float32), dst, count)
            share = tf.gather(tf.math.divide_no_nan(1.0, degree), dst)[:, None, None]
            x = x0
            for _ in range(self._rounds):
                x = g(tf.math.unsorted_segment_sum(share * tf.gather(f(x), src), dst, count)) + x0
            ways.append(x)
        return tf.concat(ways, axis=-1)

    def _relation(self, told: Told, placed: tf.Tensor, current: tf.Tensor) -> tf.Tensor:
        """[N, D, 7] what the current unit has to do with each device."""
        here = tf.gather(placed, current, batch_dims=1)
        others = placed * (1.0 - tf.one_hot(current, tf.shape(placed)[1])[:, :, None])
        load = tf.einsum("g,ngd->nd", told.weight, others)
        into = tf.einsum("ng,ngd->nd", tf.gather(tf.transpose(told.sent), current), others)
        out = tf.einsum("ng,ngd->nd", tf.gather(told.sent, current), others)
        beside = tf.einsum("ng,g,ngd->nd", tf.gather(told.parallel, current), told.weight, others)
        columns = [
            here,
            tf.gather(told.pairs, current),
            load,
            tf.math.log1p(into),
            tf.math.log1p(out),
            tf.cast(load == 0, tf.float32),
            beside,
        ]
        return tf.stack(columns, axis=-1)


def told(inputs: GraphInputs, sweep: SweepInputs) -> Told:
    """The tensors of a problem."""
    arrays = [getattr(inputs, name) for name in Told._fields[: -len(SweepInputs._fields)]] + list(sweep)
    return Told(*(tf.constant(array) for array in arrays))
