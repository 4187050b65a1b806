"""Op seconds from real runs: a step on one device, one op at a time, traced."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.arrays import BoolArray, FloatArray
from tfplace.core.graph import OpGraph
from tfplace.core.stepcost import FailureKind
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.cost.profile import DeviceProfile, OpTime, Profile, ProfiledStep
from tfplace.cost.signature import signatures
from tfplace.errors import ApplyError, InputError
from tfplace.execution.compilation import can_compile
from tfplace.files import locked, writing
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.backends.compiled import compiled_running
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running, empty_step_s
from tfplace.measurement.backends.stepstats import StepStats, read_stats
from tfplace.measurement.protocol.interference import watch_backend
from tfplace.measurement.protocol.sampling import TOLERANCE

WARMUP, STEPS = 3, 10
ATTEMPTS = 2
"""Steps tried at most, in multiples of those wanted."""

MAX_OVERLAP = 0.05
"""Share of an op's time that others may run in beside it before the measurement is refused."""

ONE_THREAD = "1 intra-op, 1 inter-op"

_MERGES = ("Merge", "RefMerge")

_USUAL = "2xP100"
"""A preset with a processor and GPUs."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What profiling a graph came to.

    Attributes:
      profile: what was known before and what was measured now.
      device: the device model's part of it.
      ran: whether the step had to be run.
      new: signatures measured now.
      unrun: ops that did not run by themselves. TensorFlow merges some (a convolution and its bias) into one of their
        readers, with which they then share its time; others were of a branch not taken, and are not measured.
      miscounted: ops that ran more or less often than the graph says.
      rejected: traced steps left out because something else used the processor.
      disturbed: how many of the steps that count were disturbed all the same, since too few were not.
    """

    profile: Profile
    device: DeviceProfile
    ran: bool = False
    new: int = 0
    unrun: int = 0
    miscounted: int = 0
    rejected: int = 0
    disturbed: int = 0


def default_cache() -> Path:
    """Where profiles are kept between runs: under `XDG_CACHE_HOME`, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfplace" / "profiles.json"


def profile_graph(
    graph: OpGraph,
    open_backend: Callable[[], Backend],
    model: str,
    *,
    device_type: str = "CPU",
    threads: str = ONE_THREAD,
    batch: Any = None,
    cache: str | Path | None = None,
    again: bool = False,
    compiled: bool = False,
    warmup: int = WARMUP,
    steps: int = STEPS,
    timeout_s: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Measures the signatures of a graph that are not in the cache yet, and adds them to it.

    A graph that ran before under the same setting, or whose signatures are all known, is not run.

    Args:
      graph: an extracted graph.
      open_backend: opens the backend whose first device of the type is measured; called only if a run is needed.
      model: the device's model, as in `Device.model`.
      device_type: TensorFlow device type.
      threads: how the backend runs ops, in words; times under different settings are kept apart.
      batch: what a step is given; see `step_inputs`.
      cache: a profile file that is read first and added to last; None for none.
      again: measure what is known too, and keep that instead.
      compiled: whether the step is measured compiled by XLA, too.
      warmup: steps run first and dropped.
      steps: traced steps that count.
      timeout_s: seconds a step may take; by default the backend's.
      progress: told what is being done.

    Raises:
      InputError: the cache is no profile, or no device of the type.
      ApplyError: the step cannot be run, or the device runs several ops at once.
      UnwrittenError: the cache cannot be written; what was measured is lost.
    """
    known = Profile.load(cache) if cache is not None and Path(cache).exists() else Profile()
    key = model, device_type, tensorflow_version(), threads
    before = known.find(key)
    wanted = {s for v, s in enumerate(signatures(graph)) if not graph.replicable[v]}
    step = before.step(graph.fingerprint)
    is_known = step is not None and step.compiled_s > 0 if compiled else step is not None or wanted <= set(before.ops)
    if is_known and not again:
        return Outcome(known.updated(before), before)
    backend = open_backend()
    try:
        turns, rejected, empty_s, compiled_s = _run(
            graph,
            backend,
            device_type=device_type,
            batch=batch,
            warmup=warmup,
            steps=steps,
            timeout_s=timeout_s,
            compiled=compiled,
            progress=progress or (lambda _: None),
        )
    finally:
        backend.close()
    found = _collect(graph, turns, empty_s, compiled_s, key)
    device = _added(before, found, again)
    if cache is not None:
        with writing(cache):
            _keep(Path(cache), found, again)
    executions = [turns[0].stats.seconds.get(name, (0.0, 0))[1] for name in graph.op_names]
    # what decides over a loop's next turn runs once more than its body
    counted, trips = np.array(executions)[~graph.replicable], graph.trips[~graph.replicable]
    return Outcome(
        known.updated(device),
        device,
        ran=True,
        new=len(found.ops) if again else len(set(found.ops) - set(before.ops)),
        unrun=int((counted == 0).sum()),
        miscounted=int(((counted > 0) & ((counted < trips) | (counted > trips + 1))).sum()),
        rejected=rejected,
        disturbed=sum(turn.disturbance > TOLERANCE for turn in turns),
    )


