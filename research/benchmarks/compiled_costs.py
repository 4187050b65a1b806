"""How well are the costs of compiled steps met? Five steps on one core with one thread, predicted and measured.

Each step runs in a process of its own, pinned to a core: TensorFlow's op by op and XLA's compiled one in turn. Rates
and ops are measured there before. As a machine does other things too, what steps take is processor time. Compared is
compiled over op by op, predicted and measured, by medians, where much of what else the machine does cancels out; and
the seconds of analytic costs, and of those of `tfplace profile --compiled`, with those of the fastest turn, as rates
are of the fastest turns. Loops are compiled and cost so (`loops=True`).

XLA's temporaries are one piece of memory, which glibc takes from the system and gives back in every step if it is above
32 MiB. To touch it for the first time takes long. So the heap is told to keep its memory (MALLOC_MMAP_THRESHOLD_,
MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_), and steps are measured once more with the usual heap.

    python -m research.benchmarks.compiled_costs                              # some fifteen minutes
    python -m research.benchmarks.compiled_costs --page=docs/research/compiled_steps.md
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import statistics
import sys
import time

from research.benchmarks.common import run
from tfplace.comparison.tables import table

_STEPS = {
    "CNN with BatchNorm": "convolutions",
    "Transformer": "attention",
    "LSTM (loop)": "lstm_loop",
    "MLP": "mlp",
    "embedding": "embedding_adam",
}
_SMALLER = 4
"""A step has the batch of `training_steps` over this."""
_TURNS, _FEW_TURNS, _PROFILED, _FEW, _MANY = 11, 5, 5, 500, 2000
_KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TRIM_THRESHOLD_": str(8 * 2**30),
    "MALLOC_TOP_PAD_": str(2**29),
}


def measure(_):
    found = {"command": "python -m research.benchmarks.compiled_costs", "overheads": _alone(_overheads)}
    with _environment(_KEEPS_MEMORY):
        found |= {"slower": _alone(_slower), "steps": []}
    print(found, file=sys.stderr, flush=True)
    for title, name in _STEPS.items():
        with _environment(_KEEPS_MEMORY):
            row = {"step": title} | _alone(_row, name)
        row["usual heap"] = _alone(_usual, name)
        found["steps"].append(row)
        print(row["step"], _errors(row), file=sys.stderr, flush=True)
    return found


def _alone(function, *given):
    """What a function returns in a process of its own that has one core and one thread."""
    with multiprocessing.get_context("spawn").Pool(1, _pin) as pool:
        return pool.apply(function, given)


def _pin():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)


@contextlib.contextmanager
def _environment(changed):
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _overheads():
    """Seconds of products of two small matrices, and of calls of one op, op by op and compiled."""
    import tensorflow as tf

    one = tf.ones((4, 4)) / 4

    def products(count, compiled):
        def call(x):
            for _ in range(count):
                x = x @ one
            return x

        return tf.function(call, jit_compile=compiled, autograph=False)

    calls = [products(count, compiled) for count in (1, _FEW, _MANY) for compiled in (False, True)]
    rows = _turns([lambda call=call: call(one) for call in calls], 20, repeats=10)
    best = [min(column) for column in zip(*rows, strict=True)]
    return {
        "product_s": (best[4] - best[2]) / (_MANY - _FEW),
        "compiled_product_s": (best[5] - best[3]) / (_MANY - _FEW),
        "call_s": best[0],
        "compiled_call_s": best[1],
    }


def _slower():
    """Kernels that XLA makes of one op -> their seconds over those of TensorFlow's."""
    import tensorflow as tf

    ops = tf.raw_ops
    image, weights, seed = tf.random.normal((8, 48, 48, 64)), tf.random.normal((3, 3, 64, 64)), tf.constant([1, 2])
    pooled, matrix = tf.nn.max_pool2d(image, 2, 2, "VALID"), tf.random.normal((1024, 1024))
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    filters = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    each = tf.random.normal((3, 3, 64, 1))
    kernels = {
        "MatMul": (tf.matmul, matrix, matrix),
        "Conv2D": (lambda x, w: ops.Conv2D(input=x, filter=w, **filters), image, weights),
        "Conv2DBackpropFilter": (
            lambda x: ops.Conv2DBackpropFilter(input=x, filter_sizes=[3, 3, 64, 64], out_backprop=x, **filters),
            image,
        ),
        "DepthwiseConv2dNative": (lambda x, w: ops.DepthwiseConv2dNative(input=x, filter=w, **filters), image, each),
        "DepthwiseConv2dNativeBackpropInput": (
            lambda x, w: ops.DepthwiseConv2dNativeBackpropInput(
                input_sizes=[8, 48, 48, 64], filter=w, out_backprop=x, **filters
            ),
            image,
            each,
        ),
        "DepthwiseConv2dNativeBackpropFilter": (
            lambda x: ops.DepthwiseConv2dNativeBackpropFilter(
                input=x, filter_sizes=[3, 3, 64, 1], out_backprop=x, **filters
            ),
            image,
        ),
        "MaxPool": (lambda x: ops.MaxPool(input=x, **window), image),
        "MaxPoolGrad": (lambda x, y: ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **window), image, pooled),
        "AvgPoolGrad": (lambda y: ops.AvgPoolGrad(orig_input_shape=[8, 48, 48, 64], grad=y, **window), pooled),
        "StatelessRandomUniformV2": (lambda key: tf.random.stateless_uniform((2**20,), key, alg="philox"), seed),
    }
    found = {}
    for name, (call, *given) in kernels.items():
        both = [tf.function(call, jit_compile=compiled, autograph=False) for compiled in (False, True)]
        rows = _turns([lambda one=one, given=given: one(*given) for one in both], _TURNS)
        found[name] = statistics.median(b / a for a, b in rows)
    return found


