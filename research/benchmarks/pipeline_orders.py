"""Does an order of the slices make a pipeline of two stages faster, and does it hold less memory?

The training step of an MLP, its layers halved, runs on two one-core workers of this machine, in turns with the unsplit
step on one of them: unsplit in two stages, and split into slices that run in any order ("free"), all forward and then
all backward ("gpipe", Huang et al., 2019), both in turns ("1f1b", PipeDream, Narayanan et al., 2019), or what most must
follow first ("critical_path").
Before, losses of every split step are checked against those of the unsplit one. Simulated are the same placements, with
costs of a profile of each graph and a calibrated topology. Nothing is fitted to the measured steps.

Memory is the most that a step's ops hold at a time on a worker, beside weights and arguments: of several traced steps,
the median of what TensorFlow's tracer records of its allocators. Tensors that a worker receives are not among them.

    python -m research.benchmarks.pipeline_orders                        # some ten minutes
    python -m research.benchmarks.pipeline_orders --page=docs/research/split_steps.md
    python -m research.benchmarks.pipeline_orders --quick --out=FILE     # some two minutes

The machine should do nothing else meanwhile, and have two cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import statistics
import sys

import numpy as np
from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.core.placement import FREE
from tfplace.version import versions

LAYERS, WIDTH, BATCH, CLASSES = 8, 768, 2048, 10
SLICES = (4, 8)
ORDERS = (FREE, "gpipe", "1f1b", "critical_path")
ONE, STAGES = "one worker", "2 stages, unsplit"
_TRACED = 5
_LIMIT_S = {False: 240.0, True: 20.0}
"""By whether it is a quick run: seconds that the turns may take."""


def measure(_):
    asked = flags.FLAGS
    if asked.quick and asked["out"].using_default_value:
        raise SystemExit("--quick needs --out: it is too rough to stand for the results that are kept.")
    from research.benchmarks.slices_running.losses import use_two_devices

    use_two_devices()
    found, topology = _study(asked.turns, asked.seed, asked.quick, asked.topology)
    return {
        "command": " ".join(["python -m research.benchmarks.pipeline_orders", *sys.argv[1:]]),
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "model": {"layers": LAYERS, "width": WIDTH, "batch": BATCH},
        "turns": asked.turns,
        "seed": asked.seed,
        "topology": topology.to_dict(),
        "variants": found,
    }


def _study(turns, seed, quick, topology):
    """What was measured and simulated of each variant, by name; and the topology."""
    import keras

    from research.benchmarks.slices_running import losses
    from research.benchmarks.slices_running.running import start, take_turns
    from tfplace.core.topology import Topology
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.calibration.calibrate import calibrate
    from tfplace.measurement.calibration.transfers import SIZES
    from tfplace.measurement.protocol.interference import ProcessorWatch

    with contextlib.ExitStack() as opened:
        cluster = opened.enter_context(Cluster.start(2))
        _tell("calibrating")
        sizes = SIZES[:: max(1, len(SIZES) // 3)] if quick else SIZES
        topology = Topology.load(topology) if topology else calibrate(cluster, sizes=sizes).topology
        model, batch = build(keras, seed)
        variants = variants_of(model, batch, topology, rounds=1 if quick else 3)
        _tell("checking losses")
        reset = losses.keep(model)
        expected = losses.losses_of(model, batch, variants[0].placement, reset)
        off = {
            v.name: losses.difference(losses.losses_of(model, batch, v.placement, reset), expected) for v in variants
        }
        for name, difference in off.items():
            losses.check(name, difference)
        reset()
        _tell("measuring")
        steps = {v.name: opened.enter_context(contextlib.closing(start(v, cluster, batch))) for v in variants}
        watch = ProcessorWatch(cluster.pids, cluster.cores)
        limit_s = _LIMIT_S[quick]
        took = take_turns(steps, steps[ONE], watch, cluster.failure_of, turns=turns, limit_s=limit_s, seed=seed)
        _tell("tracing")
        held = {v.name: _held(steps[v.name], cluster.devices) for v in variants}
    found = {v.name: {**v.facts, "losses_off": off[v.name], "held_bytes": held[v.name]} for v in variants}
    return {name: {**facts, **took[name].to_dict(turns)} for name, facts in found.items()}, topology


def build(keras, seed):
    """A compiled MLP of equal layers, and the batch `(x, y)` of a step."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    layers = [keras.layers.Dense(WIDTH, "relu", name=f"layer{i}") for i in range(LAYERS)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers, keras.layers.Dense(CLASSES, name="head")], name="mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model, (rng.standard_normal((BATCH, WIDTH), np.float32), rng.integers(CLASSES, size=BATCH, dtype=np.int32))


# ---- variants --------------------------------------------------------------------------------------------------------


