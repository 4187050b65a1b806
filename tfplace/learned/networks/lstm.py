"""An LSTM over whole sequences."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import sonnet as snt
import tensorflow as tf

_GRADIENT = "TfplaceLstm"


class State(NamedTuple):
    """[B, H] hidden and cell values."""

    hidden: tf.Tensor
    cell: tf.Tensor


class Lstm(snt.Module):
    """The cell of `sonnet.LSTM` (S. Hochreiter, J. Schmidhuber 1997; forget gates after F. Gers et al. 2000).

    What is done with the input is apart from what is done step by step (`project`, then `run` or `step`): inputs that
    samples share are projected once, and only the recurrence is left in the loop. Its gradient with respect to the
    weights is one product over all steps, where that of a TensorFlow loop is as many additions of the whole matrix.
    `sonnet.UnrolledLSTM` is not used because its gradients are wrong with TensorFlow 2.21 on CPUs.

    Its weights are zeros until `tfplace.learned.networks.initial.draw_weights` draws them.

    Args:
      inputs: size of the input.
      hidden: H.
      name: of the module.
    """

    def __init__(self, inputs: int, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.hidden = hidden
        self.w_input = tf.Variable(tf.zeros([inputs, 4 * hidden]), name="w_input")
        self.w_hidden = tf.Variable(tf.zeros([hidden, 4 * hidden]), name="w_hidden")
        forget = tf.repeat(tf.constant([0.0, 1.0, 0.0, 0.0]), hidden)  # forgets little at first, as in Sonnet
        self.bias = tf.Variable(forget, name="bias")

    def project(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., inputs] -> [..., 4 H], what the input adds to the gates."""
        return inputs @ self.w_input + self.bias

    def zeros(self, batch: int | tf.Tensor) -> State:
        """The state before the first step."""
        zeros = tf.zeros([batch, self.hidden])
        return State(zeros, zeros)

    def run(self, gates: tf.Tensor) -> tf.Tensor:
        """[T, B, 4 H] projected inputs -> [T, B, H] hidden values after each step, from zeros."""
        out = _run(gates, tf.convert_to_tensor(self.w_hidden))
        out.set_shape([gates.shape[0], gates.shape[1], self.hidden])
        return out

    def step(self, gates: tf.Tensor, state: State) -> State:
        """One step from [B, 4 H] projected inputs."""
        values = _activated(gates + state.hidden @ self.w_hidden)
        cell = values.forget * state.cell + values.input * values.candidate
        return State(values.output * tf.tanh(cell), cell)


class _Gates(NamedTuple):
    """[B, H] each, after their non-linearities."""

    input: tf.Tensor
    forget: tf.Tensor
    candidate: tf.Tensor
    output: tf.Tensor


def _activated(gates: tf.Tensor) -> _Gates:
    i, f, g, o = tf.split(gates, 4, axis=-1)
    return _Gates(tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o))


@tf.function(input_signature=[tf.TensorSpec([None] * rank) for rank in (3, 2)], autograph=False)
def _run(gates: tf.Tensor, w_hidden: tf.Tensor) -> tf.Tensor:
    """Traced once, for all sizes.

    Its gradient is a registered one: TensorFlow keeps each trace of a `tf.custom_gradient`, with all that is around it,
    for ever.
    """
    steps, batch, hidden = tf.shape(gates)[0], tf.shape(gates)[1], tf.shape(w_hidden)[0]
    zeros = tf.zeros([batch, hidden])

    def forward(t: tf.Tensor, h: tf.Tensor, c: tf.Tensor, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        total = gates[t] + h @ w_hidden
        values = _activated(total)
        c = values.forget * c + values.input * values.candidate
        h = values.output * tf.tanh(c)
        return t + 1, h, c, tuple(array.write(t, value) for array, value in zip(kept, (total, c, h), strict=True))

    arrays = tuple(tf.TensorArray(tf.float32, steps) for _ in range(3))
    kept = tf.while_loop(lambda t, *_: t < steps, forward, (0, zeros, zeros, arrays))[-1]
    total, cell, out = (array.stack() for array in kept)
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": _GRADIENT}):
        return tf.identity_n([out, total, cell, gates, w_hidden])[0]


def _gradient(op: tf.Operation, d_out: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor | None]:
    """Of what `_run` returns, with respect to its arguments, which are the last two that `op` reads."""
    out, total, cell, _, w_hidden = op.inputs
    steps, batch, hidden = tf.shape(out)[0], tf.shape(out)[1], tf.shape(out)[2]
    zeros = tf.zeros([batch, hidden])
    i, f, g, o = _activated(total)
    before = tf.concat([zeros[None], cell[:-1]], axis=0)
    squashed = tf.tanh(cell)
    # what a unit of the cell's gradient gives each gate but the output's, and a unit of the hidden value's that one
    by_cell = tf.stack([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g)], axis=2)
    by_out, to_cell = squashed * o * (1 - o), o * (1 - squashed * squashed)

    def backward(t: tf.Tensor, d_h: tf.Tensor, d_c: tf.Tensor, kept: tf.TensorArray) -> tuple[Any, ...]:
        d_h += d_out[t]
        d_c += d_h * to_cell[t]
        d_ifg = tf.reshape(d_c[:, None] * by_cell[t], [batch, 3 * hidden])
        d_gates = tf.concat([d_ifg, d_h * by_out[t]], axis=1)
        return t - 1, tf.matmul(d_gates, w_hidden, transpose_b=True), d_c * f[t], kept.write(t, d_gates)

    array = tf.TensorArray(tf.float32, steps)
    d_gates = tf.while_loop(lambda t, *_: t >= 0, backward, (steps - 1, zeros, zeros, array))[-1].stack()
    shifted = tf.concat([zeros[None], out[:-1]], axis=0)
    return [None, None, None, d_gates, tf.einsum("tbh,tbg->hg", shifted, d_gates)]


with contextlib.suppress(KeyError):  # when the module is loaded once more, as notebooks may
    tf.RegisterGradient(_GRADIENT)(_gradient)
