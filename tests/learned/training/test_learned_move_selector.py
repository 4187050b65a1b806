"""The selector among moves: its network by hand, and what it refuses."""

import numpy as np
import pytest

from tfplace.errors import InputError
from tfplace.learned.training.learned_move_selector import LearnedMoveSelector, lesson, stretched
from tfplace.local_search.move_features_kernel import Feature

F, H = len(Feature), 3


def values(rng):
    shapes = [(F,), (F,), (F, H), (H,), (H,), (1,)]
    return [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]


def test_the_network_is_one_layer():
    rng = np.random.default_rng(0)
    mean, scale, weights, biases, end, bias = given = values(rng)
    move_features = rng.normal(size=(20, F))
    selector = LearnedMoveSelector(given)
    wanted = []
    for row in move_features:
        z = [(np.sign(x) * np.log(1 + 50 * abs(x)) - m) / s for x, m, s in zip(row, mean, scale, strict=True)]
        hidden = [max(sum(z[f] * weights[f, h] for f in range(F)) + biases[h], 0) for h in range(H)]
        wanted.append(sum(a * b for a, b in zip(hidden, end, strict=True)) + bias[0])
    np.testing.assert_allclose(selector.expected(move_features), wanted, rtol=1e-6)
    order = sorted(range(20), key=lambda i: -wanted[i])
    assert selector.pick(move_features, 7).tolist() == order[:7]
    assert selector.pick(move_features, 30).tolist() == order


def test_equal_moves_keep_their_order():
    selector = LearnedMoveSelector(values(np.random.default_rng(0)))
    assert selector.pick(np.ones((9, F)), 4).tolist() == [0, 1, 2, 3]


def test_small_features_tell_and_longer_steps_teach_nothing():
    assert stretched(np.array([0.0, 0.02, -0.02])).tolist() == pytest.approx([0, np.log(2), -np.log(2)])
    assert lesson(np.array([-np.inf, -1.0, 0.0, 1e-3, 4e-3])).tolist() == pytest.approx([0, 0, 0, 1, 2])


@pytest.mark.parametrize(
    "change",
    [
        lambda v: [],
        lambda v: v[:2],
        lambda v: v[:-1],
        lambda v: [*v, v[0]],
        lambda v: [v[0][:-1], *v[1:]],
        lambda v: [*v[:3], v[3][:-1], *v[4:]],
    ],
)
def test_weights_for_other_features_are_refused(change):
    with pytest.raises(InputError, match="weights of moves of shapes"):
        LearnedMoveSelector(change(values(np.random.default_rng(0))))