def _added(before: DeviceProfile, found: DeviceProfile, again: bool) -> DeviceProfile:
    """What was measured before stays, each signature being measured once, unless it was to be measured again."""
    ops = {**before.ops, **found.ops} if again else {**found.ops, **before.ops}
    return dataclasses.replace(found, ops=ops, steps=before.updated(found).steps)


def _keep(cache: Path, found: DeviceProfile, again: bool) -> None:
    """Adds to a file what was measured; others may have added to it meanwhile, and wait while this process does."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache.with_name(cache.name + ".lock")):
        kept = Profile.load(cache) if cache.exists() else Profile()
        kept.updated(_added(kept.find(found.key), found, again)).save(cache)


def tensorflow_version() -> str:
    """TensorFlow's version, and whether oneDNN's kernels are switched off."""
    off = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0"
    return f"{tf.__version__}{' without oneDNN' if off else ''}"


@dataclass(frozen=True)
class _Turn:
    """An untraced step's seconds, and the traced step after it."""

    step_s: float
    stats: StepStats
    disturbance: float


def _run(
    graph: OpGraph,
    backend: Backend,
    *,
    device_type: str,
    batch: Any,
    warmup: int,
    steps: int,
    timeout_s: float | None,
    compiled: bool,
    progress: Progress,
) -> tuple[list[_Turn], int, float, float]:
    """The turns that count, how many do not, and the seconds of an empty step and of a compiled one, 0 for none."""
    device = _first(backend.devices, device_type)
    progress("preparing the step")
    program = StepGraph(graph, batch)
    program.place(_everywhere(graph, device))
    try:
        turns = _turns(Running(program, backend, timeout_s), backend, warmup, steps, progress)
        empty_s = empty_step_s(backend, device)
        if compiled:
            progress("compiling the step")
        compiled_s = _compiled_s(program, backend, device, steps, timeout_s) if compiled else 0.0
    except Exception as error:
        failure = backend.failure_of(error)
        if failure is None:
            raise
        late = "Give it more time (--step_timeout, timeout_s), or a smaller batch."
        hint = late if failure.kind is FailureKind.TIME_OUT else ""
        raise ApplyError(f"a step that fails on {device}: {failure}", "a step that runs there", hint) from error
    _refuse_overlap(turns, device)
    kept = sorted(turns, key=lambda t: max(t.disturbance, TOLERANCE))[:steps]
    return kept, len(turns) - len(kept), empty_s, compiled_s


def _compiled_s(program: StepGraph, backend: Backend, device: str, steps: int, timeout_s: float | None) -> float:
    """Median seconds of a compiled step; 0 if nothing of it can be compiled."""
    where = _everywhere(program.graph, device)
    devices = sorted({*where.values()})
    op_device = np.array([devices.index(where[op]) for op in program.graph.op_names], np.int32)
    if not can_compile(devices):
        return 0.0
    running = compiled_running(program, backend, op_device, devices, {}, timeout_s=timeout_s)
    if running is None:
        return 0.0
    try:
        return float(np.median([running() for _ in range(WARMUP + steps)][WARMUP:]))
    finally:
        running.close()


def _turns(running: Running, backend: Backend, warmup: int, steps: int, progress: Progress) -> list[_Turn]:
    try:
        progress("warming up")
        for _ in range(warmup):
            running()
        watch: Callable[[], float] = watch_backend(backend) or (lambda: 0.0)
        turns: list[_Turn] = []
        progress("tracing steps")
        while sum(t.disturbance <= TOLERANCE for t in turns) < steps and len(turns) < ATTEMPTS * steps:
            watch()
            step_s, metadata = running(), running.traced()
            disturbance = watch()
            turns.append(_Turn(step_s, read_stats(metadata), disturbance))
        return turns
    finally:
        running.close()


def _everywhere(graph: OpGraph, device: str) -> dict[str, str]:
    """Every op on one device, save those without a kernel there, which go to its host."""
    host = tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0).to_string()
    kind = graph.kernel_types.index(tf.DeviceSpec.from_string(device).device_type)
    together: dict[int, bool] = {}
    for v, group in enumerate(graph.resource.tolist()):
        together[group] = together.get(group, True) and bool(graph.has_kernel[v, kind])
    able = [together[g] if g >= 0 else bool(graph.has_kernel[v, kind]) for v, g in enumerate(graph.resource.tolist())]
    return {name: device if able[v] else host for v, name in enumerate(graph.op_names)}


def _first(devices: Sequence[str], device_type: str) -> str:
    for device in devices:
        if tf.DeviceSpec.from_string(device).device_type == device_type:
            return device
    raise InputError(f"a device of type {device_type}", f"one of the backend's: {', '.join(devices)}")


