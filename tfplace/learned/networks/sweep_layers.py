"""Placeto's network as layers and what flows through them, for plain arrays and for tensors alike; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.errors import InputError
from tfplace.learned.features.graph_inputs import DEVICE_FEATURES, UNIT_FEATURES, GraphInputs
from tfplace.learned.features.sweep_inputs import SweepInputs
from tfplace.learned.features.sweep_state import COLUMNS
from tfplace.learned.features.unit_features import Float32

_OTHER_VERSION = "They are of another version; see scripts/train_policy.py."


class Told(NamedTuple):
    """Of `GraphInputs` and `SweepInputs`, what the network reads."""

    units: Any
    src: Any
    dst: Any
    devices: Any
    pairs: Any
    prior: Any
    ancestors: Any
    descendants: Any
    parallel: Any


def told(inputs: GraphInputs, sweep: SweepInputs) -> Told:
    """That of a problem."""
    of = inputs._asdict() | sweep._asdict()
    return Told(**{name: of[name] for name in Told._fields})


class Layer(NamedTuple):
    """A linear layer along the last axis: [I, O] weights and [O] biases."""

    w: Any
    b: Any


class TwoLayers(NamedTuple):
    """Two layers with a ReLU between and, but for the last of the network, after them."""

    first: Any
    second: Any


class Layers(NamedTuple):
    """The network; d is its width, F, K and C the features of a unit, a device and a relation.

    Attributes:
      static: [F, d] of a unit.
      present: [K, d] of the device it is on.
      transform: of both.
      passing: (f, g) down the edges and up.
      pooling: (f, g) for ancestors, descendants and the rest.
      unit: [8 d, 4 d] summary of a unit.
      device: [K + C + 1, 4 d] of a device, relations and the pair.
      score: of their sum.
      scale: of the score.
    """

    static: Any
    present: Any
    transform: TwoLayers
    passing: tuple[tuple[TwoLayers, TwoLayers], ...]
    pooling: tuple[tuple[TwoLayers, TwoLayers], ...]
    unit: Any
    device: Any
    score: TwoLayers
    scale: Any


def shapes(hidden: int) -> Layers:
    """The network with the shape (I, O) of each layer in its place."""

    def two(size: int, out: int | None = None) -> TwoLayers:
        return TwoLayers((size, size), (size, out or size))

    return Layers(
        static=(UNIT_FEATURES, hidden),
        present=(DEVICE_FEATURES, hidden),
        transform=two(hidden),
        passing=tuple((two(hidden), two(hidden)) for _ in ("down", "up")),
        pooling=tuple((two(2 * hidden), two(2 * hidden)) for _ in SweepInputs._fields),
        unit=(8 * hidden, 4 * hidden),
        device=(DEVICE_FEATURES + COLUMNS + 1, 4 * hidden),
        score=two(4 * hidden, 1),
        scale=(),
    )


def mapped(node: Any, layer: Callable[[int, int], Any], number: Callable[[], Any]) -> Any:
    """A tree like `shapes`, with what is made of each layer's (I, O) and of each number, in the order of the fields."""
    if node == ():
        return number()
    if isinstance(node[0], int):
        return layer(*node)
    parts = [mapped(part, layer, number) for part in node]
    return type(node)(*parts) if hasattr(node, "_fields") else tuple(parts)


def filled(hidden: int, values: Sequence[NDArray[Any]]) -> Layers:
    """The network of plain arrays: weights and biases of one layer after the other, then the scale.

    Raises:
      InputError: they are of another network.
    """
    rest = iter(values)

    def taken(*shape: int) -> NDArray[Any]:
        found = next(rest, np.zeros(0))
        if found.shape != shape:
            raise InputError(f"weights of shape {found.shape}", f"{shape}", _OTHER_VERSION)
        return found

    made: Layers = mapped(shapes(hidden), lambda i, o: Layer(taken(i, o), taken(o)), taken)
    if more := sum(1 for _ in rest):
        raise InputError(f"{more} arrays of weights too many", f"{len(values) - more}", _OTHER_VERSION)
    return made


