"""Translation models of `tfplace_zoo.nmt` that differ in the lengths of their sentences and in their batch."""

from __future__ import annotations

import random
from typing import Any

from tfplace_zoo import nmt
from tfplace_zoo.base import Model

LENGTHS = range(10, 41, 2)
BATCHES = (16, 32, 64, 128)


def draw(rng: random.Random) -> dict[str, Any]:
    """Lengths of both sentences and the batch, each uniformly."""
    return {
        "source_length": rng.choice(LENGTHS),
        "target_length": rng.choice(LENGTHS),
        "batch": rng.choice(BATCHES),
    }


def build(source_length: int, target_length: int, batch: int = 64, **params: Any) -> Model:
    """The training step of an unrolled translation model; the other parameters are those of `tfplace_zoo.nmt.build`."""
    return nmt.build(batch, source_length=source_length, target_length=target_length, **params)
