"""One step, several slices: the training step of a model with its per-example ops once for each slice of the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfplace.core.graph import OpGraph
from tfplace.core.slices import DRAWS, STATISTICS, Difference, Slices
from tfplace.errors import InputError, SplitError
from tfplace.extraction.batch import as_specs
from tfplace.extraction.flatten import FlatFunction, flatten
from tfplace.extraction.function import FunctionOrigin, argument_ops, captures, graph_of_flat, refuse_xla, standalone
from tfplace.extraction.nodes import Nodes
from tfplace.extraction.shapes import Properties, infer
from tfplace.extraction.sources import Step, step_of
from tfplace.transforms.batch_specs import Axes, batch_size, resized
from tfplace.transforms.propagation import Division, UnsettledError, divide, names_in
from tfplace.transforms.slicing import SlicedGraph, slice_step
from tfplace.transforms.statistics import normalizing_scopes
from tfplace.transforms.two_sizes import TwoSizes, same_ops

PER_SLICE = "per_slice"
SYNCHRONIZED = "synchronized"


def split_source(
    source: Any,
    batch: Any,
    slices: int | Sequence[int],
    *,
    batch_axis: Axes = 0,
    batch_norm: str = PER_SLICE,
    training: bool | None = None,
    name: str | None = None,
) -> OpGraph:
    """Reads a step and splits its batch; see `tfplace.split`, which this implements."""
    if batch_norm not in (PER_SLICE, SYNCHRONIZED):
        raise InputError(f"batch_norm={batch_norm!r}", f"{PER_SLICE!r} or {SYNCHRONIZED!r}")
    step = step_of(source, batch, training=training, name=name)
    specs = as_specs(step.arguments, float_dtype=step.float_dtype)
    examples = batch_size(specs, batch_axis)
    sizes = slice_sizes(slices, examples)
    other = sizes[0] if 1 < sizes[0] < examples else 2 * examples
    whole = _trace(step, specs)
    smaller = _trace(step, resized(specs, examples, other, batch_axis))
    two = _two_sizes(whole, smaller, (examples, other), sizes)
    if not any(two.varying(two.nodes.index[op], 0)[0] for op in argument_ops(whole)):
        raise SplitError(f"{step.description}, of which no input depends on the batch size", "a step over a batch")
    division, scopes = _divided(two, batch_norm, _trained(whole))
    sliced = slice_step(two, division, sizes, whole.output_names, whole.control_outputs)
    return _graph(step, whole, sliced, sizes, examples, scopes)


def slice_sizes(slices: int | Sequence[int], examples: int) -> tuple[int, ...]:
    """Examples of each slice: those that are given, or as equal as can be, the first ones larger.

    Raises:
      SplitError: there are not that many examples.

    >>> slice_sizes(4, 10), slice_sizes([6, 4], 10)
    ((3, 3, 2, 2), (6, 4))
    """
    if isinstance(slices, int | np.integer) and not isinstance(slices, bool):
        if not 1 <= slices <= examples:
            raise SplitError(f"{slices} slices of a batch of {examples}", f"1 to {examples} slices")
        each, more = divmod(examples, int(slices))
        return (*(each + 1,) * more, *(each,) * (int(slices) - more))
    sizes = tuple(slices) if isinstance(slices, Sequence) and not isinstance(slices, str) else ()
    if not sizes or any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1 for n in sizes):
        raise SplitError(f"slices={slices!r}", "how many slices, or the number of examples of each")
    if sum(sizes) != examples:
        raise SplitError(f"slices of {' + '.join(map(str, sizes))} = {sum(sizes)} examples", f"{examples} in all")
    return tuple(int(n) for n in sizes)


def _trace(step: Step, specs: Any) -> FlatFunction:
    concrete = step.trace(specs)
    refuse_xla(concrete, step.description)
    return flatten(concrete)


def _two_sizes(
    whole: FlatFunction, other: FlatFunction, batches: tuple[int, int], sizes: Sequence[int]
) -> TwoSizes:
    first, second = Nodes(whole.graph_def), Nodes(other.graph_def)
    known = dict(zip(argument_ops(whole), argument_ops(other), strict=True))
    theirs = {id(external): op for external, op in captures(other)}
    known |= {op: theirs[id(external)] for external, op in captures(whole) if id(external) in theirs}
    names = same_ops(first, second, known)
    return TwoSizes(first, second, names, (_shapes(whole, first), _shapes(other, second)), batches, sizes)


def _shapes(flat: FlatFunction, nodes: Nodes) -> Properties:
    return infer(standalone(flat, {}, constants=False), nodes, flat.fetches)


def _trained(flat: FlatFunction) -> set[str]:
    from tfplace.extraction.function import captured_variables

    return {op for op, variable in captured_variables(flat).items() if variable.trainable}


def _divided(two: TwoSizes, batch_norm: str, trained: set[str]) -> tuple[Division, tuple[str, ...]]:
    """How the step is divided, and the scopes whose statistics are each slice's own."""
    division = divide(two, lambda name: False)
    scopes = normalizing_scopes(two, division, trained) if batch_norm == PER_SLICE else ()
    while scopes:
        try:
            return divide(two, names_in(scopes)), scopes
        except UnsettledError as unsettled:
            # A statistic that is used otherwise than by a normalization is made one of the batch again.
            name = two.nodes.names[unsettled.op]
            scopes = tuple(scope for scope in scopes if not names_in([scope])(name)) if names_in(scopes)(name) else ()
    return division, ()


def _graph(
    step: Step, whole: FlatFunction, sliced: SlicedGraph, sizes: tuple[int, ...], examples: int, scopes: tuple[str, ...]
) -> OpGraph:
    colocation = dict(whole.colocation)
    for name, k in sliced.slice_of.items():
        group = whole.colocation.get(sliced.original[name])
        if group is not None:
            colocation[name] = f"slice{k}/{group}"
    flat = dataclasses.replace(
        whole,
        graph_def=sliced.graph_def,
        output_names=sliced.output_names,
        control_outputs=sliced.control_outputs,
        colocation=colocation,
    )
    origin = FunctionOrigin(flat, f"{step.description}, {len(sizes)} slices", {}, step.model, step.owner)
    graph = graph_of_flat(flat, name=step.name, origin=origin, properties=sliced.properties, batch_size=examples)
    differences = []
    if scopes:
        differences.append(Difference(STATISTICS, scopes))
    if sliced.draws:
        differences.append(Difference(DRAWS, sliced.draws))
    slices = Slices(
        sizes,
        np.array([sliced.slice_of.get(name, -1) for name in graph.op_names], np.int32),
        tuple(sliced.original[name] for name in graph.op_names),
        sliced.gathered,
        tuple(differences),
    )
    return dataclasses.replace(graph, slices=slices)