def _refuse_overlap(turns: Sequence[_Turn], device: str) -> None:
    """Raises if ops ran beside one another: their times would then hold one another's."""
    shares = []
    for turn in turns:
        mine = [i for i, name in enumerate(turn.stats.devices) if name == device]
        start, finish = turn.stats.start_s[mine], turn.stats.finish_s[mine]
        latest = np.maximum.accumulate(finish) if len(finish) else finish
        beside = np.maximum(0.0, np.minimum(latest[:-1], finish[1:]) - start[1:]).sum()
        shares.append(beside / max((finish - start).sum(), 1e-12))
    if float(np.median(shares)) > MAX_OVERLAP:
        raise ApplyError(
            f"{device}, whose ops overlap for {float(np.median(shares)):.0%} of their time",
            "a device that runs one op at a time",
            "Profile on a worker or session with one inter-op thread.",
        )


def _collect(
    graph: OpGraph, turns: Sequence[_Turn], empty_s: float, compiled_s: float, key: tuple[str, str, str, str]
) -> DeviceProfile:
    """Times pooled by signature: each op's median over the steps, added up over the ops and divided by executions."""
    table = np.array([[t.stats.seconds.get(name, (0.0, 0)) for name in graph.op_names] for t in turns])
    median, spread = np.median(table[:, :, 0], axis=0), _iqr(table[:, :, 0])
    executions = np.median(table[:, :, 1], axis=0).astype(int)
    unrun = np.flatnonzero((executions == 0) & ~graph.replicable)[::-1].tolist()  # what reads it first
    usual_s = _usual_seconds(graph, key[1]) if unrun else median
    for v in unrun:
        share = _take_share(graph, v, median, executions > 0, usual_s)
        if share is not None:
            executions[v], median[v] = max(1, int(graph.trips[v])), share
    members: dict[str, list[int]] = {}
    for v, text in enumerate(signatures(graph)):
        if executions[v] > 0 and not graph.replicable[v]:  # else of a branch that was not taken: not measured
            members.setdefault(text, []).append(v)
    step = ProfiledStep(
        graph=graph.name,
        fingerprint=graph.fingerprint,
        measured=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        step_s=float(np.median([t.step_s for t in turns])),
        empty_s=empty_s,
        ops_s=float(median[~graph.replicable].sum()),
        executions=int(executions[~graph.replicable].sum()),
        compiled_s=compiled_s,
    )
    ops = {text: _pooled(rows, median, spread, executions, len(turns)) for text, rows in members.items()}
    return DeviceProfile(*key, ops, (step,))


def _usual_seconds(graph: OpGraph, device_type: str) -> FloatArray:
    """[V] analytic seconds of the ops on some device of a type, of which only the proportions matter."""
    topology = Topology.load(_USUAL)
    column = next((d for d, device in enumerate(topology.devices) if device.type == device_type), 0)
    return analytic_costs(graph, topology).compute_s[:, column]


def _take_share(graph: OpGraph, v: int, seconds: FloatArray, ran: BoolArray, usual_s: FloatArray) -> float | None:
    """Seconds of an op that was merged into another: taken from that one's, by how long both take by themselves.

    By their operations alone a bias beside its convolution would count as free; apart from it, it reads and writes all
    of the convolution's result.

    None if nothing that ran can have done its work.
    """
    others = [u for u in does_its_work(graph, v) if ran[u]]
    if not others:
        return None
    other = max(others, key=seconds.__getitem__)
    share = float(seconds[other] * usual_s[v] / (usual_s[v] + usual_s[other]))
    seconds[other] -= share
    return share


def does_its_work(graph: OpGraph, v: int) -> list[int]:
    """What TensorFlow may have merged an op into.

    That is an op that reads it; but for the gradient of a convolution's bias, which oneDNN computes with the gradient
    of its filter (`MergeConv2DBackpropFilterWithBiasAddGrad` of TensorFlow's mkl_layout_pass.cc). A `Merge` reads what
    did not run either.
    """
    carried = graph.edge_tensor >= 0
    if graph.op_types[v] == "BiasAddGrad":
        read = graph.edge_tensor[(graph.edge_dst == v) & carried]
        beside = graph.edge_dst[np.isin(graph.edge_tensor, read) & carried].tolist()
        filters = [u for u in beside if graph.op_types[u] == "Conv2DBackpropFilter"]
        if filters:
            return filters
    readers = graph.edge_dst[(graph.edge_src == v) & carried].tolist()
    return [u for u in readers if graph.op_types[u] not in _MERGES]


def _pooled(rows: Sequence[int], median: FloatArray, spread: FloatArray, executions: Any, steps: int) -> OpTime:
    total = int(executions[rows].sum())
    return OpTime(float(median[rows].sum()) / total, float(spread[rows].sum()) / total, len(rows), steps)


def _iqr(samples: FloatArray) -> FloatArray:
    low, high = np.percentile(samples, [25, 75], axis=0)
    spread: FloatArray = high - low
    return spread
