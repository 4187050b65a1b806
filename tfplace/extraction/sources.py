"""One entry for everything that can be read as a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.errors import GraphError, SourceError, SplitError, UnknownNameError, describe_error, near_names
from tfplace.extraction.batch import as_arguments, as_specs, flat_shapes, shapes_by_name, without_numbers
from tfplace.extraction.function import graph_from_function
from tfplace.extraction.graph_check import check_graph_def
from tfplace.extraction.keras_model import float_type, is_keras_model, trace_keras_step, trains, untrained
from tfplace.extraction.metagraph import INPUT_OPS, REFERENCE_VARIABLES, SIGNATURE, graph_from_metagraph, read_metagraph
from tfplace.extraction.saved_model import DEFAULT_SIGNATURE, load_saved_model
from tfplace.extraction.tracing import arguments_of, is_binding, short, tracing

_EXPECTED = (
    "a compiled Keras model, a tf.function, a ConcreteFunction, a SavedModel directory, or a MetaGraphDef or GraphDef "
    "(object, or file .meta, .pb, .pbtxt)"
)


def extract_source(
    source: Any,
    batch: Any = None,
    *,
    training: bool | None = None,
    fetches: str | tuple[str, ...] | None = None,
    name: str | None = None,
) -> OpGraph:
    """Reads `source` as an OpGraph; see `tfplace.extract`, which this implements."""
    fetches = (fetches,) if isinstance(fetches, str) else fetches
    if isinstance(source, OpGraph):
        return source
    if isinstance(source, tf.compat.v1.MetaGraphDef | tf.compat.v1.GraphDef):
        return _from_proto(source, batch, fetches, name or "graph", "graph object")
    if is_keras_model(source):
        return _graph_of(step_of(source, batch, training=training, name=name))
    if isinstance(source, tf.types.experimental.ConcreteFunction):
        return _from_concrete(source, batch, name)
    if isinstance(source, tf.types.experimental.PolymorphicFunction):
        return _graph_of(step_of(source, batch, name=name))
    hint = "Wrap the step in tf.function first: tfplace.extract(tf.function(step), batch)." if callable(source) else ""
    raise SourceError(f"{type(source).__name__} {str(source)[:60]!r}", _EXPECTED, hint)


@dataclass(frozen=True)
class Step:
    """A step that can be traced, for batches of any size that it takes.

    Attributes:
      name: of the graph that is made of it.
      description: one line for people.
      arguments: the batch, in the structure that is traced.
      trace: specs of that structure -> a `ConcreteFunction`.
      float_dtype: what floats of arrays become; None keeps theirs.
      model: the Keras model whose step it is, or None.
      owner: whatever else owns the captured variables.
    """

    name: str
    description: str
    arguments: Any
    trace: Callable[[Any], Any]
    float_dtype: str | None = None
    model: Any = None
    owner: Any = None


def step_of(source: Any, batch: Any, *, training: bool | None = None, name: str | None = None) -> Step:
    """The step of a Keras model or a `tf.function`.

    Raises:
      SplitError: it is neither.
      SourceError: it has no batch.
    """
    if is_keras_model(source):
        return _keras_step(source, batch, training, name)
    if isinstance(source, tf.types.experimental.PolymorphicFunction):
        return _function_step(source, batch, name)
    hint = "Wrap the step in tf.function first." if callable(source) else ""
    raise SplitError(
        f"{type(source).__name__} {str(source)[:60]!r}, which cannot be traced for batches of another size",
        "a Keras model or a tf.function",
        hint,
    )


def _graph_of(step: Step) -> OpGraph:
    """The step's graph, for its own batch."""
    return graph_from_function(
        step.trace(as_specs(step.arguments, float_dtype=step.float_dtype)),
        name=step.name,
        description=step.description,
        shapes=flat_shapes(step.arguments),
        model=step.model,
        owner=step.owner,
    )


def _keras_step(model: Any, batch: Any, training: bool | None, name: str | None) -> Step:
    if training is None:
        training = trains(model)
        if not training:
            warnings.warn(f"{untrained(model)}; pass training=False to silence this warning.", stacklevel=5)
    if batch is None:
        raise SourceError(
            f"model {model.name!r} without a batch",
            "the data of one step",
            "Pass arrays or tf.TensorSpecs: tfplace.extract(model, (x, y)).",
        )
    return Step(
        name or model.name,
        f"Keras model {model.name!r}, {'training step' if training else 'inference'}",
        tuple(batch) if isinstance(batch, list) else batch,
        lambda specs: trace_keras_step(model, specs, training=training),
        float_dtype=float_type(model),
        model=model,
    )


