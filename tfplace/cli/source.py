"""What --model names: a model of the zoo, a file, or a function of the user's."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfplace.core.archive import is_archive
from tfplace.errors import SourceError, UnknownNameError

_SUFFIXES = (".meta", ".npz", ".pb", ".pbtxt")


@dataclass(frozen=True)
class Source:
    """Something `tfplace.extract` takes.

    Attributes:
      source: a model, a function or a path.
      batch: what one step is given; None if the source says it itself.
    """

    source: Any
    batch: Any = None


def find(model: str) -> Callable[[int | None, Mapping[str, str]], Source]:
    """How to build what `model` names, given a batch size and parameters; nothing is loaded yet.

    Raises:
      UnknownNameError: no such model in the zoo, and no path or module:function either.
      SourceError: the path does not exist.
    """
    from models import zoo

    if model in zoo.names():
        return lambda batch, params: _from_zoo(model, batch, params)
    path = Path(model)
    if path.exists():
        return lambda batch, params: _from_path(path, batch, params)
    if (
        path.suffix in (".meta", ".npz", ".pb", ".pbtxt")
        or path.is_absolute()
        or (len(path.parts) > 1 and ":" not in model)
    ):
        raise SourceError(f"{model!r}, which does not exist", "a SavedModel directory or a graph file")
    module, _, function = model.partition(":")
    if module and function:
        return lambda batch, params: _from_function(module, function, batch, params)
    raise UnknownNameError("model", model, (*zoo.names(), "a path", "module:function"))


def _from_zoo(name: str, batch: int | None, params: Mapping[str, str]) -> Source:
    from models import zoo

    values = _values(params) | ({} if batch is None else {"batch": batch})
    for key in values:
        if key not in zoo.parameters(name):
            raise UnknownNameError(f"parameter of {name}", key, zoo.parameters(name))
    built = zoo.build(name, **values)
    return Source(built.model, built.batch)


def _from_function(module: str, function: str, batch: int | None, params: Mapping[str, str]) -> Source:
    build = _user_function(module, function)
    values = _values(params) | ({} if batch is None else {"batch": batch})
    accepted = inspect.signature(build).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        for key in values:
            if key not in accepted:
                raise UnknownNameError(f"parameter of {module}:{function}", key, accepted)
    result = build(**values)
    if hasattr(result, "model") and hasattr(result, "batch"):
        return Source(result.model, result.batch)
    if isinstance(result, tuple) and len(result) == 2:
        return Source(*result)
    return Source(result)


def _user_function(module: str, function: str) -> Callable[..., Any]:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise SourceError(f"module {module!r}, which cannot be found", "an importable module", "") from error
    build: Callable[..., Any] | None = getattr(found, function, None)
    if build is None or not callable(build):
        raise SourceError(f"{module}:{function}", f"a function of {module}", f"It has {', '.join(_functions(found))}.")
    return build


def _functions(module: Any) -> list[str]:
    own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
    return [n for n in own if not n.startswith("_")][:10] or ["none"]


def _from_path(path: Path, batch: int | None, params: Mapping[str, str]) -> Source:
    if params:
        raise SourceError(f"--param for the file {path.name!r}", "--param only for the zoo's models and functions")
    if batch is None:
        return Source(path)
    if is_archive(path):
        raise SourceError(f"--batch for {path.name!r}", "no --batch: the file holds a graph with all its shapes")
    return Source(path, _signature_batch(path, batch) if path.is_dir() else _placeholder_batch(path, batch))


def _signature_batch(path: Path, batch: int) -> dict[str, Any]:
    import tensorflow as tf

    if not tf.saved_model.contains_saved_model(str(path)):
        return {}
    signatures = tf.saved_model.load(str(path)).signatures
    specs = signatures["serving_default"].structured_input_signature[1] if "serving_default" in signatures else {}
    return {name: tf.TensorSpec(_filled(spec.shape, batch), spec.dtype, name) for name, spec in specs.items()}


def _placeholder_batch(path: Path, batch: int) -> dict[str, Any]:
    import tensorflow as tf

    from tfplace.extract.metagraph import read_metagraph

    proto = read_metagraph(path)
    nodes = getattr(proto, "graph_def", proto).node
    return {
        node.name: tf.TensorSpec(
            _filled(tf.TensorShape(node.attr["shape"].shape), batch), tf.as_dtype(node.attr["dtype"].type)
        )
        for node in nodes
        if node.op in ("Placeholder", "PlaceholderV2")
    }


def _filled(shape: Any, batch: int) -> Any:
    """The shape with an unknown first dimension replaced by the batch size."""
    return shape if shape.rank is None or not shape.rank or shape[0] is not None else [batch, *shape[1:]]


def _values(params: Mapping[str, str]) -> dict[str, Any]:
    """Texts as Python numbers and booleans where they are such."""
    out: dict[str, Any] = {}
    for key, text in params.items():
        try:
            out[key] = ast.literal_eval(text.capitalize() if text in ("true", "false") else text)
        except (ValueError, SyntaxError):
            out[key] = text
    return out
