"""The models by name: `zoo.build("inception_v3", batch=32)`."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from models.base import Model

NAMES = ("inception_v3", "lstm_lm", "resnet50", "transformer", "two_tower", "wide_mlp")


def names() -> tuple[str, ...]:
    """Every model's name, sorted."""
    return NAMES


def describe(name: str) -> str:
    """One line on a model, without building it."""
    return str(_module(name).__doc__).strip()


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a model's `build` and their defaults."""
    return {k: p.default for k, p in inspect.signature(_module(name).build).parameters.items()}


def build(name: str, **params: Any) -> Model:
    """Builds and compiles a model; its weights are random and nothing is downloaded.

    Args:
      name: one of `names()`.
      **params: of the model's own `build`, such as `batch`.

    Raises:
      ValueError: no such model; lists the known ones.
    """
    model: Model = _module(name).build(**params)
    return model


def _module(name: str) -> Any:
    if name not in NAMES:
        raise ValueError(f"received model {name!r}; expected one of {', '.join(NAMES)}.")
    return importlib.import_module(f"models.{name}")
