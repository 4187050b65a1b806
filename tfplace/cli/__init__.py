"""The `tfplace` command. docs/cli.md describes it; nothing here loads TensorFlow before a model has to be built."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

from tfplace.cli.console import UnreadError, complain, say

PLACED, INTERNAL, BAD_INPUT, INFEASIBLE, INTERRUPTED, UNREAD = 0, 1, 2, 3, 130, 141

HELP = """\
tfplace decides which device every op of a TensorFlow model runs on.

  tfplace place --model=MODEL [--topology=NAME|FILE] [--placer=auto] [--budget=30s] [--out=DIR] [--json] ...
  tfplace compare --model=MODEL [--topology=NAME|FILE] [--placers=auto,heft,...] [--budget=30s] [--out=DIR] ...
  tfplace extract MODEL --output=FILE.npz    read a model's graph once, to place it without TensorFlow
  tfplace profile MODEL... --output=FILE     measure how long models' ops take
  tfplace calibrate --output=FILE            measure devices and links, as a topology
  tfplace topologies      list the topologies that come with tfplace
  tfplace placers         list the placers
  tfplace models          list the models that come with tfplace
  tfplace worker          run a TensorFlow worker for measuring, here or on another machine
  tfplace COMMAND --help  all flags of a command
  tfplace --version

For example: tfplace place --model=inception_v3 --topology=4xP100 --budget=60s --out=out/inception_v3

Exit codes: 0 placed, 1 internal error, 2 bad input, 3 no placement fits, 130 interrupted, 141 unread.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and gives back its exit code.

    Args:
      argv: command and flags, by default those of the process.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(argv)
    except KeyboardInterrupt as stop:
        complain(str(stop) or "interrupted before there was a placement")
        return INTERRUPTED
    except UnreadError:
        return UNREAD
    except Exception as error:
        return _explain(error)


def _run(argv: list[str]) -> int:
    from tfplace.errors import UnknownNameError

    command, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if command in ("--help", "-h", "help"):
        say(HELP)
    elif command == "--version":
        from tfplace import __version__

        say(f"tfplace {__version__}\n")
    elif command in _COMMANDS:
        return _COMMANDS[command](rest)
    else:
        raise UnknownNameError("command", command, _COMMANDS)
    return PLACED


def _place(argv: list[str]) -> int:
    from tfplace.cli.place import place_command

    place_command(argv)
    return PLACED


def _compare(argv: list[str]) -> int:
    from tfplace.cli.compare import compare_command

    compare_command(argv)
    return PLACED


def _worker(argv: list[str]) -> int:
    from tfplace.cli.worker import worker_command

    worker_command(argv)
    return PLACED


def _extract(argv: list[str]) -> int:
    from tfplace.cli.extract import extract_command

    extract_command(argv)
    return PLACED


def _profile(argv: list[str]) -> int:
    from tfplace.cli.profile import profile_command

    profile_command(argv)
    return PLACED


def _calibrate(argv: list[str]) -> int:
    from tfplace.cli.calibrate import calibrate_command

    calibrate_command(argv)
    return PLACED


def _listing(what: str) -> Callable[[list[str]], int]:
    def run(argv: list[str]) -> int:
        from tfplace.cli import listing

        listing.list_command(what, argv)
        return PLACED

    return run


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "place": _place,
    "compare": _compare,
    "extract": _extract,
    "profile": _profile,
    "calibrate": _calibrate,
    "worker": _worker,
    **{what: _listing(what) for what in ("models", "placers", "topologies")},
}


def _explain(error: Exception) -> int:
    """The message alone for errors that are the input's; a traceback for those that are ours."""
    from tfplace.errors import InfeasibleError, InputError

    if isinstance(error, InfeasibleError):
        complain(str(error))
        return INFEASIBLE
    if isinstance(error, InputError):
        complain(str(error))
        return BAD_INPUT
    if isinstance(error, OSError) and error.filename is not None:  # such as a directory that may not be looked into
        complain(f"received {error.filename!r} ({error.strerror}); expected a path that can be reached.")
        return BAD_INPUT
    complain("internal error:\n" + "".join(traceback.format_exception(error)))
    return INTERNAL