def _function_step(function: Any, batch: Any, name: str | None) -> Step:
    label = str(name or getattr(function, "__name__", "function"))
    arguments = as_arguments(batch)
    where = f"tf.function {label!r}"

    def trace(specs: Any) -> Any:
        with tracing(f"{where} with arguments {short(specs)}"):
            try:
                return function.get_concrete_function(*specs)
            except Exception as error:
                if any(isinstance(leaf, tf.Variable) for leaf in tf.nest.flatten(arguments)):
                    raise SourceError(
                        f"a tf.Variable as an argument of {where}, which cannot be traced with its value "
                        f"({describe_error(error)})",
                        "variables that the function captures from outside",
                        "Use the variable in the function by its name, or as an attribute, and drop the argument.",
                    ) from error
                if is_binding(error):
                    raise SourceError(_given(batch, where), arguments_of(function)) from error
                raise

    return Step(label, where, arguments, trace, owner=function)


def _given(batch: Any, where: str) -> str:
    """A batch that a function does not take, as text."""
    if batch is None:
        return f"{where} without a batch"
    if isinstance(batch, tuple):
        return f"a tuple of {len(batch)} arguments for {where}"
    return f"a batch of type {type(batch).__name__}, which is one argument, for {where}"


def _from_concrete(concrete: Any, batch: Any, name: str | None) -> OpGraph:
    label = name or tf.compat.as_str(concrete.name).removeprefix("__inference_").removeprefix("signature_wrapper_")
    description = f"ConcreteFunction {label!r}"
    shapes = _input_shapes(concrete, batch, description)
    return graph_from_function(concrete, name=label, description=description, shapes=shapes)


def _input_shapes(concrete: Any, batch: Any, where: str) -> list[tuple[int, ...] | None]:
    """Shapes of a function's inputs in their order, by the batch: a dict tells a signature's by name.

    Raises:
      SourceError: a name that the signature lacks, or lacks in the batch.
    """
    if batch is None:
        return []
    positional, named = concrete.structured_input_signature
    by_name = isinstance(batch, dict) and named and not positional
    if by_name and set(batch) != set(named):
        wrong = min(map(str, set(batch) - set(named)), default=None)
        near = near_names(wrong, named) if wrong else []
        raise SourceError(
            f"a batch of {', '.join(map(repr, batch)) or 'nothing'} for {where}",
            f"its inputs: {', '.join(sorted(named))}",
            f"Near {wrong!r}: {', '.join(near)}" if near else "",
        )
    given = without_numbers(batch) if by_name else as_arguments(batch)
    as_specs(given)  # refuses what is no array, tensor or spec
    return flat_shapes(given)


def extract_file(
    path: Path,
    *,
    batch: Any = None,
    examples: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    fetches: tuple[str, ...] | None = None,
    name: str | None = None,
) -> OpGraph:
    """Reads a file in this process, which may end at one that is damaged; see `tfplace.extraction.file_source`.

    Raises:
      SourceError: it cannot be read as a graph.
    """
    try:
        if path.is_dir():
            loaded = load_saved_model(path, _EXPECTED)
            given = _filled(_signature_inputs(loaded, fetches), examples, shapes) if examples or shapes else batch
            graph = _from_saved_model(path, loaded, given, fetches, name)
        else:
            proto = read_metagraph(path)
            given = _filled(_placeholders(proto), examples, shapes) if examples or shapes else batch
            graph = _from_proto(proto, given, fetches, name or path.stem, f"graph file {path.name}")
        if examples or shapes:
            _ask_for_shapes(graph, given)
        return graph
    except GraphError as error:  # what breaks the graph's rules is the file
        raise SourceError(error.received, error.expected, error.hint) from error
    except RecursionError as error:
        raise SourceError(
            f"{path.name}, whose ops depend on one another too deeply", "a shorter chain of ops"
        ) from error
    except OSError as error:
        raise SourceError(f"{str(path)!r} ({error.strerror or error})", "a file that can be read") from error


def _from_proto(proto: Any, batch: Any, fetches: tuple[str, ...] | None, name: str, description: str) -> OpGraph:
    meta = proto
    if isinstance(proto, tf.compat.v1.GraphDef):
        meta = tf.compat.v1.MetaGraphDef()
        meta.graph_def.CopyFrom(proto)
    shapes = _placeholder_shapes(batch, meta, description)
    return graph_from_metagraph(meta, name=name, description=description, fetches=fetches, shapes=shapes)


def _placeholder_shapes(batch: Any, meta: Any, where: str) -> dict[str, tf.TensorShape]:
    """Placeholder -> its shape by the batch, for those whose rank it tells."""
    if batch is None:
        return {}
    if not isinstance(batch, dict):
        raise SourceError(
            f"a batch of type {type(batch).__name__} for a {where}",
            "a dict: placeholder name -> array or tf.TensorSpec",
        )
    known = [node.name for node in meta.graph_def.node if node.op in INPUT_OPS]
    shapes = {}
    for key, spec in as_specs(without_numbers(batch)).items():
        name = str(key).partition(":")[0]
        if name not in known:
            near = ", ".join(near_names(name, known))
            expected = f"placeholders of the graph: {', '.join(known) or 'none'}"
            raise SourceError(f"a batch with {key!r} for a {where}", expected, f"Near names: {near}" if near else "")
        if not isinstance(spec, tf.TensorSpec):
            raise SourceError(
                f"{type(batch[key]).__name__} for placeholder {name!r}",
                "an array or tf.TensorSpec",
                "A sparse or ragged batch has a placeholder for each of its tensors.",
            )
        shapes[name] = spec.shape
    return {name: shape for name, shape in shapes.items() if shape.rank is not None}


