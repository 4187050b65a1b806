"""LSTM layers whose time steps are ops of their own, or a while loop; the same weights serve both.

A sequence is a list with a `[B, U]` tensor per time step where steps are unrolled, and a `[B, T, U]` tensor in a loop.
Unrolled layers hand each step on by itself, so a step of the next layer waits for nothing but its own inputs: the grid
of cells that Mirhoseini et al. 2017 (section 4.1) place. Keras's own layers would wait for the whole sequence.

An unrolled layer is one Keras layer whose `call` loops over tensors: thousands of graph ops, but one Keras node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

Step = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...]]]


class _Recurrent(keras.layers.Layer):
    """What layers of LSTM cells share.

    Args:
      units: of state and output.
      unroll: every time step as ops of its own, in a name scope `step_<t>`, instead of a while loop.
      backward: from the last time step to the first.
      residual: adds the first input to the output (Wu et al. 2016, equation 6).
      name: of the layer and its name scope.
    """

    def __init__(self, units: int, *, unroll: bool, backward: bool = False, residual: bool = False, name: str) -> None:
        super().__init__(name=name)
        self.units, self.unroll, self.backward, self.residual = units, unroll, backward, residual

    def _build_cell(self, inputs: int) -> None:
        shape = (inputs + self.units, 4 * self.units)
        self.kernel = self.add_weight(shape=shape, initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(4 * self.units,), initializer="zeros", name="bias")

    def _cell(self) -> Step:
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)

        def step(x: tuple[Any, ...], state: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            h, c = cell((*x, state[0]), state[1], kernel, bias)
            return (h + x[0] if self.residual else h,), (h, c)

        return step

    def _scan(self, step: Step, sequences: Sequence[Any], state: Sequence[Any] | None, widths: tuple[int, ...]) -> Any:
        zeros = tf.zeros((_first(sequences[0]).shape[0], self.units)) if state is None else None
        before = (zeros, zeros) if state is None else tuple(state)
        if self.unroll:
            return unrolled(step, sequences, before, self.backward)
        return looped(step, sequences, before, self.backward, widths)

    def _sequence_spec(self, like: Any, width: int) -> Any:
        shape = _first(like).shape
        if not self.unroll:
            return keras.KerasTensor((*shape[:2], width))
        steps = len(like) if isinstance(like, list) else shape[1]
        return [keras.KerasTensor((shape[0], width)) for _ in range(steps)]

    def _state_spec(self, like: Any) -> Any:
        return [keras.KerasTensor((_first(like).shape[0], self.units)) for _ in "hc"]


class LSTM(_Recurrent):
    """A layer of LSTM cells as in Zaremba et al. 2014, with 1 added to the forget gate."""

    def build(self, sequences_shape: Any, **_: Any) -> None:
        """Makes the weights of all four gates as one matrix."""
        self._build_cell(sum(_width(shape) for shape in sequences_shape))

    def call(self, sequences: Sequence[Any], state: Sequence[Any] | None = None) -> Any:
        """Runs over the time steps.

        Args:
          sequences: one or several; a cell reads them side by side. A `[B, T, U]` tensor is one in either case.
          state: `(h, c)` before the first step, each `[B, units]`; zeros by default.

        Returns:
          The outputs, a sequence, and the last state.
        """
        (outputs,), last = self._scan(self._cell(), sequences, state, (self.units,))
        return outputs, list(last)

    def compute_output_spec(self, sequences: Sequence[Any], state: Any = None) -> Any:
        """The outputs' shapes; known without a trace, which would build all the ops once more."""
        return self._sequence_spec(sequences[0], self.units), self._state_spec(sequences[0])


