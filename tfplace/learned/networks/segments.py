"""A placer that reads units in segments, each with a look back, and scores all devices for all of them at once."""

from __future__ import annotations

from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from tfplace.learned.networks.superposition import Superposed

_FAR = -1e9
_FIRST_SCALE = 0.1
"""Of the scores, so that the first distribution is close to the prior."""


class Segment(NamedTuple):
    """S units, of which the last may be padding.

    Attributes:
      units: [S, H] what the encoder says of them.
      there: [S] 1 for a unit, 0 for padding.
      pairs: [S, D] of `GraphInputs`.
      prior: [S, D] of `GraphInputs`.
    """

    units: tf.Tensor
    there: tf.Tensor
    pairs: tf.Tensor
    prior: tf.Tensor


class Memory(NamedTuple):
    """What is left of the segment before: [L, S, H] what went into each layer, and [S] which of it were units."""

    rows: tf.Tensor
    there: tf.Tensor


class SegmentPlacer(snt.Module):
    """Transformer-XL without positions over segments, and a score for each unit and device.

    GDP (Zhou et al. 2019, section 3.2): segments in topological order, in which each unit attends to its segment and to
    the hidden states of the one before, through which no gradient flows; one-shot logits; gates in dense layers.

    Departures: the attention's projections and the devices' network have no gates. Devices are no numbers but have
    features, and are scored against a unit by the product of two vectors, so that their number is free; how much slower
    a unit is on a device is added to the score, weighted.

    Args:
      hidden: H, a multiple of the heads.
      heads: of the attention.
      layers: L.
      attention: whether units attend to others at all.
      conditioned: see `Superposed`.
    """

    def __init__(
        self, hidden: int, heads: int, layers: int, *, attention: bool, conditioned: bool, name: str = "placer"
    ) -> None:
        super().__init__(name=name)
        self._hidden = hidden
        self._layers = [_Layer(hidden, heads, attention, conditioned, name=f"layer{i}") for i in range(layers)]
        self._unit = Superposed(hidden, conditioned, name="unit")
        self._device = snt.nets.MLP([hidden, hidden], w_init=tf.zeros, name="device")
        self._slower = tf.Variable(-1.0, name="slower")
        self.scale = tf.Variable(_FIRST_SCALE, name="scale")

    def sharpen(self, by: float) -> None:
        """Divides logits, but for the prior, by a number."""
        for weight in (self.scale, self._slower):
            weight.assign(weight / by)

    def start(self, size: int) -> Memory:
        """Before the first segment of `size`."""
        return Memory(tf.zeros([len(self._layers), size, self._hidden]), tf.zeros([size]))

    def __call__(
        self, segment: Segment, memory: Memory, graph: tf.Tensor, devices: tf.Tensor
    ) -> tuple[tf.Tensor, Memory]:
        """[S, D] logits, and the memory for the next segment.

        Args:
          segment: the units.
          memory: of the one before.
          graph: [1, G].
          devices: [D, K].
        """
        x, kept = segment.units, []
        beyond = (1.0 - tf.concat([memory.there, segment.there], axis=0)) * _FAR
        for i, layer in enumerate(self._layers):
            kept.append(tf.stop_gradient(x))
            x = layer(x, tf.stop_gradient(memory.rows[i]), beyond, graph)
        near = tf.matmul(self._unit(x, graph), self._device(devices), transpose_b=True)
        near *= self.scale * self._hidden**-0.5
        return near + self._slower * segment.pairs + segment.prior, Memory(tf.stack(kept), segment.there)


class _Layer(snt.Module):
    def __init__(self, hidden: int, heads: int, attention: bool, conditioned: bool, name: str) -> None:
        super().__init__(name=name)
        self._heads = heads if attention else 0
        self._queries, self._keys, self._values, self._back = (snt.Linear(hidden, w_init=tf.zeros) for _ in range(4))
        self._wide = Superposed(2 * hidden, conditioned, name="wide")
        self._narrow = Superposed(hidden, conditioned, name="narrow")
        self._norms = [snt.LayerNorm(-1, True, True) for _ in range(2)]

    def __call__(self, x: tf.Tensor, before: tf.Tensor, beyond: tf.Tensor, graph: tf.Tensor) -> tf.Tensor:
        """[S, H] -> [S, H]; `beyond` [2 S] is added to the scores of what may be attended to."""
        if self._heads:
            normal = self._norms[0](tf.concat([before, x], axis=0))
            here = normal[tf.shape(before)[0] :]
            q, k, v = (
                tf.transpose(tf.reshape(rows, [-1, self._heads, x.shape[1] // self._heads]), [1, 0, 2])
                for rows in (self._queries(here), self._keys(normal), self._values(normal))
            )
            score = tf.matmul(q, k, transpose_b=True) * (x.shape[1] // self._heads) ** -0.5 + beyond
            seen = tf.transpose(tf.matmul(tf.nn.softmax(score), v), [1, 0, 2])
            x += self._back(tf.reshape(seen, tf.shape(x)))
        return x + self._narrow(tf.nn.relu(self._wide(self._norms[1](x), graph)), graph)
