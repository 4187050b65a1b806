"""The attentional encoder-decoder of the papers: groups in, a device for each of them in turn."""

from __future__ import annotations

from typing import Any, NamedTuple

import sonnet as snt
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from tfplace.learned.networks.lstm import Lstm, State


class _Encoded(NamedTuple):
    """Of the groups: [G, H] encodings, [G, H] keys of the attention, [G, 4 H] what each adds to the gates."""

    memory: tf.Tensor
    keys: tf.Tensor
    gates: tf.Tensor


class Attentional(snt.Module):
    """An LSTM reads all groups in topological order; another one decides their devices one by one, in the same order.

    What the decoder is given at a group is the device of the group before, as an embedding, and the group's own
    encoding. Its hidden value attends to all encodings by content; the logits are read from both.

    A. Mirhoseini et al.: Device Placement Optimization with Reinforcement Learning, ICML 2017, section 3.2, after D.
    Bahdanau et al. 2015. Departures: the group's own encoding is an input, where attention alone has to find it; the
    attention's score is a product and its result goes to the logits only (M.-T. Luong et al. 2015), so that it is
    computed for all groups at once where their devices are known.

    Its weights are zeros until `tfplace.learned.networks.initial.draw_weights` draws them.

    Args:
      features: F.
      devices: D.
      hidden: H, of both LSTMs.
      embedding: size of a device's embedding.
      bidirectional: whether the groups are read in both directions, each with half of H.
      clip: C of C tanh(logits / T), which keeps logits small (I. Bello et al. 2016); None leaves them as they are.
      temperature: T.
      name: of the module.
    """

    def __init__(
        self,
        features: int,
        devices: int,
        *,
        hidden: int,
        embedding: int = 32,
        bidirectional: bool = False,
        clip: float | None = None,
        temperature: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.devices = devices
        self.clip, self.temperature = clip, temperature
        sizes = (hidden - hidden // 2, hidden // 2) if bidirectional else (hidden,)
        self.readers = [Lstm(features, size, name=f"reader{i}") for i, size in enumerate(sizes)]
        # the last row stands for the device before the first group
        self.embedding = tf.Variable(tf.zeros([devices + 1, embedding]), name="device_embedding")
        self.decoder = Lstm(embedding + hidden, hidden, name="decoder")
        self.key = snt.Linear(hidden, with_bias=False, w_init=tf.zeros, name="key")
        self.logits = snt.Linear(devices, w_init=tf.zeros, name="logits")
        self.key(tf.zeros([1, hidden]))
        self.logits(tf.zeros([1, 2 * hidden]))

    def sample(
        self, features: tf.Tensor, prior: tf.Tensor, count: int, seed: tf.Tensor, noise: tf.Tensor | None = None
    ) -> tf.Tensor:
        """[B, G] devices.

        Args:
          features: [G, F] of the groups, in topological order.
          prior: [G, D] logits that are added to the policy's; far below 0 where a device is never allowed.
          count: B.
          seed: [2] integers.
          noise: [B, G, D] added to the logits, in units of their root mean square.
        """
        encoded = self._encode(features)
        groups = tf.shape(features)[0]
        by_device = self.embedding @ self._device_rows

        def decide(t: tf.Tensor, state: State, device: tf.Tensor, kept: tf.TensorArray) -> tuple[Any, ...]:
            state = self.decoder.step(tf.gather(by_device, device) + encoded.gates[t], state)
            logits = _noisy(self._read(state.hidden[:, None], encoded)[:, 0], noise if noise is None else noise[:, t])
            logits += prior[t]
            device = tfd.Categorical(logits=logits).sample(seed=tf.stack([seed[0], seed[1] + t]))
            return t + 1, state, device, kept.write(t, device)

        first = (0, self.decoder.zeros(count), tf.fill([count], self.devices), tf.TensorArray(tf.int32, groups))
        devices = tf.while_loop(lambda t, *_: t < groups, decide, first)[-1].stack()
        return tf.transpose(devices)

    def distribution(
        self, features: tf.Tensor, prior: tf.Tensor, devices: tf.Tensor, noise: tf.Tensor | None = None
    ) -> Any:
        """A categorical distribution [B, G] of each group's device, given those of the groups before it.

        Args:
          features: [G, F].
          prior: [G, D].
          devices: [B, G].
          noise: [B, G, D] with which they were drawn.
        """
        encoded = self._encode(features)
        before = tf.concat([tf.fill([tf.shape(devices)[0], 1], self.devices), devices[:, :-1]], axis=1)
        by_device = self.embedding @ self._device_rows
        gates = tf.gather(by_device, tf.transpose(before)) + encoded.gates[:, None]
        hidden = tf.transpose(self.decoder.run(gates), [1, 0, 2])
        return tfd.Categorical(logits=_noisy(self._read(hidden, encoded), noise) + prior)

    @property
    def _device_rows(self) -> tf.Tensor:
        """The part of the decoder's input weights that meets the device's embedding."""
        return self.decoder.w_input[: self.embedding.shape[1]]

    def _encode(self, features: tf.Tensor) -> _Encoded:
        forward = self.readers[0]
        read = [forward.run(forward.project(features)[:, None])[:, 0]]
        for backward in self.readers[1:]:
            turned = backward.project(tf.reverse(features, [0]))
            read.append(tf.reverse(backward.run(turned[:, None])[:, 0], [0]))
        memory = tf.concat(read, axis=1)
        gates = memory @ self.decoder.w_input[self.embedding.shape[1] :] + self.decoder.bias
        return _Encoded(memory, self.key(memory), gates)

    def _read(self, hidden: tf.Tensor, encoded: _Encoded) -> tf.Tensor:
        """[B, T, H] hidden values -> [B, T, D] logits."""
        weight = tf.nn.softmax(tf.einsum("bth,gh->btg", hidden, encoded.keys))
        context = tf.einsum("btg,gh->bth", weight, encoded.memory)
        logits = self.logits(tf.concat([hidden, context], axis=-1)) / self.temperature
        return logits if self.clip is None else self.clip * tf.tanh(logits)


def _noisy(logits: tf.Tensor, noise: tf.Tensor | None) -> tf.Tensor:
    """[..., D] logits with noise; the root mean square is that of each group's D logits."""
    if noise is None:
        return logits
    return logits + noise * tf.stop_gradient(tf.sqrt(tf.reduce_mean(tf.square(logits), axis=-1, keepdims=True)))
