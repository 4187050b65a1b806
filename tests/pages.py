"""What pages say."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def text(name):
    """Of a file of the checkout."""
    return (ROOT / name).read_text()


def unwrapped(name):
    """The same on one line."""
    return " ".join(text(name).split())
