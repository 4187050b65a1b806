"""What pages say."""

import json
from pathlib import Path

from tfplace.comparison.case_results import read_case_results
from tfplace.comparison.journal import Journal

ROOT = Path(__file__).resolve().parents[1]


def text(name):
    """Of a file of the checkout."""
    return (ROOT / name).read_text()


def unwrapped(name):
    """The same on one line."""
    return " ".join(text(name).split())


def rows_of(suite):
    """Of its committed results."""
    header = json.loads(text(f"research/data/{suite}.jsonl").partition("\n")[0])["header"]
    return [
        row for row in read_case_results(Journal(ROOT / "research" / "data" / f"{suite}.jsonl", header)) if row.runs
    ]
