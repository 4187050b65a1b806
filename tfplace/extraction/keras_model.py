"""Keras models, Keras 3 and tf_keras: their training step, or inference, as a traced function."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from tfplace.errors import SourceError
from tfplace.extraction.tf_internals import live
from tfplace.extraction.tracing import short, tracing


def is_keras_model(source: Any) -> bool:
    """Whether `source` is a Keras 3 or tf_keras model; neither package is imported to find out."""
    return _is_of("keras", source) or _is_of("tf_keras", source)


def _is_of(package: str, source: Any) -> bool:
    """Whether `source` is a model of the package."""
    module = sys.modules.get(package)
    return module is not None and isinstance(source, module.Model)


def models_sharing_layers(model: Any) -> list[Any]:
    """The live models that have a layer of this one, itself among them."""
    kind = sys.modules["keras" if _is_of("keras", model) else "tf_keras"].Model
    layers = {id(layer) for layer in model._flatten_layers()}
    made = [one for one in live(kind) if hasattr(one, "predict_function")]  # not one whose constructor failed
    return [one for one in made if any(id(layer) in layers for layer in one._flatten_layers())]


def float_type(model: Any) -> str:
    """The dtype in which a model's package takes floats of arrays."""
    return str(sys.modules["keras" if _is_of("keras", model) else "tf_keras"].backend.floatx())


def is_own(method: Any) -> bool:
    """Whether a model's method is the user's, and not what Keras has for all models."""
    return str(method.__module__).partition(".")[0] not in ("keras", "tf_keras")


def trains(model: Any) -> bool:
    """Whether a model is compiled, so that it has a training step."""
    compiled = getattr(model, "compiled", False) or getattr(model, "_is_compiled", False)
    return bool(compiled) and (getattr(model, "optimizer", None) is not None or is_own(model.train_step))


def untrained(model: Any) -> str:
    """What is to be said of a model that does not train, where nothing said that inference is wanted."""
    return (
        f"model {model.name!r} is not compiled, so tfplace reads its inference; compile it to place its training step"
    )


def trace_keras_step(model: Any, data_spec: Any, *, training: bool = True) -> Any:
    """Traces one step of a Keras model; runs nothing.

    A model that is not built gets its weights, and an optimizer its slots, as those of `fit` would: by the first trace.

    Args:
      model: compiled, for training.
      data_spec: specs of what `train_step` gets: `x`, `(x, y)` or `(x, y, sample_weight)`.
      training: the whole training step (forward, loss, backward, optimizer, metrics), else inference.

    Returns:
      A `ConcreteFunction` from `data` to the step's logs, or to the model's outputs.

    Raises:
      SourceError: not compiled, eager, under a distribution strategy, or not on the TensorFlow backend; or the step
        fails.
    """
    check_model(model, training=training)
    step = model.train_step if training else model.predict_step
    autograph = not _is_of("keras", model)  # tf_keras has Python's `if` and `for` in layers and losses become ops

    def keras_step(data: Any) -> Any:
        # As in tf_keras itself, the strategy has layers converted, and not the step.
        return model.distribute_strategy.run(step, args=(data,)) if autograph else step(data)

    with tracing(f"a step of model {model.name!r} for a batch of specs {short(data_spec)}"):
        return tf.function(keras_step, autograph=autograph, jit_compile=bool(model.jit_compile)).get_concrete_function(
            data_spec
        )


def check_model(model: Any, *, training: bool) -> None:
    """Refuses a model that has no graph of one step.

    Raises:
      SourceError: not compiled, eager, under a distribution strategy, or not on the TensorFlow backend.
    """
    name = f"model {model.name!r}"
    if _is_of("keras", model) and (backend := sys.modules["keras"].backend.backend()) != "tensorflow":
        raise SourceError(
            f"{name} on Keras backend {backend!r}",
            'the backend "tensorflow"',
            "Set KERAS_BACKEND=tensorflow before importing keras.",
        )
    if not training:
        return
    if not trains(model):
        raise SourceError(
            f"{name}, which is not compiled with an optimizer",
            "a compiled model for its training step",
            "Call model.compile(optimizer, loss), or ask for inference with training=False.",
        )
    if getattr(model, "run_eagerly", False):
        raise SourceError(
            f"{name} with run_eagerly=True, which has no graph",
            "a model that runs as a graph",
            "Compile it with run_eagerly=False, and leave tf.config.run_functions_eagerly off.",
        )
    strategy = getattr(model, "distribute_strategy", None)
    # The default strategy, which only runs the step, is not a public class.
    if strategy is not None and not type(strategy).__name__.startswith("_Default"):
        raise SourceError(
            f"{name} under {type(strategy).__name__}",
            "a model outside tf.distribute",
            "tfplace spreads one replica over devices; build and compile the model outside strategy.scope().",
        )
