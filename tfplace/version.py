"""The version, in one place, and those of what results depend on."""

import functools
import importlib.metadata
import platform

VERSION = "0.2.0.dev0"

_DECIDE = (
    *("tensorflow", "keras", "tf-keras", "tensorflow-probability", "dm-sonnet"),
    *("numpy", "numba", "scipy", "pymetis", "pyscotch", "ortools"),
)


def versions() -> dict[str, str]:
    """Of tfplace, Python and the packages that results depend on, as far as they are installed; loads none of them."""
    packages = {package: _installed(package) for package in _DECIDE}
    known = {package: version for package, version in packages.items() if version is not None}
    return {"tfplace": VERSION, "python": platform.python_version()} | known


@functools.cache
def _installed(package: str) -> str | None:
    """A package's version; read once in a process, which takes milliseconds, as every placement has all of them."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # of an extra
        return None
