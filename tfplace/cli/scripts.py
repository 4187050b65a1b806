"""What the mains of scripts/ have in common: words that mean nothing are refused, and errors have no traceback."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from absl import flags

from tfplace.cli import INTERRUPTED
from tfplace.errors import InputError, TfplaceError
from tfplace.option_fields import Options

RESUMABLE = "Stopped. Run the same command again to resume."


@contextlib.contextmanager
def script(argv: Sequence[str] = (), *, stopped: str = RESUMABLE) -> Iterator[None]:
    """What a script does.

    Args:
      argv: its name, and words that are no flags; for a script to which they mean nothing.
      stopped: what to say after Ctrl-C, unless the interrupt says more.

    Raises:
      SystemExit: with the message of an error, or 130 after Ctrl-C.
    """
    try:
        if words := argv[1:]:
            raise InputError(" ".join(map(repr, words)), "flags only", f"See {argv[0]} --help.")
        yield
    except TfplaceError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"{str(stop) or stopped}\n")
        raise SystemExit(INTERRUPTED) from None


def define_flags(options: type[Options]) -> None:
    """Defines the flags of a command for a script; their texts are read by the command."""
    script = {"module_name": sys.argv[0]}  # whose --help lists them
    for one in options.declared().values():
        if one.flag is None:
            continue
        if one.spec.kind is bool:
            flags.DEFINE_bool(one.flag, one.default, one.text, **script)
        elif one.spec.repeated:
            flags.DEFINE_multi_string(one.flag, [], one.text, **script)
        else:
            flags.DEFINE_string(one.flag, None, one.text, **script)


def given_flags(options: type[Options]) -> list[str]:
    """What was given of them, as arguments of the command."""
    names = [one.flag for one in options.declared().values() if one.flag]
    found = [flags.FLAGS[name] for name in names if flags.FLAGS[name].present]
    return [text for flag in found for text in flag.serialize().split("\n")]


def extracted(folder: str, name: str) -> Path:
    """The file of a graph in a directory of them.

    Raises:
      InputError: there is none.
    """
    path = Path(folder) / f"{name}.npz"
    if not path.exists():
        maker = "scripts/make_families.py and scripts/make_zoo.py --graphs make graphs"
        raise InputError(f"no {path}", "an extracted graph", f"{maker}.")
    return path.absolute()  # workers may be elsewhere


def command(name: str, without: Container[str]) -> str:
    """The command of the script that runs, with the flags given to it.

    Args:
      name: the script's, from the top of the repository.
      without: names of flags that tell only where files are.
    """
    own = flags.FLAGS.flags_by_module_dict()[sys.argv[0]]
    return " ".join([f"python {name}", *(given(f) for f in own if f.present and f.name not in without)])


def given(flag: flags.Flag) -> str:
    """As it is on a command line."""
    return " ".join(flag.serialize().split("\n"))
