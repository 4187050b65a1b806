"""Which ops take much longer or shorter than their costs say, estimated and profiled?

Half of the steps of `training_steps` (all would take an hour on a busy machine), one or more of each kind, run on this
machine's CPU in two ways, traced: on a worker of one core and one thread, as profiles are made, and with TensorFlow's
threads as they are. The profile is of another worker, before. Compared are the seconds of ops that take over 1 % of the
step: with the analytic costs, and with those of the profile, each by one factor common to the step's ops.

    python -m research.benchmarks.op_costs                        # some fifteen minutes
    python -m research.benchmarks.op_costs --page=docs/research/cost_errors.md
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import sys

from research.benchmarks.common import run
from research.benchmarks.memory import traces
from tfplace.comparison.tables import table

_NOTABLE, _OFF = 0.01, 3.0
_PROFILED = 5
"""Traced steps of a profile."""

_CHOSEN = (
    *("mlp_sgd", "convolutions", "attention", "mixed_precision", "routed_experts", "table_read_whole"),
    *("embedding_sgd", "embedding_adam", "embedding_adagrad", "tied_embedding", "zoo dlrm", "one_weight_in_a_loop"),
    *("zoo rnnlm", "lstm_loop"),
)

_WHY = {
    "one thread, analytic": {
        "AddN": "costs too high: in a step this small or in a loop, what it adds is still in the cache",
        "AssignSubVariableOp": "not known; see the profiled costs",
        "Mean, Sum": "over all but the last axis, the kernel does not reach the memory's bandwidth",
        "Softmax, SparseSoftmaxCrossEntropyWithLogits": "an exponential for each element, counted as one operation",
        "StatelessRandomUniformV2": "some ten rounds of its generator for each element, counted as one operation",
    },
    "one thread, profiled": {
        "AddN, AssignSubVariableOp": "not known; measured twice, on two workers of a machine that did other things too",
    },
    "all threads": {
        "AddN, BiasAddGrad, ConcatV2, GatherV2, Mul": "as said on one thread; beside other ops they wait for cores",
        "MatMul, SparseSoftmaxCrossEntropyWithLogits": "costs too high beside the step's others, which wait for cores",
    },
}
"""What is off in which way of running a step -> why, as far as the other ways tell; by reasoning, not by experiment."""


def measure(_):
    rows = []
    for name in _CHOSEN:
        rows.append(_row(name))
        print(rows[-1]["step"], {how: list(rows[-1][how]) for how in WAYS}, file=sys.stderr, flush=True)
        gc.collect()
    limits = {"notable": _NOTABLE, "off": _OFF}
    return {"command": "python -m research.benchmarks.op_costs", **limits, "why": _WHY, "steps": rows}


def _row(name):
    import keras

    import tfplace
    from research.benchmarks.training_steps import STEPS
    from tfplace.cost.analytic import analytic_costs
    from tfplace.cost.profiled import profiled_costs
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.calibration.profile import profile_graph
    from tfplace.measurement.calibration.rates import core_model

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    graph = tfplace.extract(*STEPS[name]())
    outcome = profile_graph(graph, lambda: Cluster.start(1, inter_op=1), core_model(), steps=_PROFILED)
    topology = _one_core(core_model())
    costs = {
        "analytic": analytic_costs(graph, topology),
        "profiled": profiled_costs(graph, topology, outcome.profile),
    }
    backends = {"one thread": lambda: Cluster.start(1, inter_op=1), "all threads": LocalDevices}
    row = {"step": name, "ops": graph.num_ops, "not_run_alone": outcome.unrun, "disturbed": outcome.disturbed}
    for threads, open_backend in backends.items():
        took = _seconds(graph, traces(graph, open_backend()))
        row |= {f"{source}, {threads}": _off(graph, table, took) for source, table in costs.items()}
    return row


WAYS = [f"{source}, {threads}" for threads in ("one thread", "all threads") for source in ("analytic", "profiled")]


def _one_core(model):
    """The preset's processor, under the name of what is profiled."""
    from tfplace.core.topology import Topology

    whole = Topology.load("2xP100")
    cpu = dataclasses.replace(whole.devices[whole.index("CPU:0")], model=model)
    return Topology("one core", (cpu,), ())


def _seconds(graph, runs):
    """[V] seconds of each op's executions in a step: the median of the runs."""
    from tfplace.measurement.backends.stepstats import read_stats

    found = [read_stats(metadata).seconds for metadata in runs]
    return [statistics.median(one.get(name, (0.0, 0))[0] for one in found) for name in graph.op_names]


def _off(graph, costs, took):
    """Ops that take over 1 % of the step, and over three times what their costs say, or less than a third.

    Returns:
      Op type -> its ops' share of the step; real over said seconds by op; where their costs came from.
    """
    said = _said(graph, costs.compute_s[:, 0].tolist(), took)
    whole = sum(took)
    notable = [v for v, seconds in enumerate(took) if seconds > _NOTABLE * whole]
    # the device may be another one than this machine's: what most ops are off by is not the cost's fault
    factor = statistics.median(took[v] / said[v] for v in notable if said[v])
    out = {}
    for v in notable:
        ratio = took[v] / (factor * said[v]) if said[v] else float("inf")
        if not 1 / _OFF <= ratio <= _OFF:
            kind = out.setdefault(graph.op_types[v], {"share": 0.0, "ratios": {}, "costs": set()})
            kind["share"] += took[v] / whole
            kind["ratios"][graph.op_names[v]] = round(ratio, 2)
            kind["costs"].add(costs.provenance[v])
    return {
        kind: {
            "share": round(one["share"], 3),
            "real_over_said": one["ratios"],
            "costs": sorted(one["costs"]),
        }
        for kind, one in out.items()
    }


def _said(graph, said, took):
    """[V] said seconds of what ran as each op: of a convolution and its bias, of which TensorFlow makes one, both."""
    from tfplace.measurement.calibration.profile import does_its_work

    out = list(said)
    for v in range(graph.num_ops):
        others = [] if took[v] else [u for u in does_its_work(graph, v) if took[u]]
        if others:
            out[max(others, key=took.__getitem__)] += said[v]
    return out


def _cell(off):
    parts = []
    for kind, one in off.items():
        low, high = (f"{f(one['real_over_said'].values()):.2g}" for f in (min, max))
        parts.append(f"{kind} {100 * one['share']:.0f} % x{low if low == high else f'{low} to {high}'}")
    return ", ".join(parts) or "-"


def text(found):
    return table(["step", *WAYS], [[row["step"], *(_cell(row[way]) for way in WAYS)] for row in found["steps"]])


if __name__ == "__main__":
    run("op_costs", measure, text)
