"""A step of `fit` on two workers, beside the same step in a session on them, on local devices, and simulated.

    python -m research.benchmarks.fit_over_hosts       # writes research/data/fit_over_hosts.json; some five minutes

Two workers of this machine, one core each, are calibrated. Each model's ops are timed on one worker, and its step is
placed on one worker and, by a search, on both. `fit` runs 60 steps of each placement, three times; told is the median
of a batch from its begin to its end, logs fetched, and of the runs the least and the most. Of a session it is the
median that `MeasuredEvaluator` takes. The machine should do nothing else meanwhile; its loads are told.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.version import versions

BATCH, STEPS, RUNS, WARM_UP = 64, 60, 3, 10

SIZES = (2**10, 2**14, 2**18, 2**22)
"""Bytes of the transfers that are measured: the models send no more at once."""


def dense_towers():
    """Two branches that share nothing but their ends."""
    import keras
    from keras import layers

    inputs = keras.Input((512,))
    ends = []
    for _ in range(2):
        x = inputs
        for _ in range(4):
            x = layers.Dense(768, activation="relu")(x)
        ends.append(x)
    return keras.Model(inputs, layers.Dense(10)(layers.Concatenate()(ends)), name="dense_towers"), (512,)


def small_cnn():
    """Two branches of convolutions."""
    import keras
    from keras import layers

    inputs = keras.Input((32, 32, 3))
    ends = []
    for kernel in (3, 5):
        x = inputs
        for filters in (16, 32):
            x = layers.Conv2D(filters, kernel, padding="same", activation="relu")(x)
            x = layers.BatchNormalization()(layers.MaxPooling2D()(x))
        ends.append(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(10)(layers.Concatenate()(ends)), name="small_cnn"), (32, 32, 3)


def measure(_):
    import tensorflow as tf

    from tfplace.execution import hosts
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.calibration.calibrate import calibrate

    tf.config.threading.set_intra_op_parallelism_threads(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    load = [os.getloadavg()[0]]
    with Cluster.start(2) as cluster:
        hosts.listen_for(cluster.addresses)
        topology = calibrate(cluster, sizes=SIZES).topology
        rows = [row for make in (dense_towers, small_cnn) for row in _rows(make, topology, cluster)]
    return {
        "command": " ".join(["python -m research.benchmarks.fit_over_hosts", *sys.argv[1:]]),
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores",
        "load": [*load, os.getloadavg()[0]],
        "links": [dataclasses.asdict(link) for link in topology.links],
        "rows": rows,
    }


def _rows(make, topology, cluster):
    import keras
    import numpy as np

    import tfplace
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.calibration.profile import profile_graph
    from tfplace.measurement.protocol.measured import MeasuredEvaluator

    keras.utils.set_random_seed(0)
    model, shape = make()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH * STEPS, *shape), np.float32), rng.integers(10, size=BATCH * STEPS)
    batch = x[:BATCH], y[:BATCH]
    graph = tfplace.extract(model, batch)
    outcome = profile_graph(graph, lambda: Cluster.start(1, inter_op=1), topology.devices[0].model, batch=batch)
    problem = tfplace.formulate(graph, topology, profile=outcome.profile)
    for name, placer in (("one worker", "single"), ("two workers", "local_search")):
        placement = tfplace.place(problem, placer=placer, budget="2000 evaluations", progress=False)
        evaluator = MeasuredEvaluator(problem, cluster, batch=batch, reference=None)
        sessions, fits, here = [], [], []
        for _ in range(RUNS):
            sessions.append(evaluator(_units(problem, placement)).step_s)
            fits.append(_fit(model, x, y, placement, cluster.addresses))
            here.append(_fit(model, x, y, placement, None))
        evaluator.close()
        row = {"model": model.name, "placement": name, "ops": graph.num_ops, "simulated_s": placement.cost.step_s}
        yield row | {"fit_s": fits, "session_s": sessions, "local_s": here}


def _units(problem, placement):
    import numpy as np

    return np.array([placement.op_device[int(min(ops))] for ops in problem.grouping.members], np.int32)


def _fit(model, x, y, placement, cluster):
    """Median seconds of a batch of `fit`."""
    import keras

    from tfplace.keras import PlacementCallback

    began, took = [], []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda *_, **__: began.append(time.perf_counter()),
        on_train_batch_end=lambda *_, **__: took.append(time.perf_counter() - began[-1]),
    )
    call = PlacementCallback(placement=placement, cluster=cluster, verbose=0)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[clock, call])
    return statistics.median(took[WARM_UP:])


def text(found):
    """The table."""
    head = ("model", "on", "fit on workers", "session on workers", "simulated", "fit on local devices")
    rows = [[row["model"], row["placement"], *map(_ms, _seconds(row))] for row in found["rows"]]
    return table(head, rows)


def _seconds(row):
    return row["fit_s"], row["session_s"], [row["simulated_s"]], row["local_s"]


def _ms(seconds):
    low, middle, high = (f(seconds) * 1e3 for f in (min, statistics.median, max))
    return f"{middle:.1f} ms" if len(seconds) == 1 else f"{middle:.1f} ms ({low:.1f}..{high:.1f})"


if __name__ == "__main__":
    run("fit_over_hosts", measure, text)
