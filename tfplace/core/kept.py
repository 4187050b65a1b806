"""What is computed of a graph or a problem once, and kept as long as that is there."""

from __future__ import annotations

import functools
import weakref
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
    known: weakref.WeakKeyDictionary[Any, dict[Hashable, Made]] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def once(of: Of, *args: More.args, **kwargs: More.kwargs) -> Made:
        found = known.setdefault(of, {})
        key = (args, tuple(sorted(kwargs.items())))
        if key not in found:
            found[key] = make(of, *args, **kwargs)
        return found[key]

    return cast("Callable[Concatenate[Of, More], Made]", once)
