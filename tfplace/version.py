"""The version, in one place, and those of what results depend on."""

import importlib.metadata
import platform

VERSION = "0.1.0"

_DECIDE = ("numpy", "numba", "tensorflow")


def versions() -> dict[str, str]:
    """Of tfplace, Python and the packages that results depend on; loads none of them."""
    packages = {package: importlib.metadata.version(package) for package in _DECIDE}
    return {"tfplace": VERSION, "python": platform.python_version()} | packages
