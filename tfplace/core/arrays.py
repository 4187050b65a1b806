"""Array types, numbers for texts, and the one digest used for fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, made read-only."""
    array.setflags(write=False)
    return array


def numbered(texts: Sequence[str]) -> IntArray:
    """[N] a number for each text, equal ones alike, in alphabetical order: `np.unique` would copy long texts at length.

    >>> numbered(["b", "a", "b"]).tolist()
    [1, 0, 1]
    """
    number = {text: i for i, text in enumerate(sorted(set(texts)))}
    return np.array([number[text] for text in texts], np.int32)


def digest(parts: Iterable[str | bytes | NDArray[Any]]) -> str:
    """A 16-digit hexadecimal fingerprint of texts and arrays, in order."""
    h = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.tobytes() if isinstance(part, np.ndarray) else part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()
