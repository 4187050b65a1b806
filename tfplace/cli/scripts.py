"""What the mains of scripts/ have in common: words that mean nothing are refused, and errors have no traceback."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

from tfplace.cli import INTERRUPTED
from tfplace.errors import InputError, TfplaceError

GOES_ON = "Stopped; the same command goes on."


@contextlib.contextmanager
def script(argv: Sequence[str] = (), *, stopped: str = GOES_ON) -> Iterator[None]:
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
