import doctest
import importlib
import pkgutil

import pytest

import tfplace

WITH_TENSORFLOW = ("tfplace.extraction", "tfplace.execution", "tfplace.keras", "tfplace.measurement")
MODULES = [
    m.name for m in pkgutil.walk_packages(tfplace.__path__, "tfplace.") if not m.name.startswith(WITH_TENSORFLOW)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if str(error.name).startswith("tfplace"):
            raise
        pytest.skip(f"{name} needs {error.name}")
    assert doctest.testmod(module).failed == 0


def test_there_are_examples():
    assert (
        sum(doctest.testmod(importlib.import_module(f"tfplace.{m}")).attempted for m in ("units", "search.budget")) > 5
    )
