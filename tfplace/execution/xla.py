"""Functions that XLA compiled, which cannot be called while a placement has moved their variables."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Collection, Iterable
from typing import Any

import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.execution.reach import reaches
from tfplace.execution.variables import device_of, home_of
from tfplace.execution.xla_functions import read_by_xla, untraced_for_xla
from tfplace.extraction.function import FunctionOrigin
from tfplace.extraction.keras_model import is_own, trace_keras_step
from tfplace.extraction.tf_internals import is_for_xla, live_functions

_READS = "with jit_compile=True reads"
_CALLS = "calls a function with jit_compile=True that reads"
_MAY_READ = "with jit_compile=True, which was not called yet, may read"


def warn_of_xla(graph: OpGraph, aside: Iterable[Any] = ()) -> None:
    """Warns of each live `tf.function` that has XLA read a variable which is away from home.

    XLA reads variables of one device only. To bring all of them back whenever somebody might call such a function would
    cost a copy of the model after each step, so its owner is told before it fails in the midst of a training. What a
    function reads is known when it has been traced; of one with jit_compile=True that has not, it is what its code can
    come to by names. Keras's own, which are hidden in closures, are left out, as `WithoutXla` sees to those; and so are
    parts of the step.

    Args:
      graph: what has been placed.
      aside: what nobody calls while it is.
    """
    if not isinstance(graph.origin, FunctionOrigin):
        return
    away = {id(v.handle) for v in graph.origin.variables().values() if device_of(v) != home_of(v)}
    left_out = {id(function) for function in aside}
    told = set()
    for compiled, function, how in _failing(away, graph.origin.flat.concrete) if away else ():
        name = getattr(function, "__name__", str(function)) + _where(function)
        if id(compiled) in left_out or name in told:
            continue
        told.add(name)
        warnings.warn(
            f"tf.function {name} {how} variables that the placement has moved. "
            "XLA reads variables of one device only, so calls fail until the variables are back. "
            "To call it before, use jit_compile=False.",
            stacklevel=3,
        )


def _failing(away: Collection[int], step: Any) -> Iterable[tuple[Any, Any, str]]:
    """Each `tf.function` that fails if it is called now, what it runs, and how that comes to variables."""
    functions = live_functions()
    for compiled in read_by_xla(functions, away, step):
        if not _is_hidden(compiled.python_function):
            yield compiled, compiled.python_function, _READS if is_for_xla(compiled) else _CALLS
    for compiled, function in untraced_for_xla(functions, _is_hidden):
        if reaches(function, lambda thing: _holds(thing, away)):
            yield compiled, function, _MAY_READ


def _is_hidden(function: Any) -> bool:
    """Whether a function is Keras's, or traces a step here. A method of a model is its user's, whoever wrote it."""
    return inspect.isfunction(function) and (not is_own(function) or function.__module__ == trace_keras_step.__module__)


def _where(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


def _holds(thing: Any, away: Collection[int]) -> bool:
    """Whether a thing is one of the variables, or a model, a layer or an optimizer that has one."""
    if isinstance(thing, tf.Variable):
        return id(thing.handle) in away
    if not isinstance(thing, (tf.Module, *_keras_kinds())):
        return False
    variables = getattr(thing, "variables", (thing,))
    variables = variables() if callable(variables) else variables  # of tf_keras's optimizers it is a method
    values = (v if isinstance(v, tf.Variable) else getattr(v, "value", None) for v in variables)
    return any(id(value.handle) in away for value in values if isinstance(value, tf.Variable))


def _keras_kinds() -> list[type[Any]]:
    """Classes of Keras 3 and tf_keras that have variables; neither package is imported to find out."""
    packages = [package for name in ("keras", "tf_keras") if (package := sys.modules.get(name))]
    kinds = [kind for p in packages for kind in (p.layers.Layer, p.optimizers.Optimizer, p.metrics.Metric)]
    return kinds + [p.Variable for p in packages if hasattr(p, "Variable")]
