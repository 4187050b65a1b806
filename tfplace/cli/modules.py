"""Modules of the user, which are found from the directory the command runs in first."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from tfplace.core.placer import Placer
from tfplace.errors import SourceError, TfplaceError, describe_error, error_location
from tfplace.registry import PLACERS


def check_module(module: str) -> None:
    """Refuses a module that is not there, without loading anything.

    Raises:
      SourceError: there is none of that name.
    """
    top = module.partition(".")[0]
    if _is_here(module):
        return
    if Path(top, "__init__.py").is_file():
        raise _missing(module)  # a package elsewhere may make modules as it is loaded; one of the user's own has files
    if _spec(top) is None and top not in sys.modules:
        raise _missing(module)


def find_placer(name: str) -> type[Placer]:
    """A placer by its name, or one of the user's own by "module:class".

    Raises:
      InputError: there is none.
    """
    module, colon, _ = name.partition(":")
    if colon and name in PLACERS:
        check_module(module)
        load_module(module)
    found: type[Placer] = PLACERS[name]
    return found


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Has what fails in a placer of the user's be the user's error.

    Raises:
      SourceError: instead of what is no error of tfplace's, if the placer's name is a "module:class".
    """
    try:
        yield
    except TfplaceError:
        raise
    except (Exception, SystemExit) as error:
        if ":" not in name:
            raise
        raise SourceError(
            f"placer {name!r}, which failed: {describe_error(error)}",
            "a placer as in docs/how_to/own_placer.md",
            f"See {error_location(error)}.",
        ) from error


def _missing(module: str) -> SourceError:
    """What to say of a module that is not there."""
    return SourceError(
        f"module {module!r}, which cannot be found",
        "an importable module",
        f"tfplace looks in {Path.cwd()}, then on Python's path.",
    )


def load_module(module: str) -> ModuleType:
    """Imports a module of the user's, those of the directory the command runs in first.

    Raises:
      SourceError: there is none of that name, or it fails.
    """
    try:
        return _imported(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _unimportable(module, error) from error
        raise _missing(module) from error
    except (Exception, SystemExit) as error:
        raise _unimportable(module, error) from error


def _unimportable(module: str, error: BaseException) -> SourceError:
    return SourceError(
        f"module {module!r}, which fails when it is imported: {describe_error(error)}",
        "an importable module",
        f"`python -c 'import {module}'` shows where.",
    )


def _imported(module: str) -> ModuleType:
    if sys.path[0] not in ("", str(Path.cwd())):
        sys.path.insert(0, "")
    return importlib.import_module(module)


def _is_here(module: str) -> bool:
    compiled = "." not in module and PathFinder.find_spec(module, [str(Path.cwd())]) is not None
    return compiled or _is_in(Path(), module)


def _is_in(folder: Path, module: str) -> bool:
    path = folder.joinpath(*module.split("."))
    return path.is_dir() or path.with_name(f"{path.name}.py").is_file()


def _spec(top: str) -> ModuleSpec | None:
    """Of a package or module, which is not loaded for it."""
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # loaded without one, as __main__ is
        return None
