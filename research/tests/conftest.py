"""The environment and the fixtures of `tests`, for the tests of research, all of which may load TensorFlow."""

from pathlib import Path

import pytest

from tests.session import (  # noqa: F401
    graphs_of_this_file_alone,
    logical_cpus,
    placers_of_this_test_alone,
    split_the_cpu,
)

HERE = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests."""
    if item.path.is_relative_to(HERE):
        item.add_marker("tensorflow")