class Ops(Protocol):
    """What is done to arrays, or to tensors."""

    def dense(self, layer: Any, x: Any) -> Any:
        """[..., O] from [..., I]."""

    def relu(self, x: Any) -> Any:
        """Of each number."""

    def concat(self, parts: Sequence[Any]) -> Any:
        """Along the last axis."""

    def take(self, x: Any, rows: Any) -> Any:
        """Rows of the first axis."""

    def mean(self, x: Any, src: Any, dst: Any) -> Any:
        """[G, ...] of each row of x the mean of the rows `src` whose `dst` it is; 0 without any."""

    def mix(self, near: Any, x: Any) -> Any:
        """[G, N, d] sums of x, [G, N, d], with the weights [G, G]."""


class Plain:
    """`Ops` of numpy."""

    def dense(self, layer: Any, x: Any) -> Any:
        """See `Ops`."""
        return x @ layer.w + layer.b

    def relu(self, x: Any) -> Any:
        """See `Ops`."""
        return np.maximum(x, 0)

    def concat(self, parts: Sequence[Any]) -> Any:
        """See `Ops`."""
        return np.concatenate(parts, axis=-1)

    def take(self, x: Any, rows: Any) -> Any:
        """See `Ops`."""
        return x[rows]

    def mean(self, x: Any, src: Any, dst: Any) -> Any:
        """See `Ops`."""
        count = len(x)
        share = (1 / np.maximum(np.bincount(dst, minlength=count), 1)).astype(np.float32)[dst]
        flat = csr_array((share, (dst, src)), (count, count)) @ x.reshape(count, -1)
        return flat.reshape(x.shape)

    def mix(self, near: Any, x: Any) -> Any:
        """See `Ops`."""
        return (near @ x.reshape(len(x), -1)).reshape(x.shape)


def summary(ops: Ops, layers: Layers, told: Told, before: Any, rounds: int) -> Any:
    """[G, N, 4 d] what the network makes of all units of N placements.

    Args:
      ops: of arrays or of tensors.
      layers: the network.
      told: the problem.
      before: [G, N] devices.
      rounds: k.
    """
    on = ops.dense(layers.present, told.devices)
    x0 = _two(ops, layers.transform, ops.relu(ops.dense(layers.static, told.units)[:, None] + ops.take(on, before)))
    ways = []
    for (f, g), (src, dst) in zip(layers.passing, ((told.src, told.dst), (told.dst, told.src)), strict=True):
        x = x0
        for _ in range(rounds):
            x = _two(ops, g, ops.mean(_two(ops, f, x), src, dst)) + x0
        ways.append(x)
    units = ops.concat(ways)
    parts = [units]
    for (f, g), near in zip(layers.pooling, (told.ancestors, told.descendants, told.parallel), strict=True):
        parts.append(_two(ops, g, ops.mix(near, _two(ops, f, units))))
    return ops.dense(layers.unit, ops.concat(parts))


def _two(ops: Ops, layers: TwoLayers, x: Any) -> Any:
    return ops.relu(ops.dense(layers.second, ops.relu(ops.dense(layers.first, x))))


class Scorer(NamedTuple):
    """The rest of the network, as it is asked on one visit after the other.

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
    hidden: Layer
    last: Layer
    prior: Float32

    def share(self, row: int, relation: Float32, temperature: float = 1.0) -> FloatArray:
        """[N, D] probabilities for the unit of one row.

        Args:
          row: which one.
          relation: [N, D, COLUMNS] of that unit now.
          temperature: divides all logits.
        """
        x = self.summary[row][:, None] + self.devices + self.pairs[row] + relation @ self.relation
        for weight, bias in (self.hidden, self.last):
            x = np.maximum(x, 0) @ weight + bias
        logits = (x[:, :, 0] + self.prior[row]).astype(np.float64)
        return np.asarray(softmax(logits / temperature, axis=1), np.float64)


def scorer(layers: Layers, told: Told, before: IntArray, rounds: int) -> Scorer:
    """What gives every unit's distribution in sweeps over [N, G] placements; all arrays."""
    of_device, of_relation, of_pair = np.split(layers.device.w, [told.devices.shape[1], -1])
    hidden, last = layers.score
    return Scorer(
        summary(Plain(), layers, told, before.T, rounds) + layers.device.b,
        told.devices @ of_device,
        of_relation,
        told.pairs[:, :, None] * of_pair,
        hidden,
        Layer(last.w * layers.scale, last.b * layers.scale),
        told.prior,
    )
