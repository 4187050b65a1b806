"""Families of similar models, on which what was learned on some is tried on others.

`cifar10` and `ptb` have cells drawn at random from the search spaces of ENAS (Pham et al., ICML 2018), `nmt` varies the
lengths of sentences and the batch. Placeto (Addanki et al., NeurIPS 2019, section 5) generalises over 32 graphs of each
of these kinds; its graphs are not public, so these are drawn anew. All members are drawn from one seed.

A family's members are split by the SHA-256 of their specifications, written as JSON with sorted keys: the `TEST` lowest
are for testing, the others for training. The split does not depend on the order of members, nor on what they cost.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tfplace_zoo.base import Model, check_sizes

SIZE = 32
TEST = 8


def names() -> tuple[str, ...]:
    """Every family's name, sorted."""
    return ("cifar10", "nmt", "ptb")


def specifications(family: str, seed: int = 0) -> tuple[dict[str, Any], ...]:
    """[SIZE] what each member is made from, all different: numbers, texts and lists of them. Nothing is built.

    Args:
      family: one of `names()`.
      seed: another one draws another family of the same kind.

    Raises:
      ValueError: no such family; lists the known ones.
    """
    return tuple(json.loads(text) for text in _drawn(family, seed))


def member(family: str, index: int, *, seed: int = 0, **params: Any) -> Model:
    """Builds and compiles a member.

    Args:
      family: one of `names()`.
      index: from 0 to `SIZE - 1`.
      seed: as in `specifications`.
      **params: of the family's own `build`, instead of what the specification or the default says.

    Raises:
      ValueError: no such family or index, says what there is; or sizes it cannot have.
    """
    texts = _drawn(family, seed)
    if not 0 <= index < len(texts):
        raise ValueError(f"received member {index} of {family!r}; expected 0 to {len(texts) - 1}.")
    build, given = _module(family).build, {**json.loads(texts[index]), **params}
    check_sizes(build, given)
    model: Model = build(**given)
    model.model.name = f"{family}_{index}"
    return replace(model, name=f"{family}_{index}")


def split(family: str, seed: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Indices of the members to train on, and of those to test on, each ascending.

    Raises:
      ValueError: no such family; lists the known ones.
    """
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in _drawn(family, seed)]
    test = sorted(sorted(range(len(keys)), key=keys.__getitem__)[:TEST])
    return tuple(i for i in range(len(keys)) if i not in test), tuple(test)


@lru_cache
def _drawn(family: str, seed: int) -> tuple[str, ...]:
    """[SIZE] specifications as JSON with sorted keys."""
    rng = random.Random(f"{family} {seed}")  # seeded by the text's SHA-512: the same in every process and version
    module = _module(family)
    texts: dict[str, None] = {}
    while len(texts) < SIZE:
        texts[json.dumps(module.draw(rng), sort_keys=True)] = None
    return tuple(texts)


def _module(family: str) -> Any:
    if family not in names():
        raise ValueError(f"received family {family!r}; expected one of {', '.join(names())}.")
    return importlib.import_module(f"tfplace_zoo.families.{family}")
