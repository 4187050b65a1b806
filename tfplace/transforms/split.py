"""One step, several slices: the training step of a model with its per-example ops once for each slice of the batch."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfplace.core.graph import OpGraph
from tfplace.core.slices import BATCH_NORMS, DRAWS, PER_SLICE, STATISTICS, Difference, Slices, checked_slices
from tfplace.errors import FewExamplesError, InputError, SourceError, SplitError
from tfplace.extraction.batch import as_specs
from tfplace.extraction.flatten import FlatFunction, flatten
from tfplace.extraction.function import (
    FunctionOrigin,
    argument_ops,
    asks_for_xla,
    captured_variables,
    captures,
    graph_of_flat,
    standalone,
)
from tfplace.extraction.nodes import Nodes, parse_input
from tfplace.extraction.shapes import Properties, infer
from tfplace.extraction.sources import Step, step_of
from tfplace.transforms.batch_specs import Axes, batch_size, resized
from tfplace.transforms.propagation import Division, UnsettledError, divide, names_in
from tfplace.transforms.slicing import SlicedGraph, slice_step
from tfplace.transforms.statistics import normalizing_scopes
from tfplace.transforms.two_sizes import TwoSizes, same_ops
from tfplace.transforms.variable_reads import hoist_reads, merge_reads
from tfplace.transforms.whole_step import WholeStep


def split_source(
    source: Any,
    batch: Any,
    slices: int | Sequence[int],
    *,
    batch_axis: Axes = 0,
    batch_norm: str = PER_SLICE,
    pack: bool = False,
    training: bool | None = None,
    name: str | None = None,
    unsplit: WholeStep | None = None,
) -> OpGraph:
    """Reads a step and splits its batch; see `tfplace.split`, which this implements.

    `unsplit` is the step, if it was read before from the same source and batch, which is then not traced.
    """
    if batch_norm not in BATCH_NORMS:
        raise InputError(f"batch_norm={batch_norm!r}", " or ".join(map(repr, BATCH_NORMS)))
    step = step_of(source, batch, training=training, name=name)
    with _without_collections():
        return _split(step, slices, batch_axis, batch_norm, pack=pack, unsplit=unsplit)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Keeps Python from looking for garbage, which takes long while the objects of two traces are alive."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _split(
    step: Step,
    slices: int | Sequence[int],
    batch_axis: Axes,
    batch_norm: str,
    *,
    pack: bool,
    unsplit: WholeStep | None,
) -> OpGraph:
    specs = as_specs(step.arguments, float_dtype=step.float_dtype)
    examples = batch_size(specs, batch_axis)
    sizes = slice_sizes(slices, examples)
    whole = _with_single_reads(flatten(step.trace(specs)) if unsplit is None else _flat_of(unsplit.graph))
    traced: dict[int, FlatFunction] = {} if unsplit is None else unsplit.traced

    def with_examples(other: int) -> FlatFunction:
        if other not in traced:
            traced[other] = _traced_again(step, specs, (examples, other), batch_axis)
        return traced[other]

    two = _compared(whole, with_examples, (examples, sizes))
    if not any(two.varying(two.nodes.index[op], 0)[0] for op in argument_ops(whole)):
        raise SplitError(
            f"{step.description}, which has no input that depends on the batch size", "a step over a batch"
        )
    division, scopes = _divided(two, batch_norm, whole)
    sliced = slice_step(two, division, sizes, whole.output_names, whole.control_outputs, pack=pack)
    origin = FunctionOrigin(
        _flat(whole, sliced),
        f"{step.description}, {len(sizes)} slices",
        model=step.model,
        owner=step.owner,
        jit_compile=asks_for_xla(whole.concrete, step.model),
    )
    graph = graph_of_flat(origin.flat, name=step.name, origin=origin, properties=sliced.properties, batch_size=examples)
    return dataclasses.replace(graph, slices=_slices(graph, sliced, sizes, scopes))


def slice_sizes(slices: int | Sequence[int], examples: int) -> tuple[int, ...]:
    """Examples of each slice: those that are given, or as equal as can be, the first ones larger.

    Raises:
      FewExamplesError: there are not that many examples.
      SplitError: the sizes are not those of the batch.

    >>> slice_sizes(4, 10), slice_sizes([6, 4], 10)
    ((3, 3, 2, 2), (6, 4))
    """
    checked = checked_slices(slices) or 1
    if isinstance(checked, int):
        if checked > examples:
            raise FewExamplesError(checked, examples)
        each, more = divmod(examples, checked)
        return (*(each + 1,) * more, *(each,) * (checked - more))
    if sum(checked) != examples:
        raise SplitError(f"slices of {' + '.join(map(str, checked))} = {sum(checked)} examples", f"{examples} in all")
    return checked


def sizes_alike(sizes: Sequence[int], examples: int) -> tuple[int, ...]:
    """Slices of another batch that are to one another as these are, as nearly as whole examples allow.

    Slices that would have no example are left out, so that a batch of one example is not split.

    >>> sizes_alike((8, 8, 4), 10), sizes_alike((8, 8), 1)
    ((4, 4, 2), (1,))
    """
    ends = [round(end * examples / sum(sizes)) for end in itertools.accumulate(sizes)]
    return tuple(end - start for start, end in itertools.pairwise((0, *ends)) if end > start)


def _flat_of(unsplit: OpGraph) -> FlatFunction:
    """A copy of what a graph was read from, whose own graph is to stay as it is."""
    assert isinstance(unsplit.origin, FunctionOrigin)
    flat = unsplit.origin.flat
    graph_def = type(flat.graph_def)()
    graph_def.CopyFrom(flat.graph_def)
    return dataclasses.replace(flat, graph_def=graph_def)


def _with_single_reads(flat: FlatFunction) -> FlatFunction:
    """The same with each variable read once where that gives the same value; changes its graph."""
    hoist_reads(flat.graph_def)
    merged = merge_reads(flat.graph_def, [parse_input(name)[0] for name in flat.output_names])
    run = dict.fromkeys(merged.get(name, name) for name in flat.control_outputs)
    return dataclasses.replace(flat, control_outputs=tuple(run))


def _compared(
    whole: FlatFunction, with_examples: Callable[[int], FlatFunction], cut: tuple[int, tuple[int, ...]]
) -> TwoSizes:
    """The step with its batch size beside that with another: a slice's, twice as many examples, or half as many.

    A small size may happen to be that of something else, such as of an axis of two, and then constants are shared. And
    Grappler folds constants of up to 100 KiB only (`kMaxConstantSize`): a constant may be smaller than that with one
    batch size and larger with the other.

    Args:
      whole: the step with its batch size.
      with_examples: the step with another.
      cut: the batch size, and the sizes of the slices.

    Raises:
      SplitError: with each of these sizes the step has other ops; it tells those with twice as many examples.
    """
    examples, sizes = cut

    def beside(other: int) -> TwoSizes:
        return _two_sizes(whole, with_examples(other), (examples, other), sizes)

    if 1 < sizes[0] < examples:
        with contextlib.suppress(SplitError):
            return beside(sizes[0])
    try:
        return beside(2 * examples)
    except SplitError:
        if 1 < examples // 2 != sizes[0]:
            with contextlib.suppress(SplitError):
                return beside(examples // 2)
        raise


def _traced_again(step: Step, specs: Any, batches: tuple[int, int], batch_axis: Axes) -> FlatFunction:
    """The step with another batch size.

    Raises:
      SplitError: an input has no such axis, or the step does not take another size.
    """
    other = resized(specs, *batches, batch_axis)
    try:
        return _with_single_reads(flatten(step.trace(other)))
    except SplitError:
        raise
    except SourceError as error:
        raise SplitError(
            f"{step.description}, which takes {batches[0]} examples and not {batches[1]}: {error.received}",
            "a step over batches of any size",
            error.hint,
        ) from error


def _two_sizes(whole: FlatFunction, other: FlatFunction, batches: tuple[int, int], sizes: Sequence[int]) -> TwoSizes:
    first, second = Nodes(whole.graph_def), Nodes(other.graph_def)
    known = dict(zip(argument_ops(whole), argument_ops(other), strict=True))
    theirs = {id(external): op for external, op in captures(other)}
    known |= {op: theirs[id(external)] for external, op in captures(whole) if id(external) in theirs}
    names = same_ops(first, second, known)
    return TwoSizes(first, second, names, (_shapes(whole, first), _shapes(other, second)), batches, slices=sizes)


def _shapes(flat: FlatFunction, nodes: Nodes) -> Properties:
    return infer(standalone(flat, {}, constants=False), nodes, flat.fetches)


def _divided(two: TwoSizes, batch_norm: str, whole: FlatFunction) -> tuple[Division, tuple[str, ...]]:
    """How the step is divided, and the scopes whose statistics are each slice's own."""
    division = divide(two, lambda name: False)
    trained = {op for op, variable in captured_variables(whole).items() if variable.trainable}
    scopes = normalizing_scopes(two, division, trained) if batch_norm == PER_SLICE else ()
    while scopes:
        inside = names_in(scopes)
        try:
            return divide(two, inside), scopes
        except UnsettledError as unsettled:
            # A statistic that is used otherwise than by a normalization is made one of the batch again.
            name = two.nodes.names[unsettled.op]
            scopes = tuple(scope for scope in scopes if inside(name) and not names_in([scope])(name))
    return division, ()


def _flat(whole: FlatFunction, sliced: SlicedGraph) -> FlatFunction:
    """The step in slices, with the signature and the captures of the whole one."""
    colocation = dict(whole.colocation)
    for name, k in sliced.slice_of.items():
        group = whole.colocation.get(sliced.original[name])
        if group is not None:
            colocation[name] = f"slice{k}/{group}"
    return dataclasses.replace(
        whole,
        graph_def=sliced.graph_def,
        output_names=sliced.output_names,
        control_outputs=sliced.control_outputs,
        colocation=colocation,
    )


def _slices(graph: OpGraph, sliced: SlicedGraph, sizes: tuple[int, ...], scopes: tuple[str, ...]) -> Slices:
    differences = ((STATISTICS, scopes), (DRAWS, sliced.draws))
    return Slices(
        sizes,
        np.array([sliced.slice_of.get(name, -1) for name in graph.op_names], np.int32),
        tuple(sliced.original[name] for name in graph.op_names),
        sliced.gathered,
        tuple(Difference(kind, ops) for kind, ops in differences if ops),
    )
