"""Functions that XLA compiled, which cannot be called while a placement has moved their variables."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

from tfplace.core.graph import OpGraph
from tfplace.execution.variables import device_of, home_of
from tfplace.extraction import tf_internals
from tfplace.extraction.function import FunctionOrigin
from tfplace.extraction.keras_model import is_own


def warn_of_xla(graph: OpGraph, aside: Iterable[Any] = ()) -> None:
    """Warns of each live `tf.function` with jit_compile=True that reads a variable which is away from home.

    XLA reads variables of one device only. To bring all of them back whenever somebody might call such a function would
    cost a copy of the model after each step, so its owner is told before it fails in the midst of a training. Keras's
    own, which are hidden in closures, are left out, as `WithoutXla` sees to those; and so are parts of the step.

    Args:
      graph: what has been placed.
      aside: what nobody calls while it is.
    """
    if not isinstance(graph.origin, FunctionOrigin):
        return
    away = {id(v.handle) for v in graph.origin.variables().values() if device_of(v) != home_of(v)}
    left_out = {id(function) for function in aside}
    for compiled in tf_internals.read_by_xla(away, graph.origin.flat.concrete) if away else ():
        function = compiled.python_function
        if id(compiled) in left_out or (inspect.isfunction(function) and not is_own(function)):
            continue
        code = getattr(inspect.unwrap(function), "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        name = getattr(function, "__name__", str(function))
        warnings.warn(
            f"tf.function {name!r}{where} with jit_compile=True reads variables that the placement has moved. "
            "XLA reads variables of one device only, so calling it fails until they are back. "
            "Make it with jit_compile=False to call it meanwhile.",
            stacklevel=3,
        )
