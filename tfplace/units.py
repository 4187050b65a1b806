"""Quantities with units, read: "12GiB", "10GB/s", "9.3TFLOP/s", "25us"; `tfplace.formatting` writes them.

Everything inside tfplace is bytes, seconds, bytes per second and floating-point operations per second; text with units
exists only at the border.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from tfplace.errors import InputError
from tfplace.formatting import format_bytes

_NUMBER = r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
_PATTERN = re.compile(_NUMBER + r"([A-Za-zµ]*(?:/s)?)\s*")

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}

_BYTES = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()} | {"": 1}
_MOST_BYTES = 2.0**60
"""What sums of are still exact."""
_MOST_WHOLE = 10**300
_SECONDS = {"s": 1.0, "": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "m": 60.0, "min": 60.0, "h": 3600.0}
_RATE = {p + "B/s": f for p, f in (_DECIMAL | _BINARY).items()} | {"": 1}
_FLOPS = {p + unit: f for p, f in _DECIMAL.items() for unit in ("FLOP/s", "FLOPS", "flop/s")} | {"": 1}


def _parse(value: str | int | float, units: Mapping[str, float], what: str, example: str) -> float:
    expected = f"a {what} such as {example}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(repr(value), expected)
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        if match is None or match[2] not in units:
            raise InputError(repr(value), expected, f"Known units: {', '.join(u for u in units if u)}")
        number = float(match[1]) * units[match[2]]
    elif isinstance(value, int) and abs(value) > _MOST_WHOLE:
        raise InputError("a number of more than 300 digits", expected)
    else:
        number = float(value)
    if not math.isfinite(number) or number < 0:
        raise InputError(repr(value), f"a finite, non-negative {what} such as {example}")
    return number


def parse_bytes(value: str | int | float) -> int:
    """Bytes from "12GiB", "500MB" or a bare number of bytes.

    >>> parse_bytes("12GiB")
    12884901888
    """
    size = _parse(value, _BYTES, "size", '"12GiB", "500MB" or a number of bytes')
    if size > _MOST_BYTES:
        raise InputError(repr(value), f"a size of at most {format_bytes(_MOST_BYTES)}")
    return round(size)


def parse_seconds(value: str | int | float) -> float:
    """Seconds from "30s", "5us", "2min" or a bare number of seconds.

    >>> parse_seconds("2min")
    120.0
    """
    return _parse(value, _SECONDS, "duration", '"30s", "25us" or a number of seconds')


def parse_bandwidth(value: str | int | float) -> float:
    """Bytes per second from "10GB/s" or a bare number.

    >>> parse_bandwidth("10GB/s")
    10000000000.0
    """
    return _parse(value, _RATE, "bandwidth", '"10GB/s" or a number of bytes per second')


def parse_flops(value: str | int | float) -> float:
    """Floating-point operations per second from "9.3TFLOP/s" or a bare number.

    >>> parse_flops("9.3TFLOP/s")
    9300000000000.0
    """
    return _parse(value, _FLOPS, "compute rate", '"9.3TFLOP/s" or a number of operations per second')
