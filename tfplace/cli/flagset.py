"""What commands with flags of their own share: reading them, and listing them."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags
from rich.console import Console

from tfplace.errors import InputError

_WIDTH = 120


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


def describe_flags(first_line: str, fv: flags.FlagValues) -> str:
    """All flags with their defaults, below a line on the command."""
    lines = [f"{first_line} Flags:"]
    for name in fv:
        flag = fv[name]
        default = "" if flag.default in (None, [], False, 0, 0.0) else f" (default: {flag.default})"
        lines.append(f"  --{name:<14} {str(flag.help).partition(';')[0]}{default}")
    lines.append("Exit codes: 0 done, 1 internal error, 2 bad input, 130 interrupted.")
    return "\n".join(lines) + "\n"
