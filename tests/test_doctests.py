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


LOAD_TENSORFLOW = ("tfplace.extraction", "tfplace.execution", "tfplace.measurement")
MARKED = [
    pytest.param(name, marks=pytest.mark.tensorflow if name.startswith(LOAD_TENSORFLOW) else ())
    for name in WITH_EXAMPLES
]


@pytest.mark.parametrize("name", MARKED)
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted and not found.failed
