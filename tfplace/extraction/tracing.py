"""Tracing what users wrote: whatever their code raises is theirs to mend, and is said with its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfplace.errors import SourceError, TfplaceError, describe_error, error_location

_COLORS = re.compile("\x1b\\[[0-9;]*m")
_BINDING = "Binding inputs to tf.function failed"


@contextmanager
def tracing(what: str) -> Iterator[None]:
    """Has errors of the code that is traced inside be the user's.

    Args:
      what: is traced, and with which data.

    Raises:
      SourceError: the code raised, or would end the program.
    """
    try:
        yield
    except TfplaceError:
        raise
    except (Exception, SystemExit) as error:
        raise SourceError(
            f"{what}, which fails ({short(describe_error(error), 300)})",
            "a step that TensorFlow can trace, and the data that it takes",
            f"See {error_location(error)}.",
        ) from error


def is_binding(error: BaseException) -> bool:
    """Whether a `tf.function` was given other arguments than it takes, so that nothing of it has run."""
    return isinstance(error, TypeError) and str(error).startswith(_BINDING)


def arguments_of(function: Any) -> str:
    """What a `tf.function` takes, and as which batch it is given."""
    kinds = function.function_type.parameters.values()
    names = [p.name for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in kinds):
        return f"a tuple of its arguments {function.function_type}"
    if not names:
        return "no batch, as it takes no arguments"
    if len(names) == 1:
        return f"its one argument {names[0]!r} as it is or, if that is a tuple, in a tuple of one: ({names[0]},)"
    return f"a tuple of its {len(names)} arguments: ({', '.join(names)})"


def short(value: Any, limit: int = 200) -> str:
    """Text of a value on one line, cut where it is long, without the colors that Keras gives it."""
    text = " ".join(_COLORS.sub("", str(value)).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
