"""Arrays, texts and repeated values in the form in which a zip file holds them smallest.

Deflate finds repetitions, not arithmetic: indices that mostly grow by one, and names that begin like the one before,
are turned into what repeats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray
from tfplace.files import MOST_BYTES, parse_json

Packed = dict[str, NDArray[Any]]
"""Part name -> array; the parts of one thing share its name up to a dot."""


def pack_integers(name: str, values: NDArray[np.signedinteger[Any]]) -> Packed:
    """[N] integers as differences, byte by byte: all lowest bytes first.

    The differences may wrap around; so does their sum when they are read.
    """
    little = np.diff(values, prepend=values.dtype.type(0)).astype(values.dtype.newbyteorder("<"))
    return {name: np.ascontiguousarray(little.view(np.uint8).reshape(-1, values.itemsize).T)}


def unpack_integers(parts: Packed, name: str) -> NDArray[Any]:
    """What `pack_integers` packed."""
    planes = parts[name]
    differences = np.ascontiguousarray(planes.T).view(f"<i{len(planes)}").ravel()
    return np.cumsum(differences, dtype=f"i{len(planes)}")


def pack_floats(name: str, rows: FloatArray) -> Packed:
    """[N] or [N, D] floats, bit by bit: the different rows, and which of them each row is."""
    bits = np.ascontiguousarray(rows, "<f8").view("<i8").reshape(len(rows), rows[:1].size or 1)
    table, which = np.unique(bits, axis=0, return_inverse=True)
    shape = np.array(rows.shape, np.int64)
    return {f"{name}.table": table, f"{name}.shape": shape} | pack_integers(
        f"{name}.which", which.ravel().astype(np.int32)
    )


def unpack_floats(parts: Packed, name: str) -> FloatArray:
    """What `pack_floats` packed."""
    table = parts[f"{name}.table"].view("<f8").astype(np.float64, copy=False)
    which = unpack_integers(parts, f"{name}.which")
    _refuse_bomb(len(which) * max(table[:1].nbytes, 1), name)
    rows: FloatArray = table[which].reshape(parts[f"{name}.shape"])
    return rows


def _refuse_bomb(size_bytes: int, name: str) -> None:
    if size_bytes > MOST_BYTES:
        raise ValueError(f"{name} of {size_bytes} bytes")


def pack_texts(name: str, texts: Sequence[str]) -> Packed:
    """[N] texts by how many bytes each begins like the one before, and the rest of it (front coding)."""
    before = b""
    shared, rest = [], []
    for text in texts:
        data = text.encode()
        shared.append(_shared(before, data))
        rest.append(data[shared[-1] :])
        before = data
    return {
        f"{name}.bytes": np.frombuffer(b"".join(rest), np.uint8),
        **pack_integers(f"{name}.shared", np.array(shared, np.int32)),
        **pack_integers(f"{name}.length", np.array([len(r) for r in rest], np.int32)),
    }


def _shared(a: bytes, b: bytes) -> int:
    """How many bytes two texts have in common at their beginnings."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def unpack_texts(parts: Packed, name: str) -> tuple[str, ...]:
    """What `pack_texts` packed."""
    data, start, before = parts[f"{name}.bytes"].tobytes(), 0, b""
    texts = []
    shared, length = (unpack_integers(parts, f"{name}.{what}").tolist() for what in ("shared", "length"))
    _refuse_bomb(sum(shared) + sum(length), name)
    if min(shared, default=0) < 0 or min(length, default=0) < 0 or sum(length) != len(data):
        raise ValueError(f"{name} of other lengths than its texts")
    for keep, more in zip(shared, length, strict=True):
        before = before[:keep] + data[start : start + more]
        start += more
        texts.append(before.decode())
    return tuple(texts)


def pack_values(name: str, values: Iterable[Any]) -> Packed:
    """[N] numbers, texts, None, and tuples and mappings of them: the different ones as JSON, and which each is."""
    ids: dict[str, int] = {}
    which = [ids.setdefault(json.dumps(value), len(ids)) for value in values]
    return pack_texts(f"{name}.table", tuple(ids)) | pack_integers(f"{name}.which", np.array(which, np.int32))


def unpack_values(parts: Packed, name: str) -> tuple[Any, ...]:
    """What `pack_values` packed; equal values are one object."""
    table = [as_tuples(parse_json(text)) for text in unpack_texts(parts, f"{name}.table")]
    return tuple(table[i] for i in unpack_integers(parts, f"{name}.which").tolist())


def as_tuples(value: Any) -> Any:
    """The value with lists, which JSON makes of tuples, as tuples again."""
    if isinstance(value, list):
        return tuple(map(as_tuples, value))
    return {key: as_tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
