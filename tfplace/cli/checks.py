"""Checks of flags' values, before anything takes long."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tfplace.engines.sockets import answers, split_address
from tfplace.errors import ClusterError, InputError
from tfplace.units import parse_seconds

_ANSWER_S = 10.0
"""A worker answers in milliseconds, unless it is being started."""

_Value = TypeVar("_Value")


def flag_value(name: str, text: str, read: Callable[[str], _Value]) -> _Value:
    """What the text of a flag means.

    Raises:
      InputError: as `read`, with the flag's name.
    """
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"--{name}={text}", error.expected, error.hint) from error


def step_timeout_s(text: str) -> float:
    """Seconds of `--step_timeout`.

    Raises:
      InputError: no time, or none at all.
    """
    seconds: float = flag_value("step_timeout", text, parse_seconds)
    if not seconds:
        raise InputError(f"--step_timeout={text}", "more than 0 s")
    return seconds


def check_addresses(name: str, addresses: Iterable[str], *, reached: bool = False) -> None:
    """Refuses what can be no worker's address, before anything is loaded.

    Args:
      name: of the flag.
      addresses: its values.
      reached: whether a worker is to answer there already.

    Raises:
      InputError: one is not "host:port".
      ClusterError: nobody answers at one.
    """
    addresses = list(addresses)
    for address in addresses:
        flag_value(name, address, split_address)
    if reached and (silent := [a for a in addresses if not answers(a.strip(), _ANSWER_S)]):
        raise ClusterError(
            f"--{name}={','.join(addresses)}, where {silent[0]} does not answer within {_ANSWER_S:g} s",
            "workers that run",
            "Start each with `tfplace worker`.",
        )


def output_file(given: str | None, example: str, hint: str) -> Path:
    """The file that --output names, known to be in a directory before anything takes long.

    Args:
      given: the value of --output.
      example: of a file's name.
      hint: what the file is for.

    Raises:
      InputError: there is no --output, it is a directory, or its directory does not exist or takes no files.
    """
    if not given:
        raise InputError("no --output", f"--output={example}", hint)
    output = Path(given)
    if output.is_dir():
        raise InputError(f"--output={given}, which is a directory", f"a file, such as {output / example}")
    if not output.parent.is_dir():
        raise InputError(f"--output={given}", f"a file in a directory that exists; {output.parent} does not")
    _check_takes_files(f"--output={given}", output.parent)
    return output


def output_directory(name: str, text: str | None) -> Path | None:
    """The directory that a flag names, made if it does not exist; None without the flag.

    Args:
      name: of the flag.
      text: its value.

    Raises:
      InputError: it has no name, cannot be made, or takes no files.
    """
    if text is None:
        return None
    if not text:
        raise InputError(f"--{name}= with nothing", f"--{name}=DIRECTORY, or none", "Is a variable unset?")
    out = Path(text)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--{name}={text} ({error.strerror})", "a directory that exists or can be made") from error
    _check_takes_files(f"--{name}={text}", out)
    return out


def _check_takes_files(flag: str, directory: Path) -> None:
    """Tries it: permissions alone do not tell, of a full disk or of /proc."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise InputError(
            f"{flag} ({error.strerror})", f"a place to write to; no file can be made in {directory}"
        ) from error
