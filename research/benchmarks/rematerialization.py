"""How much less memory does a step take if results are computed again, and how much longer?

Simulated: models of the zoo on one GPU of the preset 4xP100, of which half of the peak is asked, weights included.
Beside that `sqrt`, the segments of Chen et al. (2016), and the choice that takes as little as those. Real: two small
models on this machine's CPU, op by op. The tracer's records of every allocation, added up in the order of their times,
give the peak, and variables and arguments, which are there before, are added; steps of all variants take turns. Results
of a few steps and all variables after them must be the same to the bit. Then the same steps compiled by XLA, whose peak
is what TensorFlow's allocator counts.

    python -m research.benchmarks.rematerialization                        # some ten minutes
    python -m research.benchmarks.rematerialization --page=docs/research/rematerialization.md
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.version import versions

ZOO = ("inception_v3", "resnet50", "efficientnet", "vit", "bert_base", "gpt")
HALF = 0.5
STEPS = 3
_TURNS, _WARM, _COMPILED = 9, 2, 5


def measure(graphs):
    return {
        "command": " ".join(["python -m research.benchmarks.rematerialization", *sys.argv[1:]]),
        "versions": versions(),
        "zoo": [_simulated(name, graphs) for name in flags.FLAGS.models],
        "real": [row for name in REAL for row in _real(name)],
    }


# ---- simulated -------------------------------------------------------------------------------------------------------


def _simulated(name, graphs):
    import tfplace
    from tfplace.rematerialization.rematerialize import one_device, with_less_memory
    from tfplace.rematerialization.sqrt import sqrt_segments

    trials = one_device(tfplace.formulate(_zoo_graph(name, graphs), "4xP100"))
    whole = trials(())
    d = trials.problem.topology.index("GPU:0")
    start = time.perf_counter()
    half = _with(lambda: with_less_memory(trials, None, HALF))
    took = time.perf_counter() - start
    sqrt = trials(sqrt_segments(trials.problem.graph))
    equal = _with(lambda: with_less_memory(trials, None, {"GPU:0": int(sqrt.cost.peak_bytes[d])}))
    found = {"model": name, "ops": trials.problem.graph.num_ops, "found_s": took, "whole": _facts(whole, d)}
    found |= {"half": half and _facts(half, d), "sqrt": _facts(sqrt, d), "equal": equal and _facts(equal, d)}
    print(_line(found), file=sys.stderr, flush=True)
    gc.collect()
    return found


def _with(find):
    """What is found, or None."""
    from tfplace.errors import InfeasibleError

    try:
        return find()
    except InfeasibleError as error:
        print(error, file=sys.stderr)
        return None


def _zoo_graph(name, graphs):
    """The training step of a model of the zoo, kept as a file for the next time."""
    from tfplace_zoo import zoo

    import tfplace

    path = Path(graphs) / f"{name}.npz"
    if not path.exists():
        built = zoo.build(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        tfplace.extract(built.model, built.batch).save(path)
    return tfplace.OpGraph.load(path)


def _facts(trial, d):
    again = 0 if trial.graph.recomputes is None else int((trial.graph.recomputes >= 0).sum())
    return {"peak_bytes": int(trial.cost.peak_bytes[d]), "step_s": trial.cost.step_s, "ops_again": again}


def _line(found):
    whole = found["whole"]
    parts = [f"{found['model']:14s} {whole['peak_bytes'] / 2**20:8.0f} MiB {found['found_s']:5.1f} s"]
    for way in ("half", "sqrt", "equal"):
        if one := found[way]:
            ratios = one["peak_bytes"] / whole["peak_bytes"], one["step_s"] / whole["step_s"]
            parts.append(f"{way} {ratios[0]:.2f} of the peak, {ratios[1]:.2f} of the step")
    return "; ".join(parts)


# ---- real ------------------------------------------------------------------------------------------------------------


def _cnn(layers):
    block = (lambda: layers.Conv2D(32, 3, padding="same"), layers.BatchNormalization, layers.ReLU)
    made = [layer() for _ in range(8) for layer in (*block, lambda: layers.Dropout(0.1))]
    return (32, 32, 3), [*made, layers.GlobalAveragePooling2D(), layers.Dense(5)]


def _transformer(layers):
    def block(x):
        y = layers.MultiHeadAttention(4, 32, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.1)(y)]))
        y = layers.Dense(128)(layers.Dense(512, "gelu")(x))
        return layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.1)(y)]))

    return (64, 128), [*[block] * 5, layers.GlobalAveragePooling1D(), layers.Dense(5)]


REAL = {"CNN with BatchNorm and dropout": _cnn, "transformer with dropout": _transformer}
_BATCH = 32


def _step(name):
    """The model's step and a few batches."""
    import keras

    import tfplace

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    shape, parts = REAL[name](keras.layers)
    x = inputs = keras.Input(shape)
    for part in parts:
        x = part(x)
    model = keras.Model(inputs, x)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    random = np.random.default_rng(0)
    batches = [
        (random.normal(size=(_BATCH, *shape)).astype(np.float32), random.integers(0, 5, _BATCH).astype(np.int32))
        for _ in range(STEPS)
    ]
    return tfplace.extract(model, batches[0]), batches


