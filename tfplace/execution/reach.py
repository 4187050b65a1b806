"""What a Python function can come to when it is called, told by the names in its code."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

_DEPTH = 8
"""Steps from one object to the next; a method of an attribute of the object that a function is bound to takes three."""

_MOST = 2000
"""Objects that are looked at, the nearest first; and elements of a container."""

_LIBRARIES = frozenset({"builtins", "keras", "numpy", "tensorflow", "tf_keras"})
"""Their code comes only to what it is given."""


def reaches(function: Any, is_wanted: Callable[[Any], bool]) -> bool:
    """Whether a function can come to an object that is wanted, without calling it.

    It comes to what is in its closure, to its defaults, to the object it is bound to, to globals that its code names,
    to attributes of all these that its code names, and to what its own helpers come to. What it is given as an
    argument or looks up by a computed name is not known.

    Args:
      function: a function, a method, or another object that can be called.
      is_wanted: is asked of each object.
    """
    todo: list[tuple[Any, frozenset[str], int]] = [(function, frozenset(), 0)]
    seen: set[tuple[int, frozenset[str]]] = set()
    kept = []  # or else another object could have the id of one that is gone
    for thing, names, depth in todo:
        if (id(thing), names) in seen or len(seen) == _MOST:
            continue
        seen.add((id(thing), names))
        kept.append(thing)
        if is_wanted(thing):
            return True
        if depth < _DEPTH:
            todo += [(part, known, depth + 1) for part, known in _parts(thing, names)]
    return False


def _parts(thing: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """What code that has an object comes to by it, with the names in the code that has that."""
    if isinstance(thing, types.MethodType):
        own = _names(thing.__func__)
        yield thing.__func__, own
        yield thing.__self__, own
    elif isinstance(thing, types.FunctionType):
        yield from _parts_of_function(thing)
    elif isinstance(thing, functools.partial):
        for part in (thing.func, *thing.args, *thing.keywords.values()):
            yield part, names
    elif isinstance(thing, tf.types.experimental.PolymorphicFunction):
        yield thing.python_function, names
    elif isinstance(thing, Mapping):
        for part in list(thing.values())[:_MOST]:
            yield part, names
    elif isinstance(thing, list | tuple | set | frozenset):
        for part in list(thing)[:_MOST]:
            yield part, names
    elif _library(thing) not in _LIBRARIES:
        yield from _parts_of_object(thing, names)


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[Any, frozenset[str]]]:
    names = _names(function)
    if _library(function) in _LIBRARIES:
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents, names
        except ValueError:
            continue  # a variable that has no value yet
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield default, names
    for name in names & function.__globals__.keys():
        yield function.__globals__[name], names
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__, names


def _parts_of_object(thing: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Attributes that are named, and what runs when the object is called. Nothing is run to get at them."""
    for name in names:
        found = inspect.getattr_static(thing, name, None)
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, types.FunctionType):
            yield types.MethodType(found, thing), names
        elif isinstance(found, types.MemberDescriptorType):
            yield getattr(thing, name, None), names
        elif found is not None:
            yield found, names
    call = inspect.getattr_static(type(thing), "__call__", None)
    if isinstance(call, types.FunctionType):
        yield types.MethodType(call, thing), names


def _names(function: Any) -> frozenset[str]:
    """Names of globals and attributes in a function's code, and in that of functions inside it."""
    codes = [function.__code__] if isinstance(function, types.FunctionType) else []
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    return frozenset(name for code in codes for name in code.co_names)


def _library(thing: Any) -> str:
    """The package of a function, a module, or an object's class."""
    owner = thing if isinstance(thing, types.FunctionType | type) else type(thing)
    name = thing.__name__ if isinstance(thing, types.ModuleType) else owner.__module__
    return str(name).partition(".")[0]
