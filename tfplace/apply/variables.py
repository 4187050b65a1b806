"""Variables moved between devices in place: the same Python objects, their storage elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfplace.apply.devices import canonical
from tfplace.errors import ApplyError
from tfplace.extract import tf_internals


def backend_variable(variable: Any) -> Any:
    """The `tf.Variable` that holds the storage of a TensorFlow, Sonnet, Keras 3 or tf_keras variable.

    Raises:
      ApplyError: none of these, or a distributed variable, which has several.
    """
    inner = variable
    while not isinstance(inner, tf.Variable) and hasattr(inner, "_value"):
        inner = inner._value  # keras.Variable
    while hasattr(inner, "_variable"):
        inner = inner._variable  # tf_keras AutoCastVariable
    if not isinstance(inner, tf.Variable) or not hasattr(inner, "_handle"):
        raise ApplyError(
            f"{type(variable).__name__} {getattr(variable, 'name', '')!r}",
            "a variable of TensorFlow, Keras or Sonnet outside tf.distribute",
        )
    return inner


def device_of(variable: Any) -> str:
    """Full name of the device that holds the variable."""
    return canonical(backend_variable(variable).handle.device)


class Variables:
    """Variables that can be moved and brought back.

    Functions traced earlier, by anybody, are rebound to the moved storage, and the old storage is freed.

    Args:
      variables: op name -> variable whose handle the op stands for.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = {op: backend_variable(v) for op, v in variables.items()}
        self._home = {op: canonical(v.handle.device) for op, v in self._variables.items()}

    def move(self, devices: Mapping[str, str]) -> int:
        """Moves each variable to the device of its op; returns how many had to move.

        Whatever fails, a variable and the functions that use it agree on its storage.

        Raises:
          ApplyError: a variable has no value yet; none has moved.
          tf.errors.OpError: a device cannot hold them; none has moved.
        """
        moving = {
            op: variable
            for op, variable in self._variables.items()
            if canonical(devices[op]) != canonical(variable.handle.device)
        }
        for variable in moving.values():
            _check_initialized(variable)
        copies = [(variable, _copy(variable, devices[op])) for op, variable in moving.items()]
        old = [variable.handle for variable in moving.values()]  # kept: an id is unique only among live objects
        try:
            for variable, copy in copies:
                tf_internals.swap_handle(variable, copy)
        finally:
            swapped = zip(old, moving.values(), strict=True)
            handles = {id(handle): v.handle for handle, v in swapped if v.handle is not handle}
            if handles:
                tf_internals.rebind_captures(handles)
        return len(moving)

    def restore(self) -> int:
        """Brings every variable back to where it was first seen; returns how many had to move."""
        return self.move(self._home)


def _check_initialized(variable: Any) -> None:
    with tf.init_scope():
        if not variable.is_initialized():
            raise ApplyError(
                f"variable {variable.name!r}, which has no value yet",
                "initialised variables",
                "Run one step, or assign initial values, before applying a placement.",
            )


def _copy(variable: Any, device: str) -> Any:
    """A variable of the same value on a device."""
    with tf.init_scope(), tf.device(device):
        # One copy: the value goes straight from the old storage to the new one.
        return tf.Variable(variable.value(), dtype=variable.dtype, shape=variable.shape, trainable=False)
