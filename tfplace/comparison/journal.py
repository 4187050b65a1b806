"""Results of a comparison on disk, one line each, so that an interrupted one goes on where it was."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfplace.comparison.cells import Case, Facts, Run
from tfplace.errors import InputError
from tfplace.files import parse_json, writing
from tfplace.io.append_log import AppendLog, whole_lines
from tfplace.search.budget import Budget
from tfplace.version import versions


class Journal:
    """An append-only file of JSON lines: a header, what made the results that follow, facts of cases, and runs.

    What made them are a command and versions, with a line wherever they are others than before. Older files have only
    versions, beside the header.

    Reading changes nothing. A journal that adds results has to be the file's only writer.

    Args:
      path: of the file; made with the first result if it does not exist.
      header: what all its runs have in common, such as the budget; a file with another one is refused.

    Raises:
      InputError: the file belongs to another comparison, or is none.
    """

    def __init__(self, path: str | Path, header: dict[str, Any]) -> None:
        self.path = Path(path)
        self.header = header
        self.facts: dict[Case, Facts] = {}
        self.runs: dict[tuple[Case, str, int], Run] = {}
        self._made_by: dict[str, Any] | None = None
        self._log = AppendLog(self.path, whole_lines)
        self._read()

    def add(self, result: Facts | Run) -> None:
        """Keeps a result, at once on disk; a run takes the place of one that could not run.

        Raises:
          InputError: the file is not as it was when this journal was read: another process has written it, or it was
            moved.
        """
        if isinstance(result, Run) and self._is_known_trouble(result):
            return
        line = {"facts": asdict(result)} if isinstance(result, Facts) else {"run": result.to_dict()}
        first = [] if self._log.length else [{"header": self.header}]
        made_by = [] if self._made_by == self._maker else [{"made_by": self._maker}]
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._log.append(b"".join(json.dumps(line).encode() + b"\n" for line in [*first, *made_by, line]))
        self._made_by = self._maker
        self._take(result)

    def done(self, case: Case, placer: str, seed: int, code: str = "", budget: Budget | None = None) -> bool:
        """Whether there is a run that stands.

        Args:
          case: where.
          placer: its name.
          seed: of the run.
          code: as in `Run.stands`.
          budget: as there.
        """
        run = self.runs.get((case, placer, seed))
        return run is not None and run.stands(code, budget)

    @functools.cached_property
    def _maker(self) -> dict[str, Any]:
        """This process, as far as results depend on it."""
        return {"command": _command(), "versions": versions()}

    def _is_known_trouble(self, run: Run) -> bool:
        known = self.runs.get((run.case, run.placer, run.seed))
        return known is not None and run.trouble != "" and run.trouble == known.trouble

    def _take(self, result: Facts | Run) -> None:
        if isinstance(result, Facts):
            self.facts[result.case] = result
        else:
            self.runs[result.case, result.placer, result.seed] = result

    def _read(self) -> None:
        lines = self._lines()
        first = next(lines, None)
        if first is None:
            return
        header = first.get("header") if isinstance(first, dict) else None
        if not isinstance(header, dict):
            raise InputError(f"{self.path.name}, which is not a results file", "a results file", "Use another file.")
        if differ := [k for k in {**header, **self.header} if header.get(k) != self.header.get(k)]:
            what = differ[0]
            raise InputError(
                f"{self.path} with results of {what} {header.get(what)!r}",
                f"{what} {self.header.get(what)!r}",
                "Use another file, or the settings with which this one was started.",
            )
        for line in lines:
            try:
                if "made_by" in line:
                    self._made_by = line["made_by"]
                elif "facts" in line:
                    self._take(Facts.from_dict(line["facts"]))
                else:
                    self._take(Run.from_dict(line["run"]))
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{json.dumps(line)[:60]} in {self.path.name} ({error})", "facts or a run", "Use another file."
                ) from error

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Every whole line; one that was being written when its process was killed is left out."""
        try:
            whole, torn = self._log.read()
        except OSError as error:
            raise InputError(f"{self.path} ({error.strerror})", "a results file") from error
        if not whole and not b'{"header": '.startswith(torn[:11]):
            raise InputError(f"{torn[:40]!r} in {self.path.name}", "a results file", "Use another file.")
        for line in whole.splitlines():
            try:
                yield parse_json(line)
            except ValueError as error:
                raise InputError(f"{line[:40]!r} in {self.path.name}", "lines of JSON") from error


def _command() -> list[str]:
    """Of this process: the script's name and its flags; of absolute paths the last part, the rest is this machine's."""
    script, *arguments = sys.argv or [""]  # a program that embeds Python may have none
    return [Path(script).name, *map(_portable, arguments)]


def _portable(argument: str) -> str:
    flag, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    return flag + equals + (Path(value).name if Path(value).is_absolute() else value)
