"""What is said of the work itself, to whoever shows progress."""

from __future__ import annotations

from collections.abc import Callable

LISTENERS: list[Callable[[str], object]] = []
"""Take a line of text; the last one first."""


def notice(text: str) -> None:
    """Says something to the last who began to listen; without one it goes unsaid."""
    for listener in LISTENERS[-1:]:
        listener(text)
