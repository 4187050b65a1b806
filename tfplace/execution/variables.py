"""Variables moved between devices in place: the same Python objects, their storage elsewhere."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from tfplace.errors import ApplyError
from tfplace.execution.devices import canonical, is_here, short
from tfplace.extraction import tf_internals

_homes: dict[int, str] = {}
"""Id of a variable that is alive -> where it was before anything here moved it. TensorFlow's variables have no hash."""

_kept: dict[int, tuple[weakref.ref[Any], Any]] = {}
"""Id of a variable that is on a worker -> the variable, and the handle it had here before, with the value of then."""


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


def home_of(variable: Any) -> str:
    """Full name of the device that held a `tf.Variable` before anything here moved it, whoever did."""
    key = id(variable)
    if key not in _homes:
        _homes[key] = canonical(variable.handle.device)
        weakref.finalize(variable, _homes.pop, key).atexit = False
    return _homes[key]


def variables_away() -> bool:
    """Whether any variable is on a worker."""
    return bool(_kept)


def abandon_workers() -> None:
    """Gives variables on workers, which are lost, the storage and the values back that they had here before."""
    Variables._moves += 1
    away = [(variable(), handle) for variable, handle in _kept.values()]
    _kept.clear()
    found = [(variable, handle) for variable, handle in away if variable is not None]
    old = [variable.handle for variable, _ in found]
    for variable, handle in found:
        tf_internals.set_handle(variable, handle)
    rebind([variable for variable, _ in found], old)


class Variables:
    """Variables that can be moved and brought back.

    Functions traced earlier, by anybody, are rebound to the moved storage, and the old storage is freed.

    Args:
      variables: op name -> variable whose handle the op stands for.
    """

    _moves: ClassVar[int] = 0
    """How often any variables have been moved: what has not changed since one looked need not be looked at again."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = {op: backend_variable(v) for op, v in variables.items()}
        self._home = {op: home_of(v) for op, v in self._variables.items()}
        self._asked: dict[str, str] = {}
        self._checked = -1

    def move(self, devices: Mapping[str, str]) -> int:
        """Moves each variable to the device of its op; returns how many had to move.

        Whatever fails, a variable and the functions that use it agree on its storage.

        Raises:
          ApplyError: a variable has no value yet, or a live input pipeline reads it; none has moved.
          tf.errors.OpError: a device cannot hold them; none has moved.
        """
        for variable in piped(self._moving(devices)).values():
            raise ApplyError(
                f"a move of variable {variable.name!r}, which an input pipeline reads",
                "variables that no input pipeline reads, as the pipeline would keep reading the old storage",
                "Delete the pipeline and create it again afterwards; or apply the placement again, which leaves such "
                "variables where they are.",
            )
        return self._move(devices)

    def _move(self, devices: Mapping[str, str]) -> int:
        """`move`, where it is known that no pipeline is in the way: that takes a pass over all there is in memory."""
        moving = self._moving(devices)
        for variable in moving.values():
            _check_initialized(variable)
        if moving:
            Variables._moves += 1
        copies = [(variable, copied(variable, devices[op])) for op, variable in moving.items()]
        old = [variable.handle for variable in moving.values()]  # kept: an id is unique only among live objects
        for op, variable in moving.items():
            _keep(variable, devices[op])
        try:
            for variable, copy in copies:
                tf_internals.swap_handle(variable, copy)
        finally:
            rebind(moving.values(), old)
        self._asked = {op: canonical(devices[op]) for op in self._variables}
        return len(moving)

    def restore(self) -> int:
        """Brings every variable back to where it was before anything here moved it; returns how many had to move.

        One that a live input pipeline reads stays where it is, with a warning.
        """
        stay = piped(self._moving(self._home))
        for variable in stay.values():
            device = short(canonical(variable.handle.device))
            warnings.warn(
                f"Variable {variable.name!r} stays on {device}: an input pipeline reads it there, and would "
                "keep reading the old storage.",
                stacklevel=4,
            )
        return self._move(self._home | {op: variable.handle.device for op, variable in stay.items()})

    def _moving(self, devices: Mapping[str, str]) -> dict[str, Any]:
        """Variables that are not on the device of their op, by op."""
        return {
            op: variable
            for op, variable in self._variables.items()
            if canonical(devices[op]) != canonical(variable.handle.device)
        }

    def astray(self) -> str | None:
        """The op of a variable that others have moved since the last `move`, if any; quick while nothing is moved."""
        if self._checked != Variables._moves:
            for op, variable in self._variables.items():
                if canonical(variable.handle.device) != self._asked[op]:
                    return op
            self._checked = Variables._moves
        return None

    def check(self) -> None:
        """Raises unless every variable is where the last `move` has put it.

        Raises:
          ApplyError: others have moved one since.
        """
        if (op := self.astray()) is not None:
            variable = self._variables[op]
            raise ApplyError(
                f"a call of a placed program whose variable {variable.name!r} has since been moved to "
                f"{short(canonical(variable.handle.device))} by another placed program of the same variables",
                f"the variable on {short(self._asked[op])}, where this program's placement has it",
                "Move them back with .replace(placed.placement), or call the other program.",
            )


def piped(variables: Mapping[Any, Any]) -> dict[Any, Any]:
    """Those that a live input pipeline reads, by op."""
    if not variables:
        return {}
    read = tf_internals.read_by_pipelines()
    return {op: variable for op, variable in variables.items() if id(variable.handle) in read}


def _keep(variable: Any, device: str) -> None:
    """Keeps the handle of a variable that goes to a worker, until it is back."""
    key = id(variable)
    if is_here(device):
        _kept.pop(key, None)
    elif is_here(variable.handle.device):
        _kept[key] = weakref.ref(variable, lambda _: _kept.pop(key, None)), variable.handle


def rebind(variables: Iterable[Any], old: list[Any]) -> None:
    """Has functions that captured the old handles of variables use those that they have now."""
    pairs = zip(old, variables, strict=True)
    handles = {id(handle): variable.handle for handle, variable in pairs if variable.handle is not handle}
    if handles:
        tf_internals.rebind_captures(handles)


def _check_initialized(variable: Any) -> None:
    with tf.init_scope():
        if not variable.is_initialized():
            raise ApplyError(
                f"variable {variable.name!r}, which has no value yet",
                "initialized variables",
                "Run one step, or assign initial values, before applying a placement.",
            )


def copied(variable: Any, device: str) -> Any:
    """A variable of the same value on a device."""
    with tf.init_scope(), tf.device(device):
        # One copy: the value goes straight from the old storage to the new one.
        return tf.Variable(variable.value(), dtype=variable.dtype, shape=variable.shape, trainable=False)
