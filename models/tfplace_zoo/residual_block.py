"""WaveNet's layer: a gated dilated causal convolution with a residual and a skip connection."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class ResidualBlock(keras.layers.Layer):
    """Gated activation unit and connections of van den Oord et al. 2016, sections 2.3 and 2.4.

    Skip connections are summed from block to block, so that a cut between two blocks is crossed by two tensors.

    Args:
      skip: channels of the skip connection.
      dilation: samples between the two that the convolution reads.
      last: has no residual connection, as nothing would read it.
      name: of the layer and its name scope.
    """

    def __init__(self, skip: int, *, dilation: int, last: bool, name: str) -> None:
        super().__init__(name=name)
        self.skip, self.dilation, self.last = skip, dilation, last

    def build(self, streams_shape: Any) -> None:
        """Makes the filters: two taps for filter and gate, one for the connections."""
        channels = streams_shape[0][-1]
        sizes = {"filter": (2, channels), "gate": (2, channels), "skip": (1, self.skip), "residual": (1, channels)}
        if self.last:
            del sizes["residual"]
        self.filters = {name: self._weights(name, taps, channels, out) for name, (taps, out) in sizes.items()}

    def _weights(self, name: str, taps: int, channels: int, out: int) -> tuple[Any, Any]:
        kernel = self.add_weight(shape=(taps, channels, out), initializer="glorot_uniform", name=f"{name}_kernel")
        return kernel, self.add_weight(shape=(out,), initializer="zeros", name=f"{name}_bias")

    def call(self, streams: list[Any]) -> list[Any]:
        """From the layer's input `[B, T, C]` and, if there are any yet, the skips `[B, T, skip]`, to the next layer's.

        The last layer gives the skips only.
        """
        x, *skips = streams
        gated = tf.tanh(self._convolve("filter", x)) * tf.sigmoid(self._convolve("gate", x))
        total = self._convolve("skip", gated)
        total = skips[0] + total if skips else total
        return [total] if self.last else [x + self._convolve("residual", gated), total]

    def _convolve(self, name: str, x: Any) -> Any:
        with tf.name_scope(name):
            kernel, bias = (tf.convert_to_tensor(weight) for weight in self.filters[name])
            return causal_convolution(x, kernel, bias, self.dilation)

    def compute_output_spec(self, streams: list[Any]) -> list[Any]:
        """The outputs' shapes."""
        x = streams[0]
        total = keras.KerasTensor((*x.shape[:-1], self.skip))
        return [total] if self.last else [keras.KerasTensor(x.shape), total]


def causal_convolution(x: Any, kernel: Any, bias: Any, dilation: int) -> Any:
    """Sample t of the result reads samples t, t - dilation, ... of x; what precedes x is zero.

    Args:
      x: `[B, T, C]`.
      kernel: `[taps, C, O]`; the last tap is that of sample t.
      bias: `[O]`.
      dilation: samples between taps.

    Returns:
      `[B, T, O]`.
    """
    taps = kernel.shape[0]
    if taps == 1:
        return tf.nn.bias_add(tf.nn.convolution(x, kernel, padding="VALID"), bias)
    padded = tf.pad(x, ((0, 0), ((taps - 1) * dilation, 0), (0, 0)))
    return tf.nn.bias_add(tf.nn.convolution(padded, kernel, padding="VALID", dilations=dilation), bias)
