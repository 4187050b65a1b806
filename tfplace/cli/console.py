"""Where text goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Writes a result."""
    sys.stdout.write(text)
    sys.stdout.flush()


def complain(text: str) -> None:
    """Writes a message that is not a result."""
    sys.stderr.write(f"tfplace: {text.rstrip()}\n")
    sys.stderr.flush()
