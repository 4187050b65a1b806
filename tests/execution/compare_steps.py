"""Runs each model of step_models.py plainly and placed at random, and prints what differs, one JSON line a model.

A program of its own because TensorFlow reads TF_ENABLE_ONEDNN_OPTS once, when it loads.

    TF_ENABLE_ONEDNN_OPTS=0 python compare_steps.py exact inception_like lstm_while

`exact` and `default` are on four logical CPU devices, `gpu` on two halves of a GPU and the CPU, `halves` without it.
"""

import itertools
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
from gpus import split_gpu  # noqa: E402

if sys.argv[1] in ("gpu", "halves"):
    DEVICES = [*split_gpu(), *(["CPU:0"] if sys.argv[1] == "gpu" else [])]
else:
    DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in DEVICES]
    )

import step_models  # noqa: E402
from placing import random_placement  # noqa: E402

import tfplace  # noqa: E402


def flat(value):
    return [np.asarray(leaf) for leaf in tf.nest.flatten(value)]


def tensors(batch):
    return tf.nest.map_structure(tf.constant, batch)


def call(source, step, batch):
    """A Keras step takes the batch as one argument, a function its parts as arguments."""
    return (
        step(*tensors(batch)) if isinstance(source, tf.types.experimental.PolymorphicFunction) else step(tensors(batch))
    )


def captured_variables(concrete):
    """In the order of the trace; `graph.variables` comes in any order."""
    by_handle = {id(v.handle): v for v in concrete.graph.variables}
    return [by_handle[id(t)] for t in concrete.captured_inputs if id(t) in by_handle]


def train_plain(name):
    source, batches = step_models.build(name)
    graph = tfplace.extract(source, batches[0])
    step = graph.origin.flat.concrete
    logs = [flat(call(source, step, batch)) for batch in batches]
    return logs, [v.numpy() for v in captured_variables(step)]


def train_placed(name):
    """Half of the steps with one random placement, half with another; counts the traces of the second."""
    source, batches = step_models.build(name)
    graph = tfplace.extract(source, batches[0])
    held = captured_variables(graph.origin.flat.concrete)
    start = time.perf_counter()
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    apply_s = time.perf_counter() - start
    # tf_keras draws dropout from kernels that hold the random state, and a new function has new kernels.
    half = len(batches) // 2
    logs = [flat(call(source, placed, batch)) for batch in batches[:half]]
    actual = [placed.actual()]
    start = time.perf_counter()
    if name != "tf_keras_cnn":
        placed.replace(random_placement(graph, DEVICES, seed=1))
    replace_s = time.perf_counter() - start
    logs += [flat(call(source, placed, batch)) for batch in batches[half:]]
    actual.append(placed.actual())
    where = {v.handle.device for v in held}
    placed.restore()
    home = {v.handle.device for v in held}
    return logs, [v.numpy() for v in held], actual, (len(where), len(home)), (apply_s, replace_s)


def compare(name):
    logs, variables = train_plain(name)
    placed_logs, placed_variables, actual, devices, seconds = train_placed(name)
    plain = [*itertools.chain.from_iterable(logs), *variables]
    placed = [*itertools.chain.from_iterable(placed_logs), *placed_variables]
    pairs = list(zip(plain, placed, strict=True))
    numbers = [(a.astype(float), b.astype(float)) for a, b in pairs if a.dtype.kind == "f"]
    return {
        "model": name,
        "variables": len(variables),
        "steps": len(logs),
        "different": sum(a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes() for a, b in pairs),
        "largest": max(float(np.max(np.abs(a - b), initial=0)) for a, b in numbers),
        "finite": all(bool(np.all(np.isfinite(b))) for _, b in numbers),
        "moved": [[m.op, m.reason] for a in actual for m in a.moved if not m.reason.startswith("control flow")],
        "control_flow": sum(m.reason.startswith("control flow") for a in actual for m in a.moved),
        "devices": [len(a.counts) for a in actual],
        "variable_devices": devices,
        "seconds": seconds,
    }


def main():
    warnings.simplefilter("ignore")
    mode, *names = sys.argv[1:]
    if mode == "exact":
        # Grappler fuses ops differently with and without devices; a placed program never runs it.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    for name in names or step_models.CASES:
        sys.stdout.write(json.dumps(compare(name)) + "\n")


if __name__ == "__main__":
    main()
