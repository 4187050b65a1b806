"""Tests on a GPU, which is split into two logical devices: CUDA_VISIBLE_DEVICES=0 python -m pytest -m gpu tests/gpu"""

import pytest


@pytest.fixture(scope="session")
def logical_cpus() -> list[str]:
    """The one CPU, and the GPU in two halves; in the place of the fixture that splits the CPU for all other tests."""
    import tensorflow as tf

    from tests.gpus import split_gpu

    if not split_gpu():
        pytest.skip("needs a GPU, and CUDA_VISIBLE_DEVICES=0 in the environment")
    return [f"CPU:{i}" for i in range(len(tf.config.list_logical_devices("CPU")))]


@pytest.fixture
def devices(logical_cpus) -> list[str]:
    return ["GPU:0", "GPU:1", *logical_cpus]
