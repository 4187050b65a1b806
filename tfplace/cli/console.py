"""Where text goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


class UnreadError(Exception):
    """Nobody reads the results any more, as behind `| head`."""


def say(text: str) -> None:
    """Writes a result.

    Raises:
      UnreadError: nobody reads it. What is written after that goes nowhere.
      UnwrittenError: the operating system does not take it, such as for a disk that is full; the same.
    """
    from tfplace.errors import UnwrittenError

    expected = "an output that can be written to"
    if sys.stdout is None:
        raise UnwrittenError("a standard output that is closed", expected)
    try:
        sys.stdout.write(_writable(text))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise UnreadError from error
        raise UnwrittenError(f"a standard output that could not be written ({error.strerror})", expected) from error


def _writable(text: str) -> str:
    """The text, with what the output's encoding lacks written otherwise: no result is lost for the sake of a line."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


_PLAIN = str.maketrans({"─": "-", "━": "-", "│": "|", "µ": "u", "…": "...", "→": "->"})
"""Signs of tables and quantities -> the same in ASCII."""


def show(tables: RenderableType) -> None:
    """Writes tables as results: as wide as the terminal, or wide enough for every column where there is none."""
    from rich.console import Console

    from tfplace.report.summary import plain_text

    console = Console(markup=False, emoji=False)  # names and messages are shown as they are
    if console.is_terminal and "utf" in console.encoding:
        console.print(tables)
    else:
        say(plain_text(tables) + "\n")


def present(
    as_json: bool,
    facts: Callable[[], Mapping[str, Any]],
    tables: Callable[[], RenderableType],
    files: Mapping[str, str],
    *,
    listed: bool = True,
) -> None:
    """Writes a result as the flags ask for it: one JSON object, or tables and where files are.

    Args:
      as_json: whether one object is wanted.
      facts: plain data.
      tables: the same for people.
      files: what -> where.
      listed: whether the files follow the tables, which else name them.
    """
    if as_json:
        say(json.dumps({**facts(), "files": dict(files)}, indent=1) + "\n")
        return
    show(tables())
    if listed:
        say("".join(f"{what:<10} {path}\n" for what, path in files.items()))


def complain(text: str) -> None:
    """Writes a message that is not a result."""
    sys.stderr.write(f"tfplace: {text.rstrip()}\n")
    sys.stderr.flush()
