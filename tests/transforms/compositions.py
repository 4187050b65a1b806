"""Random small programs on a batch: chains of reshapes, transposes, reductions, products, lookups and the like.

Sizes are written as (c, p) for c * batch ** p, so that a program is the same for every batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Size = tuple[int, int]
Step = Callable[[list[Any], int], Any]

_MOST_ELEMENTS = 3000
ARGUMENTS: tuple[tuple[Size, ...], ...] = (((1, 1), (4, 0)), ((3, 0), (1, 1), (2, 0)), ((1, 1),))
"""Shapes of a program's arguments: rows, time-major rows, and one number of an example. A fourth has ids."""
AXES = {0: 0, 1: 1, 2: 0, 3: 0}
NUM_IDS = 3


def arguments(batch: int, random: np.random.Generator) -> list[Any]:
    """Values of the arguments."""
    made = [random.normal(size=sized(shape, batch)) for shape in ARGUMENTS]
    return [*made, random.integers(0, NUM_IDS, batch)]


def sized(shape: tuple[Size, ...], batch: int) -> tuple[int, ...]:
    """A shape for a batch."""
    return tuple(c * batch**p for c, p in shape)


class Composition:
    """A random program.

    Args:
      seed: of its steps.
      batch: with which it has no more than some thousand elements anywhere.
      length: steps.
    """

    def __init__(self, seed: int, batch: int, length: int = 7) -> None:
        self._random = np.random.default_rng(seed)
        self._batch = batch
        self._shapes: list[tuple[Size, ...]] = [*ARGUMENTS]
        self._steps: list[Step] = []
        self.text: list[str] = []
        while len(self._steps) < length:
            kind = self._pick(_KINDS)
            made = kind(self, *self._any())
            if made is not None and math.prod(sized(made[0], batch)) <= _MOST_ELEMENTS:
                self._shapes.append(made[0])
                self._steps.append(made[1])
                self.text.append(f"{kind.__name__}: {made[0]}")

    def __call__(self, given: list[Any], batch: int) -> list[Any]:
        """The last results, and the mean of each of all."""
        values = [*given[: len(ARGUMENTS)]]
        for step in self._steps:
            values.append(tf.tanh(step([*values, given[-1]], batch)))
        return [*values[-3:], *(tf.reduce_mean(value) for value in values[len(ARGUMENTS) :])]

    def _pick(self, among: Any) -> Any:
        return among[int(self._random.integers(len(among)))]

    def _any(self) -> tuple[int, tuple[Size, ...]]:
        """A tensor, the newest with a half of the probability; its shape."""
        i = len(self._shapes) - 1 if self._random.random() < 0.5 else int(self._random.integers(len(self._shapes)))
        return i, self._shapes[i]

    def _axis(self, shape: tuple[Size, ...]) -> int:
        return int(self._random.integers(len(shape)))


Made = tuple[tuple[Size, ...], Step] | None


