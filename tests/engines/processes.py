"""Processes that tests look at."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid):
    """Whether no such process runs within some seconds."""
    for _ in range(1200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def number_in(path):
    """The number that another process writes to a file, once it is there."""
    wait_for(lambda: path.exists() and path.read_text())
    return int(path.read_text())
