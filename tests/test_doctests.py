import doctest
import importlib
from pathlib import Path

import pytest

import tfplace

HERE = Path(tfplace.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
    for path in HERE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted and not found.failed