def _placeholders(meta: Any) -> Mapping[str, Any]:
    check_graph_def(meta.graph_def)
    return {
        node.name: tf.TensorSpec(tf.TensorShape(node.attr["shape"].shape), tf.as_dtype(node.attr["dtype"].type))
        for node in meta.graph_def.node
        if node.op == "Placeholder"
    }


def _signature_inputs(loaded: Any, fetches: tuple[str, ...] | None) -> Mapping[str, Any]:
    signature = loaded.signatures.get(fetches[0] if fetches else DEFAULT_SIGNATURE)
    specs = {} if signature is None else signature.structured_input_signature[1]
    return dict(sorted(specs.items()))  # keywords have no order of their own


def _filled(
    specs: Mapping[str, Any], examples: int | None, shapes: Mapping[str, tuple[int, ...]] | None
) -> dict[str, Any]:
    """Specs with the shapes that are given, and the examples for an unknown first dimension of all others.

    Raises:
      UnknownNameError: a shape for an input that there is not.
    """
    names = list(specs)
    given = {}
    for key, shape in (shapes or {}).items():
        name = names[int(key)] if key not in specs and key.isdecimal() and int(key) < len(names) else key
        if name not in specs:
            raise UnknownNameError("input", key, names)
        given[name] = shape

    def fill(name: str, shape: Any) -> Any:
        if name in given:
            return given[name]
        opens = examples is not None and shape.rank and shape[0] is None
        return [examples, *shape[1:]] if opens else shape

    return {name: tf.TensorSpec(fill(name, spec.shape), spec.dtype, name) for name, spec in specs.items()}


def _ask_for_shapes(graph: OpGraph, batch: Mapping[str, Any]) -> None:
    """Refuses inputs with dimensions that are still unknown; to guess them would make up the whole graph's sizes."""
    read = {*graph.edge_tensor.tolist()}
    left = [
        (guess.op, batch[guess.op].shape)
        for guess in graph.unknown
        if guess.tensor in read and guess.op in batch and not batch[guess.op].shape.is_fully_defined()
    ]
    if left:
        known = "; ".join(f"{name} {_dimensions(shape, '?')}" for name, shape in left)
        raise SourceError(
            f"inputs with unknown dimensions: {known}",
            " ".join(f"--shape={name}={_dimensions(shape, 'DIM')}" for name, shape in left),
            "--batch fills the first dimension of each input, and no others.",
        )


def _dimensions(shape: Any, unknown: str) -> str:
    if shape.rank is None:
        return f"{unknown},..."
    return ",".join(unknown if size is None else str(size) for size in shape.as_list())


def _from_saved_model(
    path: Path, loaded: Any, batch: Any, fetches: tuple[str, ...] | None, name: str | None
) -> OpGraph:
    signatures = dict(loaded.signatures)
    chosen = fetches[0] if fetches else DEFAULT_SIGNATURE
    if chosen not in signatures:
        raise SourceError(
            f"signature {chosen!r} of SavedModel {path.name!r}",
            f"one of its signatures: {', '.join(signatures) or 'none'}",
            "Name one with fetches=(name,), or pass a function of the loaded object.",
        )
    concrete = signatures[chosen]
    label, description = name or path.name, f"SavedModel {path.name!r}, signature {chosen!r}"
    shapes = _input_shapes(concrete, batch, description)
    if any(op.type in REFERENCE_VARIABLES for op in concrete.graph.get_operations()):
        return _from_reference_signature(concrete, shapes, label, description, path)
    return graph_from_function(concrete, name=label, description=description, shapes=shapes, owner=loaded)


def _from_reference_signature(
    concrete: Any, shapes: list[tuple[int, ...] | None], name: str, description: str, path: Path
) -> OpGraph:
    """A TensorFlow 1 signature whose variables live in their ops: no function can own them, only a session."""
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(concrete.graph.as_graph_def())
    for i, tensor in enumerate(concrete.graph.outputs):
        meta.signature_def[SIGNATURE].outputs[f"output_{i}"].name = tensor.name
    own = len(concrete.graph.inputs) - len(concrete.captured_inputs)
    given = shapes_by_name([tensor.op.name for tensor in concrete.graph.inputs[:own]], shapes)
    checkpoint = str(path / "variables" / "variables")
    return graph_from_metagraph(meta, name=name, description=description, shapes=given, checkpoint=checkpoint)
