"""Language models of a random recurrent cell, with Penn Treebank's vocabulary.

The cells are those of ENAS's recurrent search space (Pham et al. 2018, section 2.1): a tree of nodes, each of which
reads one node before it through a highway connection; the state is the mean of the nodes that nothing reads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tfplace_zoo.base import Model

ACTIVATIONS = ("tanh", "relu", "identity", "sigmoid")
NODES = 12

Cell = Sequence[Sequence[Any]]
"""A node is (node it reads, activation); the first one reads word and state, and its first entry means nothing."""


def draw(rng: random.Random) -> dict[str, Any]:
    """A cell, uniformly from the search space."""
    return {"cell": [[rng.randrange(max(i, 1)), rng.choice(ACTIVATIONS)] for i in range(NODES)]}


def build(cell: Cell, batch: int = 64, *, steps: int = 35, units: int = 1000, vocabulary: int = 10000) -> Model:
    """The training step of a word-level language model, its time steps unrolled.

    Args:
      cell: of the recurrent layer.
      batch: sequences in a step.
      steps: words in a sequence.
      units: of the embedding and of every node.
      vocabulary: number of words.

    Raises:
      ValueError: the cell has an activation of which there is none.
    """
    for _, activation in cell:
        if activation not in ACTIVATIONS:
            raise ValueError(f"received activation {activation!r}; expected one of {', '.join(ACTIVATIONS)}.")
    import keras
    import tensorflow as tf

    words = keras.Input((steps,), batch_size=batch, dtype="int32", name="words")
    x = keras.layers.Embedding(vocabulary, units, name="embedding")(words)
    x = _layer(cell, units)(x)
    model = keras.Model(words, keras.layers.Dense(vocabulary, name="logits")(x), name="ptb")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(20.0, global_clipnorm=0.25), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, steps), tf.int32)
    return Model(
        "ptb",
        model,
        (spec, spec),
        "Pham et al. 2018 (ENAS), recurrent search space; placed as ptb by Placeto (Addanki et al. 2019)",
        "cells drawn at random, not by a controller; no dropout, weight decay or tied embeddings; full softmax; the "
        "state starts at zero; constant learning rate",
    )


def _layer(cell: Cell, units: int) -> Any:
    import keras
    import tensorflow as tf

    activations = {"tanh": tf.tanh, "relu": tf.nn.relu, "identity": tf.identity, "sigmoid": tf.sigmoid}
    read = {previous for previous, _ in cell[1:]}
    ends = [i for i in range(len(cell)) if i not in read]

    class Recurrent(keras.layers.Layer):
        """The cell over all time steps; `[B, T, U]` to `[B, T, units]`."""

        def build(self, shape: Any) -> None:
            """Makes a matrix per node: its left half for the gate, its right half for the value."""
            rows = [shape[-1] + units] + [units] * (len(cell) - 1)
            self.kernels = [
                self.add_weight(shape=(n, 2 * units), initializer="random_uniform", name=f"node_{i}")
                for i, n in enumerate(rows)
            ]

        def call(self, x: Any) -> Any:
            """Runs over the time steps, each in a name scope `step_<t>`."""
            kernels = [tf.convert_to_tensor(kernel) for kernel in self.kernels]
            state, states = tf.zeros((x.shape[0], units)), []
            for t, word in enumerate(tf.unstack(x, axis=1)):
                with tf.name_scope(f"step_{t}"):
                    state = self.step(kernels, word, state)
                states.append(state)
            return tf.stack(states, axis=1)

        def step(self, kernels: Sequence[Any], word: Any, state: Any) -> Any:
            nodes: list[Any] = []
            for i, (previous, activation) in enumerate(cell):
                with tf.name_scope(f"node_{i}"):
                    carried = nodes[previous] if nodes else state
                    inputs = carried if nodes else tf.concat([word, state], axis=1)
                    gate, value = tf.split(tf.matmul(inputs, kernels[i]), 2, axis=1)
                    gate = tf.sigmoid(gate)
                    nodes.append(gate * activations[activation](value) + (1.0 - gate) * carried)
            return tf.add_n([nodes[i] for i in ends]) / float(len(ends))

        def compute_output_shape(self, shape: Any) -> tuple[int, ...]:
            """Known without a trace, which would build all the ops once more."""
            return (*shape[:2], units)

    return Recurrent(name="recurrent")
