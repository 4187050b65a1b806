"""The version, in one place, and those of what results depend on."""

import contextlib
import importlib.metadata
import platform

VERSION = "0.2.0.dev0"

_DECIDE = (
    *("tensorflow", "keras", "tf-keras", "tensorflow-probability", "dm-sonnet"),
    *("numpy", "numba", "scipy", "pymetis", "pyscotch", "ortools"),
)


def versions() -> dict[str, str]:
    """Of tfplace, Python and the packages that results depend on, as far as they are installed; loads none of them."""
    found = {"tfplace": VERSION, "python": platform.python_version()}
    for package in _DECIDE:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of an extra
            found[package] = importlib.metadata.version(package)
    return found
