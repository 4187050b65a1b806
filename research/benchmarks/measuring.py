"""What measuring can tell: two branches on three kinds of devices, on a quiet machine and beside a busy process.

    python -m research.benchmarks.measuring                # rewrites measuring.json beside it; some three minutes

The machine should do nothing else meanwhile, and have two cores. docs/concepts/measuring.md explains what comes out.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

import tfplace
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.local import ChainedLogicalDevices, LocalDevices
from tfplace.measurement.protocol.interference import ProcessorWatch
from tfplace.measurement.protocol.measured import MeasuredEvaluator
from tfplace.measurement.protocol.sampling import TOLERANCE
from tfplace.testing import make_topology

ROOT = Path(__file__).resolve().parents[2]

NEIGHBOUR = """
import os, time

os.sched_setaffinity(0, [{core}])
print(flush=True)
while True:
    until = time.monotonic() + {busy_s}
    while time.monotonic() < until:
        pass
    time.sleep({idle_s})
"""
BACKENDS = {"LocalDevices": LocalDevices, "ChainedLogicalDevices": ChainedLogicalDevices, "Cluster": Cluster.start}


def two_branches(size, layers):
    """A step of two branches that share nothing, and the units of the second."""
    weights = [tf.Variable(tf.ones((size, size)) / size) for _ in range(2)]

    @tf.function
    def step(a, b):
        ends = []
        for weight, start in zip(weights, (a, b), strict=True):
            w, ends = weight + 0.0, [*ends, start]
            for _ in range(layers):
                ends[-1] = tf.tanh(tf.matmul(ends[-1], w))
        return ends

    graph = tfplace.extract(step, (tf.TensorSpec((size, size)),) * 2)
    problem = tfplace.formulate(graph, make_topology(2, types="CPU"))
    second = {graph.index["b"], graph.variables[1].op}
    for src, dst in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        second |= {dst} if src in second else set()
    return problem, np.array([int(min(ops) in second) for ops in problem.grouping.members], np.int32)


def measure(evaluator, units, times):
    """Figures of some evaluations of one placement: medians over them, or one each."""
    taken = [evaluator(units).samples for _ in range(times)]
    return {
        "single_s": float(np.median([np.median(s.reference_s) for s in taken])),
        "split_s": float(np.median([s.median_s for s in taken])),
        "speed_up": [round(1 / s.ratio, 3) for s in taken],
        "spread_of_median": float(np.median([s.spread_s / s.median_s for s in taken])),
        "rejected": [s.rejected for s in taken],
        "disturbed": [s.disturbed for s in taken],
    }


@contextlib.contextmanager
def neighbour(core, busy_s, idle_s):
    """A process that is busy on a core now and then."""
    code = NEIGHBOUR.format(core=core, busy_s=busy_s, idle_s=idle_s)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


def beside_others(problem, split, backend):
    """Figures beside a neighbour, with and without leaving out what it disturbs."""
    out = {}
    for what, (busy_s, idle_s) in {"always busy": (1.0, 0.0), "busy 0.2 s in 0.5": (0.2, 0.3)}.items():
        for how, tolerance in {"rejecting": TOLERANCE, "keeping all": 100.0}.items():
            evaluator = MeasuredEvaluator(problem, backend, tolerance=tolerance)
            with neighbour(backend.cores[0], busy_s, idle_s):
                out[f"{what}, {how}"] = measure(evaluator, split, 2)
            evaluator.close()
    return out


def main():
    results = {"cores": os.cpu_count(), "watch": ProcessorWatch().source}
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    for size, layers in ((64, 20), (256, 30), (384, 40)):
        problem, split = two_branches(size, layers)
        for name, start in BACKENDS.items():
            backend = start()
            evaluator = MeasuredEvaluator(problem, backend)
            row = {"empty_s": evaluator.empty_step_s(), "quiet": measure(evaluator, split, 5)}
            evaluator.close()
            if name == "Cluster" and size == 384:
                row |= beside_others(problem, split, backend)
            backend.close()
            results.setdefault(f"{size} x {size}, {layers} layers", {})[name] = row
            print(size, name, json.dumps(row, indent=1), flush=True)
    (ROOT / "research" / "data" / "measuring.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
