"""Placeto's network as it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfplace.core.arrays import FloatArray
from tfplace.learned.features.graph_inputs import DEVICE_FEATURES, UNIT_FEATURES
from tfplace.learned.features.sweep_state import COLUMNS
from tfplace.learned.networks.initial import draw_weights
from tfplace.learned.networks.sweep_layers import Layers, Ops, Told, filled, mapped, shapes, summary
from tfplace.learned.training.losses import reinforce

_FIRST_SCALE = 0.1


class Sweeps(NamedTuple):
    """N sweeps over G units.

    Attributes:
      before: [N, G] devices before each sweep.
      relations: [N, G, D, COLUMNS] of each unit when it was visited; see `tfplace.learned.features.sweep_state`.
      actions: [N, G] devices it was given.
    """

    before: Any
    relations: Any
    actions: Any


_ROWS, _TABLE = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None])
_PLACED = tf.TensorSpec([None, None], tf.int32)
_ANY = (
    Told(
        units=tf.TensorSpec([None, UNIT_FEATURES]),
        src=_ROWS,
        dst=_ROWS,
        devices=tf.TensorSpec([None, DEVICE_FEATURES]),
        pairs=_TABLE,
        prior=_TABLE,
        ancestors=_TABLE,
        descendants=_TABLE,
        parallel=_TABLE,
    ),
    Sweeps(before=_PLACED, relations=tf.TensorSpec([None, None, None, COLUMNS]), actions=_PLACED),
    _TABLE,
    tf.TensorSpec([]),
)
"""Any problem's."""


class _Tensors:
    """`Ops` of TensorFlow.

    All rows are multiplied at once: oneDNN products of batches of matrices, of one size after another, end the process
    in TensorFlow 2.21 ("could not set native handle of a memory object").
    """

    def dense(self, layer: Any, x: Any) -> Any:
        rows = layer(tf.reshape(x, [-1, x.shape[-1]]))
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [layer.output_size]], axis=0))

    def relu(self, x: Any) -> Any:
        return tf.nn.relu(x)

    def concat(self, parts: Sequence[Any]) -> Any:
        return tf.concat(parts, axis=-1)

    def take(self, x: Any, rows: Any) -> Any:
        return tf.gather(x, rows)

    def mean(self, x: Any, src: Any, dst: Any) -> Any:
        count = tf.shape(x)[0]
        degree = tf.math.unsorted_segment_sum(tf.ones_like(dst, tf.float32), dst, count)
        share = tf.gather(tf.math.divide_no_nan(1.0, degree), dst)[:, None, None]
        return tf.math.unsorted_segment_sum(share * tf.gather(x, src), dst, count)

    def mix(self, near: Any, x: Any) -> Any:
        return tf.reshape(tf.matmul(near, tf.reshape(x, [tf.shape(x)[0], -1])), tf.shape(x))


_TENSORS: Ops = _Tensors()


class Sweep:
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

    Attributes:
      variables: weights and biases of one layer after the other, then the scale; see `Layers`.
    """

    def __init__(self, rng: np.random.Generator, *, hidden: int, rounds: int) -> None:
        self.variables: list[tf.Variable] = []
        self._hidden = hidden
        self._rounds = rounds
        self._layers: Layers = mapped(shapes(hidden), self._layer, self._number)
        draw_weights(self.variables, rng)
        self._back = tf.function(self._backwards, reduce_retracing=True, autograph=False)

    def serve_all(self) -> None:
        """Serves many graphs from now on: one trace for all.

        One for the sizes of the first graph rounds otherwise than one for any, and which graph a process saw first
        would decide what is learned.
        """
        self._back = tf.function(self._backwards, input_signature=_ANY, autograph=False)

    def _layer(self, size: int, out: int) -> snt.Linear:
        layer = snt.Linear(out, w_init=tf.zeros)
        layer(tf.zeros([1, size]))  # makes its variables
        self.variables += [layer.w, layer.b]
        return layer

    def _number(self) -> tf.Variable:
        self.variables.append(tf.Variable(_FIRST_SCALE))
        return self.variables[-1]

    @property
    def arrays(self) -> Layers:
        """The network as it is now."""
        return filled(self._hidden, [variable.numpy() for variable in self.variables])

    def sharpen(self, by: float) -> None:
        """Divides logits, but for the prior, by a number."""
        self._layers.scale.assign(self._layers.scale / by)

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
        tensors = Told(*(tf.constant(x) for x in told)), Sweeps(*(tf.constant(x) for x in sweeps))
        found, loss, choice = self._back(*tensors, tf.constant(advantage, tf.float32), tf.constant(entropy))
        return found, {"loss": float(loss), "entropy": float(choice)}

    def _backwards(
        self, told: Told, sweeps: Sweeps, advantage: tf.Tensor, weight: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            choice = tfd.Categorical(logits=self._logits(told, sweeps))
            entropy = tf.reduce_mean(choice.entropy())
            visits = tf.reshape(choice.log_prob(sweeps.actions), [-1]), tf.reshape(advantage, [-1])
            loss = reinforce(*visits) - weight * entropy
        found = tape.gradient(loss, self.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return found, loss, entropy

    def _logits(self, told: Told, sweeps: Sweeps) -> tf.Tensor:
        """[N, G, D]: what `Scorer` gives one after the other."""
        units = summary(_TENSORS, self._layers, told, tf.transpose(sweeps.before), self._rounds)
        shape = tf.shape(sweeps.relations)
        columns = (told.devices[None, None], sweeps.relations, told.pairs[None, :, :, None])
        each = tf.concat([tf.broadcast_to(x, tf.concat([shape[:3], [x.shape[-1]]], axis=0)) for x in columns], axis=-1)
        x = tf.nn.relu(tf.transpose(units, [1, 0, 2])[:, :, None] + _TENSORS.dense(self._layers.device, each))
        x = tf.nn.relu(_TENSORS.dense(self._layers.score.first, x))
        return self._layers.scale * _TENSORS.dense(self._layers.score.second, x)[..., 0] + told.prior[None]
