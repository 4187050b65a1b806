"""From a traced function to one flat graph: calls inlined, control flow lowered, what nothing needs dropped."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grappler_bridge.errors import GrapplerError
from grappler_bridge.optimize import optimize_graph
from tfplace.extraction.fold import take_exact_constants, too_large_to_fold
from tfplace.extraction.nodes import parse_input
from tfplace.extraction.refusals import grappler_refusals

_KEEPS_WHOLE = ("api_implements", "_XlaMustCompile", "_noinline")
"""Attributes of a function or a call with which Grappler would keep the call, or swap it for another implementation of
the same interface (such as a cuDNN LSTM). What is kept whole can only be placed whole."""

_CONVOLUTIONS = ("Conv1D", "Conv2D", "Conv3D")
_BESIDE_CONVOLUTIONS = frozenset({"Const", "Identity", "NoOp", "ReadVariableOp", "Shape", "ShapeN"})

_CONTROL_FLOW = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})


@dataclass(frozen=True)
class FlatFunction:
    """A traced function as one flat graph.

    Attributes:
      concrete: the traced `ConcreteFunction`, kept alive because its graph owns the captured variables.
      graph_def: flat `GraphDef`; nodes carry no device and no colocation class; its `Placeholder` nodes are the
        function's inputs under their names in `concrete.graph`.
      input_names: op names, in the order of `concrete.graph.inputs`: arguments, then captures.
      output_names: tensor names "op:k", in the order of the function's flat outputs.
      control_outputs: names of ops that must run besides.
      colocation: op name -> colocation group; see `colocation_groups`.
    """

    concrete: Any
    graph_def: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    control_outputs: tuple[str, ...]
    colocation: Mapping[str, str] = field(default_factory=dict)

    @property
    def fetches(self) -> tuple[str, ...]:
        """Names of the ops that must stay: inputs, outputs, control outputs."""
        outputs = (parse_input(name)[0] for name in self.output_names)
        return tuple(dict.fromkeys((*self.input_names, *outputs, *self.control_outputs)))


def flatten(concrete: Any) -> FlatFunction:
    """Flattens a `ConcreteFunction` (see ../docs/concepts/architecture.md, "Why the graph is flattened first")."""
    graph = concrete.graph
    graph_def = graph.as_graph_def()
    # Taking a gradient through a function appends outputs to its graph; only the first belong to its signature.
    outputs = graph.outputs[: len(concrete.function_type.flat_outputs)]
    # The graph keeps its control outputs in a set, whose order changes from one process to the next.
    controls = sorted(op.name for op in graph.control_outputs)
    flat = FlatFunction(
        concrete,
        graph_def,
        tuple(tensor.op.name for tensor in graph.inputs),
        tuple(tensor.name for tensor in outputs),
        tuple(controls),
        colocation_groups(graph_def),  # now: Grappler drops them
    )
    optimised = shorten(graph_def, flat.fetches)
    clean(optimised)
    return replace(flat, graph_def=optimised)


def _let_inline(graph_def: Any) -> None:
    """Removes, in place, what would keep a function, a loop or a branch whole."""
    nodes = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    kept = {function.signature.name for function in graph_def.library.function if _needs_xla(function)}
    for function in graph_def.library.function:
        _remove(function, () if function.signature.name in kept else _KEEPS_WHOLE)
    for node in itertools.chain(*nodes):
        called = node.attr["f"].func.name if "f" in node.attr else node.op
        _remove(node, () if called in kept else _KEEPS_WHOLE)
    for node in itertools.chain(*nodes):
        if node.op in _CONTROL_FLOW:
            node.attr["_lower_using_switch_merge"].b = True  # which the loops of the legacy `tf.scan` do not ask for


def _remove(thing: Any, attributes: Sequence[str]) -> None:
    for attribute in attributes:
        thing.attr.pop(attribute, None)


def _needs_xla(function: Any) -> bool:
    """Whether a function for XLA is nothing but a convolution.

    Keras compiles those whose channels are in groups, for which TensorFlow itself has no gradient on a CPU.
    """
    if "_XlaMustCompile" not in function.attr or not function.attr["_XlaMustCompile"].b:
        return False
    kinds = {node.op for node in function.node_def}
    return any(kind.startswith(_CONVOLUTIONS) for kind in kinds) and all(
        kind.startswith(_CONVOLUTIONS) or kind in _BESIDE_CONVOLUTIONS for kind in kinds
    )


def shorten(graph_def: Any, fetches: Sequence[str]) -> Any:
    """Inlines calls, lowers control flow, drops what no fetch needs, and computes sizes and indices that are constant.

    The graph is shortened before it is placed, so that nothing has to be optimized afterwards: an optimizer that ran
    later would rename, fuse and drop ops that had already been given a device. Every result stays the same to the bit.

    Placing needs no more than calls inlined and control flow lowered, which "function" alone does. Where Grappler
    cannot do the rest, as with a type that a pass does not know, the graph stays as long as that leaves it.

    Args:
      graph_def: the graph with its function library, from which is removed what would keep a function whole.
      fetches: names of the ops to keep, with all they depend on.

    Raises:
      SourceError: Grappler refuses the graph.
    """
    _let_inline(graph_def)
    with grappler_refusals():
        flat = optimize_graph(graph_def, fetches, ("function", "pruning"))
    try:
        folded = optimize_graph(flat, fetches, ("constfold",), kept=too_large_to_fold(flat))
        take_exact_constants(flat, folded)
        return optimize_graph(flat, fetches, ("dependency", "pruning"))
    except GrapplerError as error:
        warnings.warn(f"Grappler could not simplify the graph, so unneeded ops stay in it: {error}.", stacklevel=2)
        return flat


def colocation_groups(graph_def: Any) -> dict[str, str]:
    """Op name -> the colocation group that a program asked for, such as with `tf.compat.v1.colocate_with`.

    An op that names several others joins their groups.
    """
    into: dict[str, str] = {}

    def group(name: str) -> str:
        while (other := into.setdefault(name, name)) != name:
            name = other
        return name

    for node in graph_def.node:
        for label in node.attr["_class"].list.s if "_class" in node.attr else ():
            if label.startswith(b"loc:@"):
                into[group(node.name)] = group(label.decode(errors="replace")[len("loc:@") :])
    return {name: group(name) for name in [*into]}


def clean(graph_def: Any) -> None:
    """Removes what an earlier placement or an optimizer left in the nodes, in place."""
    for node in graph_def.node:
        node.device = ""
        for attribute in ("_class", "_output_shapes", "_grappler_do_not_remove"):
            node.attr.pop(attribute, None)