def reshape(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """Factors of all sizes in another order, some of them multiplied."""
    factors: list[Size] = []
    for c, p in shape:
        factors += [(1, 1)] * p + [(f, 0) for f in _factors(c)]
    if made._random.random() < 0.5:  # else only neighbors are multiplied, as when axes are flattened
        factors = [factors[k] for k in made._random.permutation(len(factors))]
    out: list[Size] = []
    for c, p in factors:
        if out and made._random.random() < 0.5:
            out[-1] = (out[-1][0] * c, out[-1][1] + p)
        else:
            out.append((c, p))
    target = tuple(out)
    return target, lambda v, b: tf.reshape(v[i], sized(target, b))


def _factors(n: int) -> list[int]:
    return next(([f, *_factors(n // f)] for f in (2, 3, 5, 7) if n % f == 0), [n] if n > 1 else [])


def transpose(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    order = [int(k) for k in made._random.permutation(len(shape))]
    return tuple(shape[k] for k in order), lambda v, b: tf.transpose(v[i], order)


def reduce(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    if not shape:
        return None
    axes = sorted({made._axis(shape) for _ in range(int(made._random.integers(1, 3)))})
    keep = bool(made._random.random() < 0.5)
    kind = made._pick(
        [tf.reduce_sum, tf.reduce_mean, tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.math.reduce_euclidean_norm]
    )
    out = [(1, 0) if k in axes else size for k, size in enumerate(shape) if keep or k not in axes]
    return tuple(out), lambda v, b: kind(v[i], axis=axes, keepdims=keep)


def product(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """With a transposed self, or with another tensor where sizes fit."""
    j, other = made._any()
    if len(shape) < 2 or len(other) < 2:
        return None
    for a in (False, True):
        for b in (False, True):
            left, right = (shape[-2:][::-1] if a else shape[-2:]), (other[-2:][::-1] if b else other[-2:])
            if left[1] == right[0] and (shape[:-2] == other[:-2] or not other[:-2] or not shape[:-2]):
                head = shape[:-2] or other[:-2]
                return (*head, left[0], right[1]), lambda v, _, a=a, b=b: tf.matmul(
                    v[i], v[j], transpose_a=a, transpose_b=b
                )
    return None


def combine(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """Two tensors that broadcast."""
    j, other = made._any()
    rank = max(len(shape), len(other))
    a, b = ((*((1, 0),) * (rank - len(s)), *s) for s in (shape, other))
    if any(m != n and (1, 0) not in (m, n) for m, n in zip(a, b, strict=True)):
        return None
    kind = made._pick([tf.add, tf.subtract, tf.multiply, tf.maximum])
    out = tuple(n if m == (1, 0) else m for m, n in zip(a, b, strict=True))
    return out, lambda v, _: kind(v[i], v[j])


def join(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """A tensor and what differs from it, along an axis or a new one."""
    if not shape:
        return None
    axis = made._axis(shape)
    if made._random.random() < 0.5:
        return (*shape[:axis], (2, 0), *shape[axis:]), lambda v, _: tf.stack([v[i], v[i] - 1], axis)
    c, p = shape[axis]
    return (*shape[:axis], (2 * c, p), *shape[axis + 1 :]), lambda v, _: tf.concat([v[i], -v[i]], axis)


def cut(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """A part of an axis, from its beginning, its end, or backwards."""
    if not shape:
        return None
    axis = made._axis(shape)
    c, p = shape[axis]
    if c == 1:
        return shape, lambda v, _: tf.reverse(v[i], [axis])
    part = int(made._random.integers(1, c))
    start = int(made._random.integers(0, c - part + 1))

    def step(v: list[Any], batch: int) -> Any:
        n = batch**p
        begin, size = [0] * len(shape), [-1] * len(shape)
        begin[axis], size[axis] = start * n, part * n
        return tf.slice(v[i], begin, size)

    def strided(v: list[Any], batch: int) -> Any:
        n = batch**p
        at = [slice(None)] * len(shape)
        at[axis] = slice(start * n, (start + part) * n)
        return v[i][tuple(at)]

    return (*shape[:axis], (part, p), *shape[axis + 1 :]), made._pick([step, strided])


def repeat(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """As often as there are examples, or twice, along an axis or a new first one."""
    times = made._pick([(1, 1), (2, 0)])
    if not shape or made._random.random() < 0.5:
        return (times, *shape), lambda v, b: tf.broadcast_to(v[i], sized((times, *shape), b))
    axis = made._axis(shape)
    c, p = shape[axis]
    out = (*shape[:axis], (c * times[0], p + times[1]), *shape[axis + 1 :])
    return out, lambda v, b: tf.tile(v[i], [sized((times,), b)[0] if k == axis else 1 for k in range(len(shape))])


def lookup(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """By each example's id, along an axis; or examples by each other's id."""
    fitting = [k for k, (c, p) in enumerate(shape) if c >= NUM_IDS or p]
    if not fitting:
        return None
    axis = made._pick(fitting)
    return (*shape[:axis], (1, 1), *shape[axis + 1 :]), lambda v, _: tf.gather(
        v[i], tf.minimum(v[-1], _least(v[i], axis)), axis=axis
    )


def _least(value: Any, axis: int) -> Any:
    return tf.constant(value.shape[axis] - 1, tf.int64)


def segments(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """Sums by the example's id."""
    if not shape or shape[0] != (1, 1):
        return None
    return ((NUM_IDS, 0), *shape[1:]), lambda v, _: tf.math.unsorted_segment_sum(v[i], v[-1], NUM_IDS)


def along(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    """Of an axis."""
    if not shape:
        return None
    axis = made._axis(shape)
    kind = made._pick(
        [
            tf.cumsum,
            tf.nn.softmax,
            lambda x, axis: tf.roll(x, 1, axis),
            lambda x, axis: tf.math.l2_normalize(x, axis, 1e-3),
        ]
    )
    return shape, lambda v, _: kind(v[i], axis=axis)


def squeeze(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    return tuple(size for size in shape if size != (1, 0)), lambda v, b: tf.squeeze(
        v[i], [k for k, s in enumerate(shape) if s == (1, 0)]
    )


def expand(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    axis = int(made._random.integers(len(shape) + 1))
    return (*shape[:axis], (1, 0), *shape[axis:]), lambda v, _: tf.expand_dims(v[i], axis)


def choose(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    return shape, lambda v, _: tf.where(v[i] > 0, v[i], tf.zeros_like(v[i]) - 2)


def pad(made: Composition, i: int, shape: tuple[Size, ...]) -> Made:
    if not shape:
        return None
    axis = made._axis(shape)
    c, p = shape[axis]
    return (*shape[:axis], (2 * c, p), *shape[axis + 1 :]), lambda v, b: tf.pad(
        v[i], [[sized((shape[axis],), b)[0], 0] if k == axis else [0, 0] for k in range(len(shape))]
    )


_KINDS = [
    reshape,
    reshape,
    reshape,
    transpose,
    transpose,
    reduce,
    reduce,
    product,
    product,
    combine,
    combine,
    join,
    cut,
    repeat,
    lookup,
    segments,
    along,
    squeeze,
    expand,
    choose,
    pad,
]
