"""How well is the peak memory of one device predicted, and which ops cost time that nothing said?

Every step of `training_steps` runs in a session of its own on this machine's CPU, as `tfplace` flattens and runs it,
with TensorFlow's threads as they are. The tracer's records of every allocation, added up in the order of their times,
give the real peak; variables and arguments, which are there before, are added. Predicted is what `tfplace.memory`
says. A CPU only: what a GPU's libraries take beside is not looked at here.

    python -m research.benchmarks.memory                        # some ten minutes
    python -m research.benchmarks.memory --page=docs/research/memory.md
"""

from __future__ import annotations

import gc
import statistics
import sys

import numpy as np

from research.benchmarks.common import run
from tfplace.comparison.tables import table

_WARM, _TRACED = 3, 7
_NOTABLE, _OFF = 0.01, 3.0


def measure(_):
    from research.benchmarks.training_steps import STEPS

    rows = []
    for name in STEPS:
        rows.append(_row(name))
        print(_line(rows[-1]), file=sys.stderr, flush=True)
        gc.collect()
    return {"command": "python -m research.benchmarks.memory", "traced_steps": _TRACED, "steps": rows}


def _row(name):
    import keras

    import tfplace
    from research.benchmarks.training_steps import STEPS

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    graph = tfplace.extract(*STEPS[name]())
    problem = tfplace.formulate(graph, "2xP100")
    predicted = tfplace.memory(problem, device="CPU:0").peak_bytes
    before = sum(v.size_bytes for v in graph.variables) + _arguments(graph)
    runs = traces(graph)
    return {
        "step": name,
        "ops": graph.num_ops,
        "variables_bytes": before,
        "predicted_bytes": predicted,
        "real_bytes": sorted(before + _peak(stats) for stats in runs),
        "off": _off(graph, problem, runs),
    }


def _arguments(graph):
    """Bytes of what the step is given."""
    kinds = [graph.op_types[op] for op in graph.tensor_op.tolist()]
    sizes = zip(kinds, graph.tensor_dtype, graph.tensor_bytes.tolist(), strict=True)
    return sum(size for kind, dtype, size in sizes if kind == "Placeholder" and dtype != "resource")


def traces(graph, backend=None):
    """`RunMetadata` of steps on the first device of a backend, which is closed then; by default this process's CPU."""
    from tfplace.execution.updates import with_updates_last
    from tfplace.execution.waits import NO_WAITS
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.backends.program import StepGraph
    from tfplace.measurement.backends.running import Running

    backend = backend or LocalDevices()
    try:
        program = StepGraph(graph)
        waits = with_updates_last(graph, np.zeros(graph.num_ops, np.int32), NO_WAITS)
        program.place(dict.fromkeys(graph.op_names, backend.devices[0]), waits)
        running = Running(program, backend, None)
        try:
            for _ in range(_WARM):
                running()
            return [running.traced() for _ in range(_TRACED)]
        finally:
            running.close()
    finally:
        backend.close()


def _nodes(metadata):
    return (node for device in metadata.step_stats.dev_stats for node in device.node_stats)


def _peak(metadata):
    """Most bytes that were allocated at one time; what is freed at a time counts no more then."""
    records = [
        (record.alloc_micros, -record.alloc_bytes)
        for node in _nodes(metadata)
        for memory in node.memory
        for record in memory.allocation_records
    ]
    held = peak = 0
    for _, freed in sorted(records, reverse=False, key=lambda r: (r[0], -r[1])):
        held -= freed
        peak = max(peak, held)
    return peak


def _off(graph, problem, traced):
    """Op types of which an op takes over 1 % of the step and over 3 times what its costs say, by one common factor."""
    runs = [_seconds(graph, metadata) for metadata in traced]
    took = {name: statistics.median(run.get(name, 0.0) for run in runs) for name in runs[0]}
    cpu = problem.topology.index("CPU:0")
    said = {name: float(problem.costs.compute_s[graph.index[name], cpu]) for name in took}
    whole = sum(took.values())
    notable = [name for name, seconds in took.items() if seconds > _NOTABLE * whole]
    # the device is another one than this machine's: what most ops are off by is not the rule's fault
    factor = statistics.median(took[name] / said[name] for name in notable if said[name])
    out = {}
    for name in notable:
        ratio = took[name] / (factor * said[name]) if said[name] else float("inf")
        if ratio > _OFF:
            kind = graph.op_types[graph.index[name]]
            share, most = out.get(kind, (0.0, 0.0))
            out[kind] = share + took[name] / whole, max(most, ratio)
    return {kind: [round(share, 3), round(most, 1)] for kind, (share, most) in out.items()}


def _seconds(graph, metadata):
    """Op -> seconds of its kernel in all of its executions."""
    out = {}
    for node in _nodes(metadata):
        if node.node_name in graph.index:
            out[node.node_name] = out.get(node.node_name, 0.0) + 1e-9 * node.op_end_rel_nanos
    return out


def _line(row):
    mib = [size / 2**20 for size in (row["predicted_bytes"], statistics.median(row["real_bytes"]))]
    return f"{row['step']:24s} {mib[0]:8.1f} MiB predicted {mib[1]:8.1f} real {mib[0] / mib[1]:5.2f} {row['off']}"


def text(found):
    rows = []
    for row in found["steps"]:
        low, middle, high = (f(row["real_bytes"]) for f in (min, statistics.median, max))
        rows.append(
            [
                row["step"],
                f"{row['ops']:,}",
                f"{row['predicted_bytes'] / 2**20:.1f}",
                f"{middle / 2**20:.1f} ({low / 2**20:.1f} to {high / 2**20:.1f})",
                f"{100 * (row['predicted_bytes'] / middle - 1):+.0f} %",
                ", ".join(f"{kind} {100 * share:.0f} %" for kind, (share, _) in row["off"].items()) or "-",
            ]
        )
    return table(["step", "ops", "predicted, MiB", "real, MiB", "error", "slower than its cost says"], rows)


if __name__ == "__main__":
    run("memory", measure, text)