def variants_of(model, batch, topology, *, rounds):
    """The unsplit step on one worker and in two stages, and split steps in every order."""
    import tfplace
    from research.benchmarks.slices_running.variants import problems_of

    _tell("extracting")
    graphs = {1: tfplace.extract(model, batch)}
    graphs |= {k: tfplace.extract(model, batch, slices=k) for k in SLICES}
    problems = problems_of(graphs, batch, topology, rounds, _tell)
    whole, facts = problems[1]
    out = [_variant(ONE, whole, np.zeros(whole.graph.num_ops, np.int32), FREE, facts)]
    out.append(_variant(STAGES, whole, stages(whole), FREE, facts))
    for k in SLICES:
        problem, facts = problems[k]
        out += [_variant(f"{k} slices, {order}", problem, stages(problem), order, facts) for order in ORDERS]
    return out


def stages(problem):
    """[V] the first half of the layers on the first worker, with what only they read; all else on the second."""
    graph = problem.graph
    device = np.ones(graph.num_ops, np.int32)
    in_layer = np.zeros(graph.num_ops, bool)
    for name, ops in graph.layers.items():
        in_layer[ops] = True
        device[ops] = int(name not in {f"layer{i}" for i in range(LAYERS // 2)})
    readers = [[] for _ in range(graph.num_ops)]
    for u, v in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        readers[u].append(v)
    for v in reversed(range(graph.num_ops)):
        if not in_layer[v] and readers[v]:
            device[v] = device[readers[v]].max()
    units = np.zeros(problem.num_units, np.int32)
    np.maximum.at(units, problem.grouping.unit_of[problem.grouping.unit_of >= 0], device[problem.grouping.unit_of >= 0])
    return problem.spread(units)


def _variant(name, problem, op_device, order, facts):
    import tfplace
    from research.benchmarks.slices_running.variants import Variant
    from tfplace.simulation.evaluate import Simulator
    from tfplace.simulation.options import Options

    simulator = Simulator(problem, Options(phase_orders=(order,)))
    cost, (_, phases) = simulator.devices(op_device), simulator.phases(op_device)
    single = tfplace.place(problem, placer="single", progress=False)
    placement = dataclasses.replace(single, op_device=op_device, phases=phases, order=order)
    simulated = {"simulated_s": cost.step_s, "simulated_held_bytes": (cost.peak_bytes - _kept(placement)).tolist()}
    return Variant(name, placement, {**facts, **simulated})


def _kept(placement):
    """[D] bytes of the weights and arguments on each device, which are there before a step."""
    graph = placement.problem.graph
    size = graph.persistent_bytes.copy()
    for t, v in enumerate(graph.tensor_op.tolist()):
        if graph.op_types[v] == "Placeholder" and graph.tensor_dtype[t] != "resource":
            size[v] += graph.tensor_bytes[t]
    return np.bincount(placement.op_device, size, len(placement.device_names)).astype(np.int64)


# ---- memory ----------------------------------------------------------------------------------------------------------


def _held(running, devices):
    """By device the most bytes that ops held at a time: the median of several traced steps."""
    peaks = [held_bytes(running.traced(), devices) for _ in range(_TRACED)]
    return [int(statistics.median(peak)) for peak in zip(*peaks, strict=True)]


def held_bytes(metadata, devices):
    """By device the most bytes that a traced step's ops held at a time; what is freed at a time counts no more then."""
    changes = {device: [] for device in devices}
    for part in metadata.step_stats.dev_stats:
        for node in part.node_stats:
            records = (r for memory in node.memory for r in memory.allocation_records)
            changes.get(part.device, []).extend((r.alloc_micros, r.alloc_bytes) for r in records)
    return [max(np.cumsum([size for _, size in sorted(changes[device])]), default=0) for device in devices]


# ---- the table -------------------------------------------------------------------------------------------------------


def text(found):
    """A row for each variant: its step beside one worker's, and bytes held by each worker; measured, then simulated."""
    variants = found["variants"]
    one = variants[ONE]["simulated_s"]
    rows = [
        [
            name,
            _ratio(each),
            f"{each['simulated_s'] / one:.2f}",
            _mib(each["held_bytes"]),
            _mib(each["simulated_held_bytes"]),
        ]
        for name, each in variants.items()
    ]
    return table(["step", "measured", "simulated", "held, MiB", "simulated, MiB"], rows)


def _ratio(each):
    if each["failed"]:
        return each["failed"]
    low, middle, high = statistics.quantiles(each["measured"], n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f}..{high:.2f})"


def _mib(sizes):
    return " + ".join(f"{size / 2**20:.0f}" for size in sizes)


def _tell(what):
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    flags.DEFINE_integer("turns", 15, "Turns that count.", 3)
    flags.DEFINE_integer("seed", 0, "Of weights, the batch and the orders of turns.")
    flags.DEFINE_bool("quick", False, "A rougher calibration and less of everything.")
    flags.DEFINE_string("topology", None, "A file of `tfplace calibrate`; by default calibrated now.")
    run("pipeline_orders", measure, text)
