"""What --model names: a model of the zoo, a file, or a function of the user's."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfplace_zoo import zoo

from tfplace.cli.modules import check_module, load_module
from tfplace.errors import SourceError, SplitError, TfplaceError, UnknownNameError, describe_error, error_location
from tfplace.group.dnn_partitioning import is_workload
from tfplace.io.archive import is_archive

Builder = Callable[[int | None, Mapping[str, str]], "Source"]
SUFFIXES = (".json", ".meta", ".npz", ".pb", ".pbtxt")
KERAS_SUFFIXES = (".h5", ".hdf5", ".keras")


@dataclass(frozen=True)
class Source:
    """Something `tfplace.extract` takes.

    Attributes:
      source: a model, a function or a path.
      batch: what one step is given; None if the source says it itself.
      examples: of a file: how many a step is given, where it leaves that open.
      shapes: of a file: those of inputs, by name or position, where it leaves more open.
    """

    source: Any
    batch: Any = None
    examples: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def find(model: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Builder:
    """How to build what `model` names, given a batch size and parameters; nothing is loaded yet.

    Args:
      model: the value of --model.
      shapes: of a file's inputs, by name or position: all dimensions of those that the batch size does not fill.

    Raises:
      UnknownNameError: no such model in the zoo, and no path or module:function either.
      SourceError: the path or the module does not exist, a file of Python is named instead of a module, or shapes are
        given for what is no file.
    """
    if shapes and not Path(model).exists():
        raise SourceError(
            f"--shape for {model!r}",
            "--shape for files only",
            "A function returns a batch, and so the shapes, with its model; zoo models have parameters (--param).",
        )
    if model in zoo.names():
        return lambda batch, params: _from_zoo(model, batch, params)
    path = Path(model)
    _refuse_python_file(model)
    if path.exists():
        _refuse_keras_file(path)
        return lambda batch, params: _from_path(path, batch, params, shapes or {})
    if path.suffix in SUFFIXES + KERAS_SUFFIXES or path.is_absolute() or (len(path.parts) > 1 and ":" not in model):
        raise SourceError(f"{model!r}, which does not exist", "a SavedModel directory or a graph file")
    module, _, function = model.partition(":")
    if module and function:
        check_module(module)
        return lambda batch, params: _from_function(module, function, batch, params)
    raise UnknownNameError("model", model, (*zoo.names(), "a path", "module:function"))


def _refuse_python_file(model: str) -> None:
    """Says how a function in a file is named."""
    file, _, function = model.partition(":")
    path = Path(file)
    if path.suffix != ".py":
        return
    inside = path.resolve().relative_to(Path.cwd()) if path.resolve().is_relative_to(Path.cwd()) else Path(path.name)
    expected = f"--model={'.'.join(inside.with_suffix('').parts)}:{function or 'build'}"
    where = "" if inside.parts == path.parts else f", in {path.parent}"
    hint = "" if function else "Write the name of your function instead of `build`."
    raise SourceError(f"--model={model}, a Python file", f"{expected}{where}", hint)


def _refuse_keras_file(path: Path) -> None:
    """Says how a saved Keras model is given, whose batch nothing tells."""
    if path.suffix in KERAS_SUFFIXES:
        raise SourceError(
            f"{str(path)!r}, a saved Keras model",
            "a function that loads it, as --model=net:build",
            f"In net.py: def build(batch=32): return keras.models.load_model({str(path)!r}), (x, y), where x and y are "
            "arrays or tf.TensorSpecs of one step's batch.",
        )


def refuse_slices(model: str, slices: int | str | Sequence[int] | None) -> None:
    """Says that files have the sizes of one batch.

    Args:
      model: the value of --model.
      slices: of its batch; None for a whole one.

    Raises:
      SplitError: there are some, and `model` is a file.
    """
    if slices is not None and is_file(model):
        raise SplitError(
            f"--slices for {model!r}",
            "--slices for the zoo's models and functions only: a file has the sizes of one batch",
            "Split where the model is: `tfplace extract MODEL --slices=4 --output=FILE.npz` keeps the split graph.",
        )


def is_file(model: str) -> bool:
    """Whether `model` names something that is read without TensorFlow in this process."""
    return model not in zoo.names() and Path(model).exists()


def refuse_workload(model: str, command: str) -> None:
    """Says that a command takes models only.

    Raises:
      SourceError: `model` is a workload, which has no TensorFlow graph.
    """
    if is_workload(model):
        raise SourceError(
            f"{model!r} for `{command}`",
            "a model or a graph: a workload has costs and devices, but no ops that run",
            f"`tfplace place --model={model}` places it.",
        )


def _from_zoo(name: str, batch: int | None, params: Mapping[str, str]) -> Source:
    values = _values(params) | ({} if batch is None else {"batch": batch})
    for key in values:
        if key not in zoo.parameters(name):
            raise UnknownNameError(f"parameter of {name}", key, zoo.parameters(name))
    built = _called(f"zoo.build({name!r}, ...)", lambda: zoo.build(name, **values), values)
    return Source(built.model, built.batch)


def _from_function(module: str, function: str, batch: int | None, params: Mapping[str, str]) -> Source:
    build = _user_function(module, function)
    values = _values(params) | ({} if batch is None else {"batch": batch})
    try:
        signature = inspect.signature(build)
    except (TypeError, ValueError) as error:
        raise SourceError(f"{module}:{function} ({error})", "a function written in Python") from error
    if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        for key in values:
            if key not in signature.parameters:
                raise UnknownNameError(f"parameter of {module}:{function}", key, signature.parameters)
    try:
        signature.bind(**values)
    except TypeError as error:
        raise SourceError(
            f"{module}:{function} with {_listed(values)} ({error})",
            f"values for {function}{signature}",
            "Give them with --param=NAME=VALUE.",
        ) from error
    result = _called(f"{module}:{function}", lambda: build(**values), values)
    if hasattr(result, "model") and hasattr(result, "batch"):
        return Source(result.model, result.batch)
    if isinstance(result, tuple) and len(result) == 2:
        return Source(*result)
    return Source(result)


def _called(what: str, build: Callable[[], Any], values: Mapping[str, Any]) -> Any:
    """What a builder returns; its exceptions, which may come of the values, are the input's."""
    try:
        return build()
    except TfplaceError:
        raise
    except (Exception, SystemExit) as error:
        raise SourceError(
            f"{what} with {_listed(values)}, which failed: {describe_error(error)}",
            "a call that returns a model",
            f"See {error_location(error)}.",
        ) from error


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items()) or "no parameters"


