"""The `tfplace` command. See docs/reference/cli.md; nothing here loads TensorFlow before a model has to be built."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from tfplace.cli.console import UnreadError, complain

PLACED, INTERNAL, BAD_INPUT, INFEASIBLE, INTERRUPTED, UNREAD = 0, 1, 2, 3, 130, 141

HELP = """\
tfplace finds the fastest way to train a TensorFlow model on your devices.

For example: tfplace plan --model=inception_v3 --topology=4xP100 --budget=60s --out=out/inception_v3
"""

COMMANDS = {
    "plan": ("tfplace.cli.plan", "Find the fastest way to train a model on some devices, and whether it fits"),
    "place": ("tfplace.cli.place", "Find a device for every op of a model"),
    "compare": ("tfplace.cli.compare", "Compare placers on a model"),
    "report": ("tfplace.cli.report", "Rebuild or open the report of a plan or placement"),
    "extract": ("tfplace.cli.extract", "Save a model's graph, to place it without TensorFlow"),
    "memory": ("tfplace.cli.memory", "Predict how much memory of one device a step needs"),
    "profile": ("tfplace.cli.profile", "Measure the op times of models"),
    "calibrate": ("tfplace.cli.calibrate", "Measure devices and links, and write a topology file"),
    "topologies": ("tfplace.cli.listing", "List the topologies that come with tfplace"),
    "placers": ("tfplace.cli.listing", "List the placers"),
    "models": ("tfplace.cli.listing", "List the models that come with tfplace"),
    "worker": ("tfplace.cli.worker", "Run a TensorFlow worker, for measuring or for training over several hosts"),
}
"""Name -> module, and what the command does."""


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
    from click import UsageError
    from click.exceptions import Exit

    from tfplace.cli.click_options import PLACING_CODES, LazyGroup, told_option
    from tfplace.errors import InputError
    from tfplace.version import VERSION

    version = told_option(["--version"], lambda _: f"tfplace {VERSION}\n", "Show the version")
    group = LazyGroup(COMMANDS, name="tfplace", help=HELP, params=[version], epilog=PLACING_CODES)
    try:
        # Not `group.main`, which gives Ctrl-C and closed outputs meanings of its own.
        with group.make_context("tfplace", argv if argv and argv[0] != "help" else ["--help"]) as context:
            group.invoke(context)
    except Exit as end:
        return end.exit_code
    except UsageError as error:
        raise InputError(error.format_message(), "a command and its flags", "See tfplace --help.") from error
    return PLACED


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
