"""GraphSAGE: what each unit is, told to its neighbors in both directions."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tfplace.learned.networks.fan_out import fan_out


class Sage(snt.Module):
    """Rounds of h_v = f(h_v, max over neighbors u of sigmoid(W h_u + b)): GDP (Zhou et al. 2019, section 3.1).

    Departures: producers and consumers are told apart, each with a W of its own; what a unit was before a round is
    added to what it is after it.

    Args:
      hidden: H.
      rounds: how far a unit sees.
    """

    def __init__(self, hidden: int, rounds: int, name: str = "sage") -> None:
        super().__init__(name=name)
        self._first = snt.Linear(hidden, w_init=tf.zeros)
        self._told = [(snt.Linear(hidden, w_init=tf.zeros), snt.Linear(hidden, w_init=tf.zeros)) for _ in range(rounds)]
        self._joined = [snt.Linear(hidden, w_init=tf.zeros) for _ in range(rounds)]

    def __call__(self, units: tf.Tensor, src: tf.Tensor, dst: tf.Tensor) -> tf.Tensor:
        """[U, F] features and [P] producing and consuming units -> [U, H]."""
        h = tf.nn.relu(self._first(units))
        for (down, up), join in zip(self._told, self._joined, strict=True):
            before, own, *told = fan_out(h, 4)
            near = [_most(down(told[0]), src, dst), _most(up(told[1]), dst, src)]
            h = before + tf.nn.relu(join(tf.concat([own, *near], axis=1)))
        return h


def _most(said: tf.Tensor, speaker: tf.Tensor, hearer: tf.Tensor) -> tf.Tensor:
    """[U, H] the largest of what each unit hears, 0 if nothing."""
    heard = tf.math.unsorted_segment_max(tf.gather(tf.sigmoid(said), speaker), hearer, tf.shape(said)[0])
    return tf.maximum(heard, 0.0)
