"""What the commands' flags share: reading them, listing them, and checks of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from absl import flags
from rich.console import Console

from tfplace.errors import InputError

_WIDTH = 120

EXIT_CODES = "Exit codes: 0 done, 1 internal error, 2 bad input, 130 interrupted."


def wide_console() -> Console:
    """For tables: as wide as the terminal, or wide enough for every column where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


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
        raise InputError(" ".join(map(repr, rest)), "flags only", f"See {command} --help.")


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
    flags.DEFINE_integer("batch", None, f"Examples in one step; by default {own}.", flag_values=fv)
    repeated("param", [], "NAME=VALUE, passed to the zoo's or your function. Repeatable.", flag_values=fv)
    repeated("fetch", [], "Graph files: name of an op a step must run. Repeatable.", flag_values=fv)
    flags.DEFINE_bool("inference", False, f"Keras models: {inference} instead of the training step.", flag_values=fv)


def output_file(fv: flags.FlagValues, example: str, hint: str) -> Path:
    """The file that --output names, known to be in a directory before anything takes long.

    Args:
      fv: the flags.
      example: of a file's name.
      hint: what the file is for.

    Raises:
      InputError: there is no --output, it is a directory, or its directory does not exist.
    """
    if not fv.output:
        raise InputError("no --output", f"--output={example}", hint)
    output = Path(fv.output)
    if output.is_dir():
        raise InputError(f"--output={fv.output}, which is a directory", f"a file, such as {output / example}")
    if not output.parent.is_dir():
        raise InputError(f"--output={fv.output}", f"a file in a directory that exists; {output.parent} does not")
    return output


def output_directory(fv: flags.FlagValues) -> Path | None:
    """The directory that --out names, made if it does not exist; None without the flag.

    Raises:
      InputError: it cannot be made.
    """
    if not fv.out:
        return None
    out = Path(fv.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out={fv.out} ({error.strerror})", "a directory that exists or can be made") from error
    return out


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
