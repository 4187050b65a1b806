"""What the commands' flags share: reading them, listing them, and checks of their values."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from absl import flags

from tfplace.errors import InputError
from tfplace.measurement.backends.sockets import split_address
from tfplace.units import parse_seconds

_Value = TypeVar("_Value")

EXIT_CODES = "Exit codes: 0 done, 1 internal error, 2 bad input, 130 interrupted, 141 unread."
PLACING_CODES = "Exit codes: 0 placed, 1 internal error, 2 bad input, 3 no placement fits, 130 interrupted, 141 unread."


def asks_for_help(argv: Sequence[str]) -> bool:
    """Whether a command is to describe itself: by these words, which absl's own programs understand."""
    return not {"--help", "-h", "--helpfull", "--helpshort"}.isdisjoint(argv)


def read_flags(command: str, fv: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Reads flags into `fv` and returns what is no flag.

    Raises:
      InputError: an unknown flag or a wrong value.
    """
    try:
        return list(fv([command, *argv]))[1:]
    except flags.Error as error:
        raise InputError(str(error), f"flags of `{command}`", f"See {command} --help.") from error


def read_only_flags(command: str, fv: flags.FlagValues, argv: Sequence[str]) -> None:
    """Reads flags into `fv`, of a command that takes nothing else.

    Raises:
      InputError: an unknown flag, a wrong value, or something that is no flag.
    """
    rest = read_flags(command, fv, argv)
    if rest:
        named = "model" in fv and not fv.model
        expected = f"--model={rest[0]}" if named else "flags only"
        raise InputError(" ".join(map(repr, rest)), expected, f"See {command} --help.")


def flag_value(name: str, text: str, read: Callable[[str], _Value]) -> _Value:
    """What the text of a flag means.

    Raises:
      InputError: as `read`, with the flag's name.
    """
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"--{name}={text}", error.expected, error.hint) from error


def refuse_empty(fv: flags.FlagValues, *names: str) -> None:
    """Refuses flags that are given with nothing, which would else count as not given.

    Raises:
      InputError: one is.
    """
    for name in names:
        if fv[name].value == "":
            raise InputError(
                f"--{name}= with nothing", f"--{name}={name.upper()}, or none", "An unset variable, perhaps."
            )


def step_timeout_s(text: str) -> float:
    """Seconds of `--step_timeout`.

    Raises:
      InputError: no time, or none at all.
    """
    seconds: float = flag_value("step_timeout", text, parse_seconds)
    if not seconds:
        raise InputError(f"--step_timeout={text}", "more than 0 s")
    return seconds


def check_addresses(name: str, addresses: Iterable[str]) -> None:
    """Refuses what can be no worker's address, before anything is loaded.

    Raises:
      InputError: one is not "host:port".
    """
    for address in addresses:
        flag_value(name, address, split_address)


def describe_flags(first_line: str, fv: flags.FlagValues, last_line: str = EXIT_CODES) -> str:
    """All flags with their defaults, between a line on the command and a last one."""
    lines = [f"{first_line} Flags:"]
    for name in fv:
        flag = fv[name]
        default = "" if flag.default in (None, "", [], False, 0, 0.0) else f" (default: {flag.default})"
        text = str(flag.help).partition(";\n")[0]  # absl adds a line of its own to that of repeated flags
        lines.append(f"  --{name:<14} {text}{default}")
    return "\n".join([*lines, last_line]) + "\n"


def model_flags(fv: flags.FlagValues, *, own: str = "the model's own", inference: str) -> None:
    """Defines what, beside its name, says how a model is built and read.

    Args:
      fv: gets them.
      own: whose batch is the default one.
      inference: what is done without training.
    """
    repeated = flags.DEFINE_multi_string
    flags.DEFINE_integer("batch", None, f"Examples in one step; by default {own}.", 1, flag_values=fv)
    repeated("param", [], "NAME=VALUE, passed to the zoo's or your function. Repeatable.", flag_values=fv)
    repeated("fetch", [], "Graph files: an op a step must run; SavedModels: the signature. Repeatable.", flag_values=fv)
    flags.DEFINE_bool("inference", False, f"Keras models: {inference} instead of the training step.", flag_values=fv)


def output_file(fv: flags.FlagValues, example: str, hint: str) -> Path:
    """The file that --output names, known to be in a directory before anything takes long.

    Args:
      fv: the flags.
      example: of a file's name.
      hint: what the file is for.

    Raises:
      InputError: there is no --output, it is a directory, or its directory does not exist or takes no files.
    """
    if not fv.output:
        raise InputError("no --output", f"--output={example}", hint)
    output = Path(fv.output)
    if output.is_dir():
        raise InputError(f"--output={fv.output}, which is a directory", f"a file, such as {output / example}")
    if not output.parent.is_dir():
        raise InputError(f"--output={fv.output}", f"a file in a directory that exists; {output.parent} does not")
    _check_takes_files(f"--output={fv.output}", output.parent)
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
        raise InputError(f"--{name}= with nothing", f"--{name}=DIRECTORY, or none", "An unset variable, perhaps.")
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


def pairs(flag: str, texts: Iterable[str], form: str, *, first: bool = False) -> list[tuple[str, str]]:
    """Splits "left=right" at the last "=", or at the first.

    Raises:
      InputError: there is no "=", or nothing on one of its sides.
    """
    out = []
    for text in texts:
        left, _, right = text.partition("=") if first else text.rpartition("=")
        if not left or not right:
            raise InputError(f"--{flag}={text}", f"--{flag}={form}")
        out.append((left, right))
    return out


def once(flag: str, given: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Pairs of a flag that says one thing of each left side.

    Raises:
      InputError: two of one left side differ.
    """
    out: dict[str, str] = {}
    for left, right in given:
        if out.setdefault(left, right) != right:
            raise InputError(f"--{flag}={left}={out[left]} and --{flag}={left}={right}", "one of the two")
    return out


def model_params(fv: flags.FlagValues) -> Mapping[str, str]:
    """What `--param=NAME=VALUE` says, by name.

    Raises:
      InputError: one that is not of that form, or two of one name that differ.
    """
    return once("param", pairs("param", fv.param, "NAME=VALUE", first=True))
