"""Whether split steps train as unsplit ones: losses of the first steps, in this process on two logical devices."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfplace

STEPS = 5
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
"""By dtype the difference between losses that counts as rounding, as a part of the loss."""

PER_SLICE = 1e-2
"""The same where BatchNorm's statistics are those of each slice, which are nearly the batch's."""


def use_two_devices():
    """Gives this process the devices CPU:0 and CPU:1; to be called before TensorFlow has looked for its devices."""
    cpu, *_ = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def keep(model):
    """A function that gives all variables of a model, metrics and optimizer the values that they have now."""
    held = [*model.variables, *model.metrics_variables, *model.optimizer.variables]
    values = [variable.numpy() for variable in held]

    def reset():
        for variable, value in zip(held, values, strict=True):
            variable.assign(value)

    return reset


def losses_of(model, batch, placement, reset):
    """Losses after each of the first steps under a placement, as Keras logs them: the mean over the steps so far.

    Args:
      model: whose step was placed.
      batch: given to every step.
      placement: of the step's graph on CPU:0 and CPU:1.
      reset: gives the model its first values; see `keep`.
    """
    reset()
    step = tfplace.apply(placement.problem.graph, placement)
    given = tuple(map(tf.constant, batch))
    return [float(step(given)["loss"]) for _ in range(STEPS)]


def difference(losses, of):
    """The largest difference of losses to those of another step, as a part of these."""
    return float(np.max(np.abs(np.subtract(losses, of)) / np.abs(of)))


def check(what, found, tolerance=TOLERANCE["float32"]):
    """Raises if losses differ by more than a tolerance.

    Raises:
      AssertionError: they do; says of what and by how much.
    """
    assert found <= tolerance, f"{what}: losses differ by {found:.1e}, more than {tolerance:.0e}"
