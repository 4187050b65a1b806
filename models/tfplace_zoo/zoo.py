"""The models by name: `zoo.build("inception_v3", batch=32)`.

A name is a builder with the parameters under which the papers place it, so one builder may have several.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfplace_zoo.base import Model, check_sizes

FACTS = Path(__file__).parent / "zoo_facts.json"


@dataclass(frozen=True)
class Entry:
    """A name of the zoo.

    Attributes:
      module: of `models`, with a function `build`.
      params: passed to it unless the caller says otherwise.
      devices: numbers of accelerators on which the papers place it; empty if none does.
    """

    module: str
    params: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[int, ...] = ()


ENTRIES: dict[str, Entry] = {
    "amoebanet": Entry("amoebanet", devices=(4,)),
    "bert_base": Entry("bert", devices=(4,)),
    "bert_large": Entry("bert", {"layers": 24, "width": 1024, "heads": 16}, devices=(6,)),
    "dlrm": Entry("dlrm"),
    "efficientnet": Entry("efficientnet"),
    "gnmt_2": Entry("gnmt", {"layers": 2}, devices=(2,)),
    "gnmt_4": Entry("gnmt", {"layers": 4}, devices=(4,)),
    "gnmt_8": Entry("gnmt", {"layers": 8}, devices=(8,)),
    "gpt": Entry("gpt"),
    "inception_v3": Entry("inception_v3", devices=(2, 4)),
    "moe": Entry("moe"),
    "nasnet": Entry("nasnet", devices=(2, 4)),
    "nmt_2": Entry("nmt", {"layers": 2}, devices=(2, 4)),
    "nmt_4": Entry("nmt", {"layers": 4}, devices=(4,)),
    "resnet152": Entry("resnet", {"depth": 152}, devices=(2,)),
    "resnet50": Entry("resnet", {"depth": 50}, devices=(2, 6)),
    "rnnlm_2": Entry("rnnlm", {"layers": 2}, devices=(2, 4)),
    "rnnlm_4": Entry("rnnlm", {"layers": 4}, devices=(4,)),
    "transformer": Entry("transformer"),
    "transformer_xl_2": Entry("transformer_xl", {"layers": 2}, devices=(2,)),
    "transformer_xl_4": Entry("transformer_xl", {"layers": 4}, devices=(4,)),
    "transformer_xl_8": Entry("transformer_xl", {"layers": 8}, devices=(8,)),
    "two_tower": Entry("two_tower"),
    "vit": Entry("vit"),
    "wavenet_2x18": Entry("wavenet", {"stacks": 2, "layers": 18}, devices=(2,)),
    "wavenet_4x36": Entry("wavenet", {"stacks": 4, "layers": 36}, devices=(4,)),
    "wide_mlp": Entry("wide_mlp"),
}


def names() -> tuple[str, ...]:
    """Every model's name, sorted."""
    return tuple(sorted(ENTRIES))


def describe(name: str) -> str:
    """One line on a model, without building it."""
    return str(_module(name).__doc__).strip().partition("\n")[0]


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a model's `build` and their defaults under this name."""
    defaults = {k: p.default for k, p in inspect.signature(_module(name).build).parameters.items()}
    return defaults | dict(ENTRIES[name].params)


def facts() -> dict[str, dict[str, Any]]:
    """What is known of the models at their default parameters, by name; written by scripts/make_zoo.py."""
    known: dict[str, dict[str, Any]] = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    return known


def build(name: str, **params: Any) -> Model:
    """Builds and compiles a model; its weights are random and nothing is downloaded.

    Args:
      name: one of `names()`.
      **params: of the model's own `build`, such as `batch`.

    Raises:
      ValueError: no such model, lists the known ones; or sizes it cannot have.
    """
    make, given = _module(name).build, {**ENTRIES[name].params, **params}
    check_sizes(make, given)
    model: Model = make(**given)
    model.model.name = name
    return replace(model, name=name)


def _module(name: str) -> Any:
    if name not in ENTRIES:
        raise ValueError(f"received model {name!r}; expected one of {', '.join(names())}.")
    return importlib.import_module(f"tfplace_zoo.{ENTRIES[name].module}")
