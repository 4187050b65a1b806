"""How the best of a run fell: few of its improvements, far enough apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tfplace.search.progress import Improvement

STRIDE = 0.001
"""What part shorter than the last one kept a step has to be to be kept; twice, four times as much in long trails."""

LONGEST = 50
"""How many are kept at most, so that files of results stay small."""


def incumbents_of(history: Iterable[Improvement]) -> tuple[list[Improvement], float]:
    """The first and the last that fit, and of those between what is far enough apart; and how far that is.

    Step seconds are in six digits, but for the last.
    """
    fits = [found for found in history if not found.key[0]]
    rounded = [dataclasses.replace(found, key=(0, short(found.key[1]))) for found in fits[:-1]]
    stride = STRIDE
    while len(kept := _apart(rounded, stride)) >= LONGEST:
        stride *= 2
    return [*kept, *fits[-1:]], stride


def _apart(found: Sequence[Improvement], stride: float) -> list[Improvement]:
    kept: list[Improvement] = []
    for one in found:
        if not kept or one.key[1] <= kept[-1].key[1] * (1 - stride):
            kept.append(one)
    return kept


def short(seconds: float) -> float:
    """In six digits."""
    return float(f"{seconds:.6g}")
