"""What Grappler refuses of a source, as the errors that `tfplace.extract` promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grappler_bridge.errors import GrapplerError, GrapplerInputError
from tfplace.errors import SourceError


@contextmanager
def grappler_refusals() -> Iterator[None]:
    """Grappler's errors inside become a `SourceError`.

    Raises:
      SourceError: a graph that Grappler would crash on, or that it gave up.
    """
    try:
        yield
    except GrapplerInputError as error:
        raise SourceError(error.received, error.expected, error.hint) from error
    except GrapplerError as error:
        raise SourceError(f"a graph that cannot be read ({error})", "a graph that TensorFlow can import") from error
