"""Bytes and seconds as text with units, for people."""

from __future__ import annotations

import math


def format_bytes(size: float) -> str:
    """A size with a binary unit and three significant digits.

    >>> format_bytes(12 * 2**30)
    '12.0 GiB'
    """
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size) >= factor:
            return f"{_three_digits(size / factor)} {unit}"
    return f"{size:.0f} B"


def format_seconds(seconds: float) -> str:
    """A duration with a fitting unit and three significant digits.

    >>> format_seconds(0.0123)
    '12.3 ms'
    """
    if not math.isfinite(seconds):
        return str(seconds)
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= 0.9995 * factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return "0 s" if seconds == 0 else f"{_three_digits(seconds / 1e-9)} ns"


def _three_digits(number: float) -> str:
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}"
