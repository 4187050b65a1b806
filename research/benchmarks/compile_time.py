"""How long XLA takes to compile a placed step, beside the same step with `jit_compile=True` on one device.

    python -m research.benchmarks.compile_time                        # Inception-V3; some four minutes
    python -m research.benchmarks.compile_time --models=resnet50,vgg16 --out=FILE
    python -m research.benchmarks.compile_time --page=docs/research/compiled_steps.md

Each model is built with a batch of two examples and read once, in a process of its own with two logical CPUs. Then are
timed, in turns with other copies of the process: the first call of the traced step under `jit_compile=True`; the first
call of the step placed on one device; that of the same program once half of its ops are moved to the second device; and
of it put back, when everything has been compiled before. Told is processor time, over that of `jit_compile=True`, as
other programs disturb it less than the clock; less in each case what a second call takes.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import statistics
import sys
import time

from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.version import versions

WAYS = ("jit_compile=True", "placed", "half of it moved", "moved back")


def measure(_):
    rows = []
    for name in flags.FLAGS.models:
        runs = []
        for _ in range(flags.FLAGS.runs):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                runs.append(pool.apply(_first_calls, (name,)))
            print(name, runs[-1], file=sys.stderr, flush=True)
        rows.append({"model": name, "ops": runs[0]["ops"], "clusters": runs[0]["clusters"], "runs": runs})
    return {
        "command": " ".join(["python -m research.benchmarks.compile_time", *sys.argv[1:]]),
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores",
        "models": rows,
    }


def _first_calls(name):
    """Processor seconds by which the first call of each way is longer than the second."""
    import numpy as np
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

    import keras
    from tfplace_zoo import zoo

    import tfplace
    from research.benchmarks.never_slower.models import values

    keras.utils.set_random_seed(0)
    built = zoo.build(name, batch=2)
    built.model.jit_compile = True
    graph = tfplace.extract(built.model, built.batch)
    concrete = graph.origin.flat.concrete
    data = tf.nest.map_structure(values, built.batch)

    @tf.function(jit_compile=True)
    def plain(batch):
        return concrete(batch)

    plain.get_concrete_function(data)
    took = {WAYS[0]: _longer(lambda: plain(data))}
    problem = tfplace.formulate(graph, tfplace.Topology.detect())
    whole = tfplace.place(problem, placer="single", progress=False)
    half = np.where(np.arange(problem.num_units) * 2 < problem.num_units, 0, 1).astype(np.int32)
    moved = dataclasses.replace(whole, op_device=problem.expand(half))
    placed = tfplace.apply(graph, whole, compile="xla")
    took[WAYS[1]] = _longer(lambda: placed(data))
    clusters = [len(placed.clusters.clusters)]
    placed.replace(moved)
    clusters.append(len(placed.clusters.clusters))
    took[WAYS[2]] = _longer(lambda: placed(data))
    placed.replace(whole)
    took[WAYS[3]] = _longer(lambda: placed(data))
    placed.restore()
    return {"ops": graph.num_ops, "clusters": clusters, "seconds": took}


def _longer(call):
    begun = time.process_time()
    call()
    first_s = time.process_time() - begun
    call()
    return first_s - (time.process_time() - begun - first_s)


def text(found):
    rows = []
    for one in found["models"]:
        seconds = {way: [each["seconds"][way] for each in one["runs"]] for way in WAYS}
        ratios = {way: [a / b for a, b in zip(seconds[way], seconds[WAYS[0]], strict=True)] for way in WAYS[1:]}
        rows.append(
            [
                one["model"],
                f"{one['ops']:,}",
                f"{one['clusters'][0]}, {one['clusters'][1]}",
                f"{statistics.median(seconds[WAYS[0]]):.1f} s",
                *(f"{statistics.median(r):.2f} ({min(r):.2f}..{max(r):.2f})" for r in ratios.values()),
            ]
        )
    return table(["model", "ops", "clusters, moved", *WAYS], rows)


if __name__ == "__main__":
    flags.DEFINE_list("models", ["inception_v3"], "Models of the zoo.")
    flags.DEFINE_integer("runs", 3, "Processes of each model.", 1)
    run("compile_time", measure, text)
