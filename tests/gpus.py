"""The first GPU in two halves, for tests and for programs that they start."""

import tensorflow as tf

HALF_MIB = 4096


def split_gpu() -> list[str]:
    """Splits it, before TensorFlow starts, without TF32; names of the halves, none if there is no GPU."""
    found = tf.config.list_physical_devices("GPU")
    if not found:
        return []
    halves = [tf.config.LogicalDeviceConfiguration(memory_limit=HALF_MIB) for _ in range(2)]
    tf.config.set_logical_device_configuration(found[0], halves)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return ["GPU:0", "GPU:1"]
