import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tfplace.learned.training.parameters import Parameters

SHAPES = ((3,), (4, 5), (), (1,), (2, 3, 4))
CLIP = 1.0


def _variables():
    rng = np.random.default_rng(0)
    return [tf.Variable(rng.normal(size=shape), dtype=tf.float32) for shape in SHAPES]


def _gradients(seed, size=1.0):
    rng = np.random.default_rng(seed)
    return [(size * rng.normal(size=shape)).astype(np.float32) for shape in SHAPES]


@pytest.mark.parametrize("size", [1e-3, 10.0])  # below what is clipped, and above
def test_it_descends_as_one_variable_after_the_other_does(size):
    mine, theirs = _variables(), _variables()
    parameters, adam = Parameters(mine, 0.1), snt.optimizers.Adam(0.1)
    for seed in range(5):
        gradients = _gradients(seed, size)
        norm = np.sqrt(sum(float(np.sum(gradient**2)) for gradient in gradients))
        assert parameters.descend(gradients, 0.1, CLIP) == pytest.approx(norm)
        adam.apply([tf.constant(g * min(1.0, CLIP / norm), tf.float32) for g in gradients], theirs)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5)


def test_what_others_assign_is_where_it_goes_on():
    variables = _variables()
    parameters = Parameters(variables, 0.1)
    for variable in variables:
        variable.assign(tf.fill(variable.shape, 100.0))
    parameters.descend(_gradients(0), 0.1, CLIP)
    assert all((abs(value - 100) < 1).all() for value in parameters.values())


def test_its_state_goes_on_with_other_variables():
    parameters, again = Parameters(_variables(), 0.1), Parameters(_variables(), 0.1)
    for seed in range(3):
        parameters.descend(_gradients(seed), 0.1, CLIP)
    state = parameters.state()
    assert [state[f"variable{i}"].shape for i in range(len(state))] == [*SHAPES, *SHAPES, *SHAPES, ()]
    again.restore(state)
    for each in (parameters, again):
        each.descend(_gradients(3), 0.05, CLIP)
    for one, other in zip(parameters.values(), again.values(), strict=True):
        np.testing.assert_array_equal(one, other)
