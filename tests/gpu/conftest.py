"""Tests on a GPU, which is split into two logical devices: CUDA_VISIBLE_DEVICES=0 python -m pytest -m gpu tests/gpu"""

import pytest

HALF_MIB = 4096


@pytest.fixture(scope="session")
def logical_cpus() -> list[str]:
    """The one CPU, and the GPU in two halves; in the place of the fixture that splits the CPU for all other tests."""
    import tensorflow as tf

    physical = tf.config.list_physical_devices("GPU")
    if not physical:
        pytest.skip("needs a GPU, and CUDA_VISIBLE_DEVICES=0 in the environment")
    halves = [tf.config.LogicalDeviceConfiguration(memory_limit=HALF_MIB) for _ in range(2)]
    tf.config.set_logical_device_configuration(physical[0], halves)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return [f"CPU:{i}" for i in range(len(tf.config.list_logical_devices("CPU")))]


@pytest.fixture
def devices(logical_cpus) -> list[str]:
    return ["GPU:0", "GPU:1", *logical_cpus]