class AttentionLSTM(_Recurrent):
    """A layer of LSTM cells, each of which also reads what its previous output attends to.

    The attention is a feed-forward network with one hidden layer, of `units` (Bahdanau et al. 2015, appendix A.1.2; Wu
    et al. 2016, equation 4): `softmax(v . tanh(W q + U m))` over the memory's steps, in a name scope `attention`.
    """

    def build(self, sequences_shape: Any, memory_shape: Any, **_: Any) -> None:
        """Makes the weights of cell and attention."""
        width = _width(memory_shape)
        self._build_cell(sum(_width(shape) for shape in sequences_shape) + width)
        self.query = self.add_weight(shape=(self.units, self.units), initializer="glorot_uniform", name="query")
        self.key = self.add_weight(shape=(width, self.units), initializer="glorot_uniform", name="key")
        self.score = self.add_weight(shape=(self.units,), initializer="random_normal", name="score")

    def call(self, sequences: Sequence[Any], memory: Any, state: Sequence[Any] | None = None) -> Any:
        """Runs over the time steps.

        Args:
          sequences: as of `LSTM`.
          memory: a sequence, read at every step.
          state: as of `LSTM`.

        Returns:
          The outputs, the contexts (both sequences) and the last state.
        """
        with tf.name_scope("attention"):
            memory = stacked(memory)
            keys = tf.tensordot(memory, tf.convert_to_tensor(self.key), 1)
            query, score = tf.convert_to_tensor(self.query), tf.convert_to_tensor(self.score)
        plain = self._cell()

        def step(x: tuple[Any, ...], state: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
            with tf.name_scope("attention"):
                context = attend(tf.matmul(state[0], query), keys, score, memory)
            (output,), state = plain((*x, context), state)
            return (output, context), state

        (outputs, contexts), last = self._scan(step, sequences, state, (self.units, memory.shape[-1]))
        return outputs, contexts, list(last)

    def compute_output_spec(self, sequences: Sequence[Any], memory: Any, state: Any = None) -> Any:
        """The outputs' shapes."""
        like = sequences[0]
        contexts = self._sequence_spec(like, _first(memory).shape[-1])
        return self._sequence_spec(like, self.units), contexts, self._state_spec(like)


class Stack(keras.layers.Layer):
    """Sequences side by side as one `[B, T, sum of U]` tensor."""

    def call(self, sequences: Sequence[Any]) -> Any:
        """Stacks the time steps, then concatenates the sequences."""
        tensors = [stacked(sequence) for sequence in sequences]
        return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=-1)

    def compute_output_spec(self, sequences: Sequence[Any]) -> Any:
        """The output's shape."""
        first, steps = _first(sequences[0]), sequences[0]
        count = len(steps) if isinstance(steps, list) else first.shape[1]
        return keras.KerasTensor((first.shape[0], count, sum(_first(s).shape[-1] for s in sequences)))


def cell(inputs: tuple[Any, ...], c: Any, kernel: Any, bias: Any) -> tuple[Any, Any]:
    """One LSTM step: inputs, the last of which is h, and c, to the new h and c, each `[B, U]`."""
    gates = tf.nn.bias_add(tf.matmul(tf.concat(inputs, axis=1), kernel), bias)
    i, j, f, o = tf.split(gates, 4, axis=1)
    c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
    return tf.tanh(c) * tf.sigmoid(o), c


def attend(query: Any, keys: Any, score: Any, memory: Any) -> Any:
    """The context `[B, M]` of a query `[B, A]`, given keys `[B, S, A]`, score `[A]` and memory `[B, S, M]`."""
    scores = tf.reduce_sum(score * tf.tanh(keys + query[:, None, :]), axis=2)
    weights = tf.nn.softmax(scores)
    return tf.squeeze(tf.matmul(weights[:, None, :], memory), axis=1)


def unrolled(step: Step, sequences: Sequence[Any], state: tuple[Any, ...], backward: bool) -> Any:
    """Runs `step(inputs, state) -> outputs, state` once per time step; gives a list of tensors per output."""
    lists = [s if isinstance(s, list) else tf.unstack(s, axis=1) for s in sequences]
    order = range(len(lists[0]))
    outputs = []
    for t in reversed(order) if backward else order:
        with tf.name_scope(f"step_{t}"):
            y, state = step(tuple(steps[t] for steps in lists), state)
        outputs.append(y)
    return [list(y) for y in zip(*(outputs[::-1] if backward else outputs), strict=True)], state


def looped(
    step: Step, sequences: Sequence[Any], state: tuple[Any, ...], backward: bool, widths: tuple[int, ...]
) -> Any:
    """Like `unrolled`, but one while loop over `[B, T, U]` tensors; gives such a tensor, `widths` wide, per output."""
    times = [tf.transpose(s, (1, 0, 2)) for s in sequences]
    count, batch = times[0].shape[:2]
    arrays = [tf.TensorArray(x.dtype, count, element_shape=x.shape[1:]).unstack(x) for x in times]
    outputs = tuple(tf.TensorArray(tf.float32, count, element_shape=(batch, width)) for width in widths)

    def body(i: Any, outputs: Any, state: Any) -> Any:
        t = count - 1 - i if backward else i
        y, state = step(tuple(array.read(t) for array in arrays), state)
        return i + 1, tuple(array.write(t, x) for array, x in zip(outputs, y, strict=True)), state

    loop = (tf.constant(0), outputs, state)
    _, outputs, state = tf.while_loop(lambda i, *_: i < count, body, loop, maximum_iterations=count)
    return [tf.transpose(array.stack(), (1, 0, 2)) for array in outputs], state


def stacked(sequence: Any) -> Any:
    """A sequence as a `[B, T, U]` tensor."""
    return tf.stack(sequence, axis=1) if isinstance(sequence, list) else sequence


def _first(sequence: Any) -> Any:
    return sequence[0] if isinstance(sequence, list) else sequence


def _width(shape: Any) -> int:
    """The last dimension of a sequence's shape, or of its steps' shapes."""
    return int(_width(shape[0]) if isinstance(shape[0], list | tuple) else shape[-1])