def _user_function(module: str, function: str) -> Callable[..., Any]:
    found = load_module(module)
    build: Callable[..., Any] | None = getattr(found, function, None)
    if build is None or not callable(build):
        raise SourceError(f"{module}:{function}", f"a function of {module}", f"It has {', '.join(_functions(found))}.")
    return build


def _functions(module: Any) -> list[str]:
    own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
    return [n for n in own if not n.startswith("_")][:10] or ["none"]


def _from_path(
    path: Path, batch: int | None, params: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> Source:
    if params:
        raise SourceError(f"--param for the file {path.name!r}", "--param only for the zoo's models and functions")
    if batch is None and not shapes:
        return Source(path)
    if is_archive(path) or is_workload(path):
        flag = "--batch" if batch is not None else "--shape"
        raise SourceError(f"{flag} for {path.name!r}", f"no {flag}: the file holds a graph with all its shapes")
    return Source(path, examples=batch, shapes=shapes)


def _values(params: Mapping[str, str]) -> dict[str, Any]:
    """Texts as Python numbers and booleans where they are such."""
    out: dict[str, Any] = {}
    for key, text in params.items():
        try:
            out[key] = ast.literal_eval(text.capitalize() if text in ("true", "false") else text)
        except (ValueError, SyntaxError):
            out[key] = text
    return out