def _row(name):
    """Seconds op by op and compiled, by rates, by a profile, and measured turn by turn; and how many kernels."""
    import tfplace
    from tfplace.core.device import Device
    from tfplace.core.topology import Topology
    from tfplace.cost.analytic import analytic_costs
    from tfplace.cost.compiled import FusedStep, compiled_costs
    from tfplace.cost.profiled import profiled_costs
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.calibration.profile import profile_graph
    from tfplace.measurement.calibration.rates import core_model, measure_rates

    backend = LocalDevices(inter_op=1)
    rates = measure_rates(backend, backend.devices[0])
    core = Device(
        name="CPU:0",
        type="CPU",
        memory_bytes=2**33,
        flops=rates.peak_flops,
        memory_bandwidth=rates.copy_bandwidth,
        op_overhead_s=rates.op_overhead_s,
        model=core_model(),
    )
    topology = Topology("one core", (core,), ())
    model, specs = _step(name)
    graph = tfplace.extract(model, specs)
    outcome = profile_graph(graph, lambda: backend, core.model, steps=_PROFILED)
    by_step = profile_graph(graph, lambda: backend, core.model, steps=_PROFILED, compiled=True)
    step = FusedStep(graph, loops=True)
    tables = {
        "analytic op by op": analytic_costs(graph, topology),
        "analytic": compiled_costs(step, topology),
        "profiled op by op": profiled_costs(graph, topology, outcome.profile),
        "profiled": compiled_costs(step, topology, outcome.profile),
        "profiled compiled": compiled_costs(step, topology, by_step.profile),
    }
    return {
        "ops": graph.num_ops,
        "kernels": int((step.trips > 0).sum()),
        "rates": dataclasses.asdict(rates),
        "disturbed": outcome.disturbed,
        **{how: float(costs.compute_s.sum()) for how, costs in tables.items()},
        "turns": _measured(model, specs, _TURNS),
    }


def _usual(name):
    return _measured(*_step(name), _FEW_TURNS)


def _step(name):
    """A model and specs of its batch."""
    import tensorflow as tf

    from research.benchmarks.training_steps import STEPS

    model, specs = STEPS[name]()
    return model, tuple(tf.TensorSpec((s.shape[0] // _SMALLER, *s.shape[1:]), s.dtype) for s in specs)


def _measured(model, specs, turns):
    """[turns, 2] processor seconds of a step op by op and compiled."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    draw = {tf.int32: lambda shape: rng.integers(0, 1000, shape), tf.float32: rng.standard_normal}
    batch = tuple(tf.constant(draw[spec.dtype](spec.shape), spec.dtype) for spec in specs)
    steps = [tf.function(lambda *data: model.train_step(data), jit_compile=compiled) for compiled in (False, True)]
    return _turns([lambda step=step: step(*batch) for step in steps], turns)


def _turns(calls, count, repeats=1):
    """[turns, calls] processor seconds of each call."""
    for call in calls:
        call()
    rows = []
    for _ in range(count):
        rows.append([])
        for call in calls:
            start = time.process_time()
            for _ in range(repeats):
                call()
            rows[-1].append((time.process_time() - start) / repeats)
    return rows


def _errors(row):
    """Measured seconds compiled over op by op, and predicted over measured: of those, and of seconds by rates."""
    op, compiled = (min(column) for column in zip(*row["turns"], strict=True))
    ratio, usual = (statistics.median(b / a for a, b in row[turns]) for turns in ("turns", "usual heap"))
    return {
        "compiled / op by op": ratio,
        "with the usual heap": usual,
        "that ratio: analytic": row["analytic"] / row["analytic op by op"] / ratio,
        "profiled": row["profiled"] / row["profiled op by op"] / ratio,
        "seconds: analytic op by op": row["analytic op by op"] / op,
        "analytic compiled": row["analytic"] / compiled,
        "profiled with --compiled": row["profiled compiled"] / compiled,
    }


def text(found):
    errors = [_errors(row) for row in found["steps"]]
    lines = [
        [row["step"], f"{row['ops']:,}", f"{row['kernels']:,}", *(f"{number:.2f}" for number in one.values())]
        for row, one in zip(found["steps"], errors, strict=True)
    ]
    return table(["step", "ops", "kernels", *errors[0]], lines)


if __name__ == "__main__":
    run("compiled_costs", measure, text)
