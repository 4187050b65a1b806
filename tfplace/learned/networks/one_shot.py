"""GDP's network: all units of a graph of any size are scored at once, and so are gradients, a segment at a time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray
from tfplace.learned.features.graph_inputs import DEVICE_FEATURES, GRAPH_FEATURES, UNIT_FEATURES, GraphInputs
from tfplace.learned.networks.initial import draw_weights
from tfplace.learned.networks.sage import Sage
from tfplace.learned.networks.segments import Memory, Segment, SegmentPlacer


class _Told(NamedTuple):
    """Of `GraphInputs`, what the encoder reads: weights as [1, U], the graph as [1, G]."""

    units: tf.Tensor
    src: tf.Tensor
    dst: tf.Tensor
    weight: tf.Tensor
    graph: tf.Tensor


_ANY = _Told(
    units=tf.TensorSpec([None, UNIT_FEATURES]),
    src=tf.TensorSpec([None], tf.int32),
    dst=tf.TensorSpec([None], tf.int32),
    weight=tf.TensorSpec([1, None]),
    graph=tf.TensorSpec([1, GRAPH_FEATURES]),
)
"""Any problem's."""

_TABLE = tf.TensorSpec([None, None])


class OneShot(snt.Module):
    """`Sage` and `SegmentPlacer` as one function from a graph to logits, with its gradient.

    The gradient of anything that is computed from logits is `gradients` of that thing's gradient by the logits. It goes
    through the segments once more, each of which is computed anew, so that what is held at a time is one segment's
    activations, and the encoder's.

    Args:
      rng: draws the first weights.
      hidden: H.
      rounds: of the encoder.
      heads: of the attention.
      layers: of the placer.
      segment: S.
      attention: see `SegmentPlacer`.
      conditioned: see `Superposed`.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        hidden: int,
        rounds: int,
        heads: int,
        layers: int,
        segment: int,
        attention: bool = True,
        conditioned: bool = True,
        name: str = "gdp",
    ) -> None:
        super().__init__(name=name)
        self._segment = segment
        self._hidden = hidden
        self._encoder = Sage(hidden, rounds)
        self._placer = SegmentPlacer(hidden, heads, layers, attention=attention, conditioned=conditioned)
        start = self._placer.start(segment)
        graph = tf.zeros([1, hidden + GRAPH_FEATURES])
        self._encoder(tf.zeros([1, UNIT_FEATURES]), tf.zeros([0], tf.int32), tf.zeros([0], tf.int32))
        nothing = Segment(tf.zeros([segment, hidden]), start.there, tf.zeros([segment, 1]), tf.zeros([segment, 1]))
        self._placer(nothing, start, graph, tf.zeros([1, DEVICE_FEATURES]))
        draw_weights(self.trainable_variables, rng)
        free = functools.partial(tf.function, reduce_retracing=True, autograph=False)
        self._score, self._score_back, self._encode_back = map(
            free, (self._scored, self._scored_back, self._encoded_back)
        )

    def serve_all(self) -> None:
        """Serves many graphs from now on: one trace of each function for all; see `Sweep.serve_all`."""
        start, hidden = self._placer.start(self._segment), self._hidden
        rows, memory = tf.TensorSpec([self._segment, hidden]), Memory(*(tf.TensorSpec(x.shape) for x in start))
        part = Segment(rows, memory.there, pairs=_TABLE, prior=_TABLE)
        any_part = part, memory, tf.TensorSpec([1, hidden + GRAPH_FEATURES]), tf.TensorSpec([None, DEVICE_FEATURES])
        self._score = tf.function(self._scored, any_part, autograph=False)
        self._score_back = tf.function(self._scored_back, (*any_part, _TABLE), autograph=False)
        self._encode_back = tf.function(self._encoded_back, (_ANY, _TABLE, _TABLE), autograph=False)

    def sharpen(self, by: float) -> None:
        """Divides logits, but for the prior, by a number."""
        self._placer.sharpen(by)

    def logits(self, inputs: GraphInputs) -> FloatArray:
        """[U, D] for the rows of the inputs."""
        units, graph = self._encode(_told(inputs))
        devices, memory, found = tf.constant(inputs.devices), self._placer.start(self._segment), []
        for part in self._segments(inputs, units):
            logits, memory = self._score(part, memory, graph, devices)
            found.append(logits.numpy())
        rows: FloatArray = np.concatenate(found)[: len(inputs.order)].astype(np.float64)
        return rows

    def gradients(self, inputs: GraphInputs, by_logits: FloatArray) -> list[tf.Tensor]:
        """For each trainable variable: of a scalar whose gradient by `logits(inputs)` is `by_logits`, [U, D]."""
        told = _told(inputs)
        units, graph = self._encode(told)
        devices, memory = tf.constant(inputs.devices), self._placer.start(self._segment)
        total = [tf.zeros_like(v) for v in self._placer.trainable_variables]
        by_units, by_graph = [], tf.zeros_like(graph)
        cut = _cut(np.asarray(by_logits, np.float32), self._segment)
        for part, upstream in zip(self._segments(inputs, units), cut, strict=True):
            found, by_part, by_this, memory = self._score_back(part, memory, graph, devices, tf.constant(upstream))
            total = [a + b for a, b in zip(total, found, strict=True)]
            by_units.append(by_part)
            by_graph += by_this
        encoder = self._encode_back(told, tf.concat(by_units, axis=0)[: len(inputs.order)], by_graph)
        of = {v.ref(): g for v, g in zip(self._placer.trainable_variables, total, strict=True)}
        of |= {v.ref(): g for v, g in zip(self._encoder.trainable_variables, encoder, strict=True)}
        return [of[v.ref()] for v in self.trainable_variables]

    def _segments(self, inputs: GraphInputs, units: tf.Tensor) -> Iterator[Segment]:
        size, count = self._segment, len(inputs.order)
        there = np.ones(count, np.float32)
        padded = tf.pad(units, [[0, -count % size], [0, 0]])
        cuts = [_cut(rows, size) for rows in (there, inputs.pairs, inputs.prior)]
        for i, (here, pairs, prior) in enumerate(zip(*cuts, strict=True)):
            yield Segment(padded[i * size : (i + 1) * size], tf.constant(here), tf.constant(pairs), tf.constant(prior))

    @tf.function(input_signature=[_ANY], autograph=False)  # one trace for all graphs
    def _encode(self, told: _Told) -> tuple[tf.Tensor, tf.Tensor]:
        """[U, H] units, and [1, H + G] the graph: their mean, weighted by seconds, and its own features."""
        units = self._encoder(told.units, told.src, told.dst)
        return units, tf.concat([tf.matmul(told.weight, units), told.graph], axis=1)

    def _encoded_back(self, told: _Told, by_units: tf.Tensor, by_graph: tf.Tensor) -> Sequence[tf.Tensor]:
        with tf.GradientTape() as tape:
            encoded = self._encode(told)
        found: Sequence[tf.Tensor] = tape.gradient(encoded, self._encoder.trainable_variables, (by_units, by_graph))
        return found

    def _scored(self, part: Segment, memory: Memory, graph: tf.Tensor, devices: tf.Tensor) -> tuple[tf.Tensor, Memory]:
        return self._placer(part, memory, graph, devices)

    def _scored_back(
        self, part: Segment, memory: Memory, graph: tf.Tensor, devices: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor, Memory]:
        """Gradients by the placer's variables, by the units [S, H] and by the graph [1, H + G]."""
        with tf.GradientTape() as tape:
            tape.watch([part.units, graph])
            logits, kept = self._placer(part, memory, graph, devices)
        variables = self._placer.trainable_variables
        found = tape.gradient(logits, [*variables, part.units, graph], upstream, tf.UnconnectedGradients.ZERO)
        return found[:-2], found[-2], found[-1], kept


def _told(inputs: GraphInputs) -> _Told:
    arrays = (inputs.units, inputs.src, inputs.dst, inputs.weight[None], inputs.graph[None])
    return _Told(*(tf.constant(array) for array in arrays))


def _cut(rows: NDArray[np.float32], size: int) -> list[NDArray[np.float32]]:
    """[size, ...] parts, the last one padded with zeros."""
    padded = np.pad(rows, [(0, -len(rows) % size)] + [(0, 0)] * (rows.ndim - 1))
    return np.split(padded, len(padded) // size)
