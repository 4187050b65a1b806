"""What placing a Keras 3 or tf_keras model needs to know of it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfplace.core.compilation import AUTO, NONE, XLA
from tfplace.errors import SourceError
from tfplace.extraction.keras_model import check_model, is_own, models_sharing_layers


def check_placeable(model: Any, compile: str) -> None:
    """Refuses a model whose training step cannot run on chosen devices; warns if it loses XLA by that.

    Args:
      model: a Keras 3 or tf_keras model.
      compile: how its step is to be run; see `tfplace.apply`.

    Raises:
      SourceError: run eagerly or in a session, under tf.distribute, or trained by something else than its
        `train_step`; names the way out.
    """
    check_model(model, training=True)
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise SourceError(
            f"model {model.name!r} without eager execution, which `fit` would train in a session",
            "eager execution, TensorFlow's default",
            "Remove tf.compat.v1.disable_eager_execution().",
        )
    if is_own(model.make_train_function):
        raise SourceError(
            f"model {model.name!r} with a make_train_function of its own, which may do more than its train_step",
            "a model whose `fit` runs train_step once for each batch",
            "Override train_step instead.",
        )
    if model.jit_compile and compile == NONE:
        warnings.warn(
            f"model {model.name!r} was compiled with jit_compile=True, which Keras chooses by default on a GPU. With "
            f"compile={NONE!r} the placed training step runs op by op; leave that out to have it compiled.",
            stacklevel=5,
        )


class WithoutXla:
    """Has a model evaluate, predict, generate and train on single batches op by op, until `restore`.

    XLA reads variables of one device only, so what `fit` runs for validation, and callbacks call, would fail where a
    placement has put them on several. The same goes for other models of its layers, such as an encoder's. Models that
    run without XLA are left as they are.

    Args:
      model: a Keras 3 or tf_keras model.
    """

    # not the property: tf_keras's throws all functions away
    _NAMES = (
        "_jit_compile",
        "train_function",
        "train_tf_function",
        "test_function",
        "predict_function",
        "generate_function",  # of keras-hub
    )

    def __init__(self, model: Any) -> None:
        self._kept = []
        for one in models_sharing_layers(model):
            if one.jit_compile:
                kept = {name: getattr(one, name) for name in self._NAMES if hasattr(one, name)}
                self._kept.append((one, kept))
                for name in kept:
                    setattr(one, name, None)
                one._jit_compile = False
        if model.train_function is None:
            model.make_train_function()

    @contextlib.contextmanager
    def reading(self, model: Any, compile: str) -> Iterator[None]:
        """While the step of a model is traced, which is another trace for XLA.

        Args:
          model: one of those.
          compile: how the step is to be run; see `tfplace.apply`.
        """
        before = model._jit_compile
        model._jit_compile = compile == XLA or (compile == AUTO and any(model is one for one, _ in self._kept))
        try:
            yield
        finally:
            model._jit_compile = before

    @property
    def aside(self) -> list[Any]:
        """What the models do not call until `restore`."""
        return [value for _, kept in self._kept for value in kept.values()]

    def restore(self) -> None:
        """Gives the models back their functions."""
        for model, kept in self._kept:
            for name, value in kept.items():
                setattr(model, name, value)


def steps_per_execution(model: Any) -> int:
    """Batches one call of the model's train function takes."""
    if isinstance(getattr(model, "_steps_per_execution", None), tf.Variable):
        return int(model._steps_per_execution.numpy())  # tf_keras: a variable that it lowers for the last batches
    return int(getattr(model, "steps_per_execution", 1) or 1)


def count_step(model: Any) -> None:
    """Counts a training step where the train function does so itself (tf_keras) and not its `train_step`."""
    counter = getattr(model, "_train_counter", None)
    if counter is not None:
        counter.assign_add(1)


def plain(data: Any) -> Any:
    """A batch or its spec as `train_step` takes it: Keras 3 passes None through a dataset as an empty optional."""
    absent = tf.experimental.Optional | tf.OptionalSpec
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, absent) else leaf, data)


def shapes_of(data: Any) -> list[tuple[int, ...]]:
    """Shapes of a batch's tensors, in the order of a traced function's arguments."""
    leaves = tf.nest.flatten(data, expand_composites=True)
    return [tuple(leaf.shape) for leaf in leaves if leaf is not None]


def run_batches(model: Any, iterator: Any, step: Callable[[Any], Any]) -> Any:
    """What a train function does: up to `steps_per_execution` batches, and the last one's logs.

    Raises:
      StopIteration: the iterator had no batch left, as Keras expects.
    """
    logs = None
    for _ in range(steps_per_execution(model)):
        try:
            data = next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            break
        logs = step(plain(data))
        count_step(model)
    if logs is None:
        raise StopIteration
    return logs
