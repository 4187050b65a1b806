"""Which live functions have XLA read a variable, by their traces, and which have no trace yet."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tfplace.extraction import tf_internals

_CALLS = frozenset(
    {"Case", "If", "StatelessCase", "StatelessIf"}
    | {"PartitionedCall", "StatefulPartitionedCall", "StatelessWhile", "While"}
)
"""Ops whose functions take the op's last inputs, in their order: only a branch has more inputs, its condition first."""


def read_by_xla(functions: Iterable[Any], handles: Collection[int], step: Any) -> list[Any]:
    """The `tf.function`s with a trace that captured a handle and gives it to XLA: itself, or in what it calls.

    Args:
      functions: the `tf.function`s to look at.
      handles: ids of the handles.
      step: a `ConcreteFunction`; its own `tf.function`, and what was traced as a part of it, are left out.
    """
    found = []
    for function in functions:
        traced = tf_internals.traces_of(function)
        beside = () if any(one is step for one in traced) else traced
        holding = [(one, _inputs_of(one, handles)) for one in beside if not tf_internals.is_part_of(one, step)]
        compiled = tf_internals.is_for_xla(function)
        if any(inputs and (compiled or _calls_xla(one.graph, inputs)) for one, inputs in holding):
            found.append(function)
    return found


def _inputs_of(traced: Any, handles: Collection[int]) -> list[Any]:
    """The inputs of a `ConcreteFunction` that get one of the handles which it captured."""
    captures, inputs = tf_internals.external_captures(traced), traced.graph.inputs
    ends = inputs[len(inputs) - len(captures) :]
    return [end for capture, end in zip(captures, ends, strict=True) if id(capture) in handles]


def _calls_xla(graph: Any, tensors: Collection[Any]) -> bool:
    """Whether a graph, or what it calls, gives XLA one of these tensors of it."""
    todo = [(graph, tensor) for tensor in tensors]
    seen = set()
    for around, tensor in todo:
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        for op in tensor.consumers():
            if op.type in _CALLS and _must_compile(op):
                return True
            for name in _called(op):
                inner = tf_internals.called_graph(around, name)
                if inner is not None:
                    given = list(op.inputs)[max(0, len(op.inputs) - len(inner.inputs)) :]
                    todo += [(inner, end) for end, one in zip(inner.inputs, given, strict=False) if one is tensor]
    return False


def _must_compile(op: Any) -> bool:
    try:
        return bool(op.get_attr("_XlaMustCompile"))
    except ValueError:
        return False


def _called(op: Any) -> list[str]:
    """The functions of a call, a branch or a loop."""
    if op.type not in _CALLS:
        return []
    functions = [op.get_attr(a.name) for a in op.op_def.attr if a.type in ("func", "list(func)")]
    return [f.name for some in functions for f in (some if isinstance(some, list) else [some])]


def untraced_for_xla(functions: Iterable[Any], is_hidden: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    """The `tf.function`s with jit_compile=True that have no trace yet, each with what it is to run.

    One that decorates a method is bound to an object when it is first asked of that: here it is with each live one.

    Args:
      functions: the `tf.function`s to look at, with those that are bound to objects.
      is_hidden: whether what a `tf.function` runs is left out.
    """
    compiled = [function for function in functions if tf_internals.is_for_xla(function)]
    bound = {id(function): tf_internals.bound_functions(function) for function in compiled}
    copies = {id(copy) for by_object in bound.values() for copy in by_object.values()}
    own = [f for f in compiled if id(f) not in copies and not is_hidden(f.python_function)]
    without = [f for f in own if not tf_internals.traces_of(f)]
    classes = _classes_with(without)
    live = tf_internals.live(*{kind for kinds in classes.values() for kind in kinds})
    found = []
    for function in without:
        by_object, kinds = bound[id(function)], tuple(classes[id(function)])
        objects = [thing for thing in live if issubclass(type(thing), kinds)]
        untraced = [o for o in objects if id(o) not in by_object or not tf_internals.traces_of(by_object[id(o)])]
        found += [(function, types.MethodType(function.python_function, o)) for o in untraced]
        if not objects:
            found.append((function, function.python_function))
    return found


def _classes_with(functions: Collection[Any]) -> dict[int, list[type[Any]]]:
    """Id of a `tf.function` -> the classes of which it is a method."""
    found: dict[int, list[type[Any]]] = {id(function): [] for function in functions}
    named = {getattr(function.python_function, "__name__", "") for function in functions}
    kinds: dict[type[Any], None] = {object: None}
    todo = [object] if functions else []
    for above in todo:
        below = [kind for kind in type.__subclasses__(above) if kind not in kinds]
        kinds |= dict.fromkeys(below)
        todo += below
        for name in named:
            if (method := id(vars(above).get(name))) in found:
                found[method].append(above)
    return found
