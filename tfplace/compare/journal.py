"""Results of a comparison on disk, one line each, so that an interrupted one goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfplace.compare.cells import Case, Facts, Run
from tfplace.errors import InputError


class Journal:
    """An append-only file of JSON lines: a header, facts of cases, and runs.

    Args:
      path: of the file; made if it does not exist.
      header: what all its runs have in common, such as the budget; a file with another one is refused.

    Raises:
      InputError: the file belongs to another comparison, or is none.
    """

    def __init__(self, path: str | Path, header: dict[str, Any]) -> None:
        self.path = Path(path)
        self.header = header
        self.facts: dict[Case, Facts] = {}
        self.runs: dict[tuple[Case, str, int], Run] = {}
        if self.path.exists():
            self._read()
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"header": header})

    def add(self, result: Facts | Run) -> None:
        """Keeps a result, at once on disk."""
        self._take(result)
        kind = "facts" if isinstance(result, Facts) else "run"
        self._append({kind: asdict(result)})

    def _take(self, result: Facts | Run) -> None:
        if isinstance(result, Facts):
            self.facts[result.case] = result
        else:
            self.runs[result.case, result.placer, result.seed] = result

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _read(self) -> None:
        lines = self._lines()
        header = next(lines, {}).get("header")
        if header != self.header:
            raise InputError(
                f"results of {header} in {self.path.name}",
                f"results of {self.header}",
                "Name another file, or the settings with which this one was begun.",
            )
        for line in lines:
            if "facts" in line:
                data = line["facts"]
                self._take(Facts(**{**data, "case": Case(**data["case"])}))
            else:
                self._take(Run.from_dict(line["run"]))

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Every whole line; one that was being written when the process was killed is cut off the file."""
        whole = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise InputError(f"{line[:40]!r} in {self.path.name}", "lines of JSON") from error
        if whole < self.path.stat().st_size:
            with self.path.open("rb+") as file:
                file.truncate(whole)
