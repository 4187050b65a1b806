"""What a search was told and found, on disk as it happens; a search that goes on is told the same again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.errors import InputError
from tfplace.files import parse_json
from tfplace.io.append_log import AppendLog, whole_lines, whole_records

RECORD = np.dtype([("over", "<i8"), ("step_s", "<f8"), ("seconds", "<f4"), ("check", "<u4")])
"""Bytes over the limits, step seconds, seconds since the search began, and a checksum of the devices."""


class Records:
    """An append-only file of one record of fixed size for each evaluation.

    A record that was being written when its process was killed is cut off. What is in the file is told again from the
    first record on; what comes after the last one is added.

    Args:
      path: of the file; made if it does not exist.

    Attributes:
      known: what was in the file when it was opened.
      position: how many records have been told again, or added, or skipped.
    """

    def __init__(self, path: Path) -> None:
        self.position = 0
        self._path = path
        self._log = AppendLog(path, whole_records(RECORD.itemsize))
        self.known = np.frombuffer(self._log.read()[0], RECORD)
        self._log.cut()

    @property
    def left(self) -> int:
        """How many records have not been told again."""
        return max(len(self.known) - self.position, 0)

    @property
    def seconds(self) -> float:
        """Into the search, at which the last of the known records was made; 0 if there is none."""
        return float(self.known["seconds"][-1]) if len(self.known) else 0.0

    def replay(self, unit_devices: IntArray) -> tuple[LongArray, FloatArray, float]:
        """What was recorded of the rows of [B, U], as many as there are records of, and when the last one was made.

        Raises:
          InputError: those recorded were other placements.
        """
        records = self.known[self.position : self.position + len(unit_devices)]
        checks = _checksums(unit_devices[: len(records)])
        if wrong := np.flatnonzero(checks != records["check"]).tolist():
            raise InputError(
                f"evaluation {self.position + wrong[0] + 1:,} with another placement than {self._path} has recorded",
                "the same placements in the same order as when the run began",
                "The program or a package has changed since, or the placer is not deterministic. Start a new run; "
                f"the best placement of this one stays in {self._path.parent}.",
            )
        self.position += len(records)
        seconds = float(records["seconds"][-1]) if len(records) else 0.0
        return records["over"].astype(np.int64), records["step_s"].astype(np.float64), seconds

    def add(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray, seconds: float) -> None:
        """Appends [B] records, on disk with the next `flush`."""
        records = np.empty(len(over), RECORD)
        records["over"], records["step_s"], records["seconds"] = over, step_s, seconds
        records["check"] = _checksums(unit_devices)
        self._log.add(records.tobytes())
        self.position += len(records)

    def flush(self) -> None:
        """Puts everything added on disk."""
        self._log.flush()

    def skip(self, position: int) -> None:
        """Goes on behind the first `position` records, at most as many as are known, without telling them."""
        self.position = position

    def close(self) -> None:
        """Puts everything added on disk, for the last time."""
        self._log.flush()


class Lines:
    """An append-only file of JSON objects, one a line, in the order of their "evaluations".

    A line that was being written when its process was killed is cut off. A search that goes on says some things twice:
    what is not after the last line is left out.

    Args:
      path: of the file; made if it does not exist.

    Raises:
      InputError: the file holds something else.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path, whole_lines)
        try:
            lines = [parse_json(line) for line in self._log.read()[0].splitlines()]
            self.last = max((int(line["evaluations"]) for line in lines), default=-1)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InputError(f"{path}, which is damaged", "JSON lines with a number of evaluations") from error
        self._log.cut()

    def add(self, evaluations: int, facts: Mapping[str, Any]) -> None:
        """Appends a line, on disk with the next `flush`, unless one of as many evaluations is there."""
        if evaluations > self.last:
            self._log.add(json.dumps({"evaluations": evaluations, **facts}).encode() + b"\n")
            self.last = evaluations

    def flush(self) -> None:
        """Puts everything added on disk."""
        self._log.flush()

    def close(self) -> None:
        """Puts everything added on disk, for the last time."""
        self._log.flush()


def _checksums(unit_devices: IntArray) -> np.ndarray[Any, np.dtype[np.uint32]]:
    rows = np.ascontiguousarray(unit_devices, np.int32)
    return np.array([zlib.crc32(row) for row in rows], np.uint32)
