"""What a command refuses, as the error that it was told by."""

import pytest

from tfplace import cli
from tfplace.cli import BAD_INPUT, main


def refused(argv):
    """The error behind a message; the command ends with the exit code of bad input, and writes no result."""
    errors, explain = [], cli._explain
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cli, "_explain", lambda error: errors.append(error) or explain(error))
        assert main(argv) == BAD_INPUT
    return errors[0]


def assert_refused(argv, **fields):
    """Its `received`, `expected` and `hint` say so."""
    error = refused(argv)
    for field, text in fields.items():
        assert text in getattr(error, field), field
