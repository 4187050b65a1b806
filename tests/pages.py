"""What pages say."""

import json
from pathlib import Path

from tfplace.compare.journal import Journal
from tfplace.compare.standings import standings

ROOT = Path(__file__).resolve().parents[1]


def text(name):
    """Of a file of the checkout."""
    return (ROOT / name).read_text()


def unwrapped(name):
    """The same on one line."""
    return " ".join(text(name).split())


def rows_of(suite):
    """Of its committed results."""
    header = json.loads(text(f"benchmarks/{suite}.jsonl").partition("\n")[0])["header"]
    return [row for row in standings(Journal(ROOT / "benchmarks" / f"{suite}.jsonl", header)) if row.runs]
