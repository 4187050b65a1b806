"""What every test of a session shares, here and in `research/tests`: the environment, and fixtures for all.

TensorFlow reads the environment when it loads, so this is imported before anything that imports it. All tests of one
process share TensorFlow's context, whose devices are fixed at first use. So the one CPU is split into logical devices
before any test that may start TensorFlow: every test that is marked `tensorflow`, and all that follow one.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# With wider registers products are summed in another order, and a policy learns something else from the same seed.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import pytest

from tfplace.extraction import file_source
from tfplace.registry import PLACERS

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests interrupt themselves and others

NUM_LOGICAL_CPUS = 4


@pytest.fixture(scope="session")
def logical_cpus() -> list[str]:
    """Names of the logical CPU devices, "CPU:0" to "CPU:3"."""
    import tensorflow as tf

    physical = tf.config.list_physical_devices("CPU")[0]
    split = tf.config.get_logical_device_configuration(physical)
    if not split or len(split) != NUM_LOGICAL_CPUS:
        split = [tf.config.LogicalDeviceConfiguration() for _ in range(NUM_LOGICAL_CPUS)]
        tf.config.set_logical_device_configuration(physical, split)
    return [f"CPU:{i}" for i in range(len(tf.config.list_logical_devices("CPU")))]


@pytest.fixture(autouse=True)
def split_the_cpu(request: pytest.FixtureRequest) -> None:
    """Before TensorFlow fixes the number of devices."""
    if "tensorflow" in sys.modules or request.node.get_closest_marker("tensorflow"):
        request.getfixturevalue("logical_cpus")


@pytest.fixture(autouse=True, scope="session")
def one_process_that_reads_files() -> Iterator[None]:
    """Starting one takes seconds, so all tests that read graph files here share it."""
    own, reader = file_source.FileReader, file_source.FileReader()

    class Shared:
        not_shared = own

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            """It goes on."""

        def read(self, path: Path, **options: Any) -> Any:
            return reader.read(path.absolute(), **options)  # the process stays where it was started

    file_source.FileReader = Shared  # type: ignore[misc, assignment]
    yield
    file_source.FileReader = own  # type: ignore[misc]
    reader.__exit__(None, None, None)


@pytest.fixture(autouse=True, scope="module")
def graphs_of_this_file_alone() -> Iterator[None]:
    """TensorFlow keeps the gradient of every custom gradient that was traced, and with it the whole graph, for ever."""
    registered = set(_gradients())
    yield
    for name in {*_gradients()} - registered:
        if name.startswith("CustomGradient-"):
            del _gradients()[name]


@pytest.fixture(autouse=True, scope="module")
def objects_of_this_file_alone() -> Iterator[None]:
    """Placing a model looks for functions among all objects there are, and most of those were there before this file.

    With them it would take longer than all else, as a session of tests loads much. So they are frozen, and stay so. A
    test that needs the real `gc` gives it back with `real_gc`.
    """
    internals = sys.modules.get("tfplace.extraction.tf_internals")
    if internals is None:
        yield
        return
    gc.collect()
    gc.freeze()
    internals.gc = SimpleNamespace(get_freeze_count=lambda: 0, get_referrers=gc.get_referrers)  # type: ignore[attr-defined]
    yield
    internals.gc = gc  # type: ignore[attr-defined]


@pytest.fixture
def real_gc(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked for is looked for among all objects, whoever froze them."""
    monkeypatch.setattr("tfplace.extraction.tf_internals.gc", gc)


def _gradients() -> dict[str, Any]:
    ops = sys.modules.get("tensorflow.python.framework.ops")
    return {} if ops is None else ops.gradient_registry._registry


@pytest.fixture(autouse=True)
def placers_of_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds to the registry is gone after it."""
    for kept in ("_targets", "_objects"):
        monkeypatch.setattr(PLACERS, kept, dict(getattr(PLACERS, kept)))


@pytest.fixture(autouse=True)
def tensorflow_where_it_is_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests without the mark run first and on their own, and must not load TensorFlow."""
    before = "tensorflow" in sys.modules
    yield
    if not before and "tensorflow" in sys.modules and not request.node.get_closest_marker("tensorflow"):
        pytest.fail("this test loads TensorFlow: mark it `tensorflow`, or name its file in tests/conftest.py")
