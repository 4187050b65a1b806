"""What is computed of a graph or a problem once, and kept as long as that is there."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

Of = TypeVar("Of")
More = ParamSpec("More")
Made = TypeVar("Made")


def kept(make: Callable[Concatenate[Of, More], Made]) -> Callable[Concatenate[Of, More], Made]:
    """A function that computes its result for each object and further arguments once.

    Args:
      make: of an object that does not change and can be referred to weakly, and of arguments that can be hashed. What
        it returns must not refer to the object, which would then stay for ever, and must not be changed.
    """
    return _kept(make, None)


def kept_latest(most: int) -> Callable[[Callable[Concatenate[Of, More], Made]], Callable[Concatenate[Of, More], Made]]:
    """As `kept`, for functions with arguments of many values: of each object the results used last are kept.

    Args:
      most: results of one object.
    """

    def decorate(make: Callable[Concatenate[Of, More], Made]) -> Callable[Concatenate[Of, More], Made]:
        return _kept(make, most)

    return decorate


def _kept(make: Callable[Concatenate[Of, More], Made], most: int | None) -> Callable[Concatenate[Of, More], Made]:
    known: weakref.WeakKeyDictionary[Any, OrderedDict[Hashable, Made]] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def once(of: Of, *args: More.args, **kwargs: More.kwargs) -> Made:
        found = known.setdefault(of, OrderedDict())
        key = (args, tuple(sorted(kwargs.items())))
        if key not in found:
            found[key] = make(of, *args, **kwargs)
            if most is not None and len(found) > most:
                found.popitem(last=False)
        found.move_to_end(key)
        return found[key]

    return cast("Callable[Concatenate[Of, More], Made]", once)