def _real(name):
    from tfplace.core.topology import Topology
    from tfplace.rematerialization.rematerialize import SQRT, one_device, with_less_memory
    from tfplace.sources import formulate
    from tfplace.transforms.recomputed_program import with_program

    graph, batches = _step(name)
    box = Topology.load("2xP100")
    cpu = Topology.from_dict(
        {"name": "one CPU", "devices": [d for d in box.to_dict()["devices"] if d["type"] == "CPU"]}
    )
    trials = one_device(formulate(graph, cpu))
    found = {"whole": trials(())}
    found[f"{HALF:.0%} of the peak"] = _with(lambda: with_less_memory(trials, None, HALF))
    found["sqrt"] = with_less_memory(trials, SQRT, None)
    found = {way: trial for way, trial in found.items() if trial is not None}
    programs = {
        way: graph if trial.graph is graph else with_program(trial.graph, graph) for way, trial in found.items()
    }
    seconds = _take_turns(programs)
    compiled = {way: _compiled(graph, program, batches) for way, program in programs.items()}
    before = results(graph, graph, batches)
    rows = []
    for way, trial in found.items():
        peaks, differ = _peaks(graph, programs[way]), _differ(results(programs[way], graph, batches), before)
        rows.append(
            {
                "model": name,
                "way": way,
                **_facts(trial, 0),
                "real_bytes": peaks,
                "real_s": seconds[way],
                "differ": differ,
                "compiled": compiled[way],
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _peaks(graph, program):
    """Ascending, the real peaks of some steps."""
    from research.benchmarks.memory import _arguments, _peak, traces

    before = sum(v.size_bytes for v in graph.variables) + _arguments(graph)
    return sorted(before + _peak(stats) for stats in traces(program))


def _take_turns(programs):
    """Seconds of steps of each program, which take turns."""
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.backends.program import StepGraph
    from tfplace.measurement.backends.running import Running

    backend, steps = LocalDevices(), {}
    try:
        for way, graph in programs.items():
            program = StepGraph(graph)
            program.place(dict.fromkeys(graph.op_names, backend.devices[0]))
            steps[way] = Running(program, backend, None)
        took = [{way: step() for way, step in steps.items()} for _ in range(_WARM + _TURNS)][_WARM:]
    finally:
        for step in steps.values():
            step.close()
        backend.close()
    return {way: [turn[way] for turn in took] for way in programs}


def _compiled(graph, program, batches):
    """What steps that XLA compiles take: the peak that TensorFlow's allocator counts, seconds and clusters.

    What is there before a step are variables and arguments, which are added.
    """
    import tensorflow as tf

    from research.benchmarks.memory import _arguments

    memory = tf.config.experimental
    before = sum(v.size_bytes for v in graph.variables) + _arguments(graph)
    placed, batch = _placed(program, "xla"), tf.nest.map_structure(tf.constant, batches[0])
    peaks, seconds = [], []
    for _ in range(_WARM + _COMPILED):
        memory.reset_memory_stats("CPU:0")
        there = memory.get_memory_info("CPU:0")["current"]
        start = time.perf_counter()
        placed(batch)
        seconds.append(time.perf_counter() - start)
        peaks.append(before + memory.get_memory_info("CPU:0")["peak"] - there)
    clusters = len(placed.clusters.clusters)
    placed.restore()
    return {"real_bytes": sorted(peaks[_WARM:]), "real_s": seconds[_WARM:], "clusters": clusters}


def _placed(program, compile):
    """The step on this machine's CPU."""
    import tfplace

    names = tfplace.Topology.load("2xP100").device_names
    placement = tfplace.place(program, "2xP100", placer="single", progress=False)
    return tfplace.apply(program, placement, devices=dict.fromkeys(names, "CPU:0"), compile=compile)


def results(program, graph, batches):
    """Results of a step for each batch, and all variables of the graph after them, which are put back."""
    import tensorflow as tf

    variables = list(graph.origin.variables().values())
    before = [variable.numpy() for variable in variables]
    placed = _placed(program, "none")
    out = [leaf for batch in batches for leaf in tf.nest.flatten(placed(tf.nest.map_structure(tf.constant, batch)))]
    out = [np.asarray(leaf) for leaf in out] + [variable.numpy() for variable in variables]
    placed.restore()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return out


def _differ(found, expected):
    """How many arrays are not the same to the bit."""
    return sum(a.tobytes() != b.tobytes() for a, b in zip(found, expected, strict=True))


# ---- tables ----------------------------------------------------------------------------------------------------------


def text(found):
    rows = []
    for row in found["zoo"]:
        whole = row["whole"]
        cells = [row["model"], f"{whole['peak_bytes'] / 2**20:,.0f}"]
        for way in ("half", "sqrt", "equal"):
            one = row[way]
            cells += (
                [f"{one['peak_bytes'] / whole['peak_bytes']:.2f}", f"{one['step_s'] / whole['step_s']:.2f}"]
                if one
                else ["-", "-"]
            )
        rows.append(cells)
    zoo = table(
        [
            "model",
            "peak, MiB",
            "half: peak",
            "half: step",
            "sqrt: peak",
            "sqrt: step",
            "as little: peak",
            "as little: step",
        ],
        rows,
    )
    rows = []
    for row in found["real"]:
        whole = next(r for r in found["real"] if r["model"] == row["model"] and r["way"] == "whole")
        ratios = [a / b for a, b in zip(row["real_s"], whole["real_s"], strict=True)]
        rows.append(
            [
                row["model"],
                row["way"],
                f"{row['peak_bytes'] / 2**20:.1f}",
                _spread(row["real_bytes"]),
                f"{row['step_s'] / whole['step_s']:.2f}",
                f"{statistics.median(ratios):.2f}",
                "yes" if not row["differ"] else f"{row['differ']} arrays differ",
            ]
        )
    headings = ["model", "way", "simulated peak, MiB", "real peak, MiB", "simulated step", "real step", "same bits"]
    return f"{zoo}\n\n{table(headings, rows)}\n\n{_compiled_table(found['real'])}"


def _compiled_table(found):
    rows = []
    for row in found:
        whole = next(r for r in found if r["model"] == row["model"] and r["way"] == "whole")["compiled"]
        own = row["compiled"]
        step = statistics.median(own["real_s"]) / statistics.median(whole["real_s"])
        rows.append([row["model"], row["way"], _spread(own["real_bytes"]), f"{step:.2f}", str(own["clusters"])])
    return table(["model", "way", "compiled: real peak, MiB", "compiled: real step", "clusters"], rows)


def _spread(sizes):
    low, middle, high = (f(sizes) / 2**20 for f in (min, statistics.median, max))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    flags.DEFINE_list("models", list(ZOO), "Models of the zoo.")
    run("rematerialization", measure, text)
