"""Modules of the user, which are found from the directory the command runs in, and `models`, which may be ours."""

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

_ZOO = "models"
_OF_THE_ZOO = "zoo_facts.json"  # a package of the same name may well have a zoo.py


def zoo_names() -> tuple[str, ...]:
    """The zoo's models; none where another package hides it."""
    return () if _hiding() else tuple(zoo().names())


def zoo() -> ModuleType:
    """The module `tfplace_zoo.zoo` that comes with tfplace.

    Raises:
      SourceError: it is not there, or another package of that name is found first.
    """
    hiding = _hiding()
    if hiding:
        raise SourceError(
            f"a package `{_ZOO}` at {hiding}, which hides the zoo's",
            f"the package `{_ZOO}` that comes with tfplace, for models by name",
            "Give that package another name, or run `tfplace` without its directory in PYTHONPATH.",
        )
    return importlib.import_module(f"{_ZOO}.zoo")


def check_module(module: str) -> None:
    """Refuses a module that is not there, without loading anything.

    Raises:
      SourceError: there is none of that name.
    """
    top = module.partition(".")[0]
    if _is_here(module):
        return
    if top == _ZOO and (folder := _folder(_spec(_ZOO))) is not None and not _hiding():
        there = _is_in(folder.parent, module)
    elif Path(top, "__init__.py").is_file():
        there = False  # a package elsewhere may make modules as it is loaded; one of the user's own has files
    else:
        there = _spec(top) is not None or top in sys.modules
    if not there:
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
            "a placer as in docs/own_placer.md",
            f"See {error_location(error)}.",
        ) from error


def _missing(module: str) -> SourceError:
    """What to say of a module that is not there."""
    return SourceError(
        f"module {module!r}, which cannot be found",
        "an importable module",
        f"It is looked for in {Path.cwd()}, then where Python looks.",
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
    if module.partition(".")[0] == _ZOO and _is_here(module) and not _comes_from_here(_spec(_ZOO)):
        _load_own_models()
    return importlib.import_module(module)


def _load_own_models() -> None:
    """Has `models` mean the package of this directory, also if it has no __init__.py, which Python would put last.

    Modules of the zoo that are in use stay as they are; those not loaded yet are hidden from now on.
    """
    for name in [name for name in sys.modules if name == _ZOO or name.startswith(f"{_ZOO}.")]:
        del sys.modules[name]
    spec = PathFinder.find_spec(_ZOO, [str(Path.cwd())])
    assert spec is not None  # it is here
    package = sys.modules[_ZOO] = importlib.util.module_from_spec(spec)
    if spec.loader is not None:
        spec.loader.exec_module(package)


def _is_here(module: str) -> bool:
    compiled = "." not in module and PathFinder.find_spec(module, [str(Path.cwd())]) is not None
    return compiled or _is_in(Path(), module)


def _comes_from_here(spec: ModuleSpec | None) -> bool:
    folder = _folder(spec)
    return folder is not None and folder.parent == Path.cwd()


def _is_in(folder: Path, module: str) -> bool:
    path = folder.joinpath(*module.split("."))
    return path.is_dir() or path.with_name(f"{path.name}.py").is_file()


def _hiding() -> Path | str:
    """Where a package `models` is that is not the zoo's; empty if the zoo's is found."""
    spec = _spec(_ZOO)
    folder = _folder(spec)
    if folder is not None and (folder / _OF_THE_ZOO).exists():
        return ""
    return folder or "an unknown place"


def _spec(top: str) -> ModuleSpec | None:
    """Of a package or module, which is not loaded for it."""
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # loaded without one, as __main__ is
        return None


def _folder(spec: ModuleSpec | None) -> Path | None:
    """Where a package's modules are; the file of a plain module."""
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if places:
        return Path(places[0]).resolve()
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None
