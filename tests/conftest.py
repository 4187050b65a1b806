"""Which tests load TensorFlow, and that the others run first; what all share is in `tests.session`."""

from pathlib import Path

import pytest

from tests.session import (  # noqa: F401
    graphs_of_this_file_alone,
    logical_cpus,
    objects_of_this_file_alone,
    one_process_that_reads_files,
    placers_of_this_test_alone,
    real_gc,
    split_the_cpu,
    tensorflow_where_it_is_marked,
)

TESTS = Path(__file__).parent
LOAD_TENSORFLOW = {
    "cli",
    "conformance/test_policies.py",
    "e2e",
    "execution",
    "extraction",
    "gpu",
    "grappler_bridge",
    "keras",
    "learned",
    "measurement",
    "pretraining",
    "report/test_step_memory.py",
    "search/test_planning.py",
    "search/test_remedies.py",
    "search/test_symmetric.py",
    "simulation/test_buffers.py",
    "transforms",
    "zoo",
}
"""Directories and files; single tests elsewhere are marked one by one."""
LOAD_NONE = {
    "cli/test_compare.py",
    "cli/test_init.py",
    "cli/test_objective.py",
    "learned/training/test_baselines.py",
    "learned/training/test_features.py",
    "learned/training/test_graph_inputs.py",
    "learned/training/test_learned_move_selector.py",
    "learned/training/test_sweep_state.py",
    "measurement/test_detect.py",
    "measurement/test_presets.py",
    "measurement/test_sampling.py",
}
"""Files in those directories that do not load it."""


def _loads_tensorflow(path: Path) -> bool:
    name = path.relative_to(TESTS).as_posix()
    return name not in LOAD_NONE and (name in LOAD_TENSORFLOW or name.partition("/")[0] in LOAD_TENSORFLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing a file of tests may load TensorFlow, so those without a test to run are not imported."""
    if "not tensorflow" not in config.option.markexpr or not collection_path.is_relative_to(TESTS):
        return None
    if collection_path.is_dir():
        name = collection_path.relative_to(TESTS).as_posix()
        return True if name in LOAD_TENSORFLOW and not any(file.startswith(f"{name}/") for file in LOAD_NONE) else None
    return True if collection_path.name.startswith("test_") and _loads_tensorflow(collection_path) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks what loads TensorFlow."""
    if _loads_tensorflow(item.path):
        item.add_marker("tensorflow")


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the order of the files, which pytest-xdist would change to that of their sizes."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What does not load TensorFlow, and so is quick to fail, runs first; files stay whole."""
    with_it = {item.path for item in items if item.get_closest_marker("tensorflow")}
    items.sort(key=lambda item: item.path in with_it)
