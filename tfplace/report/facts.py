"""What is to be said about a placement, before it is a table, a page or JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tfplace.core.device import processor_of
from tfplace.core.placement import COMPILED, UNSPLIT, Placement
from tfplace.core.stepcost import MEASURED, SIMULATED, STEP_TIME, StepCost
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.layer_facts import layer_facts
from tfplace.report.waiting import waits, waits_line

# Step times closer than this fraction count as equal: the simulator is not that exact.
SAME = 0.001
_ELSEWHERE = {"mirrored": "tf.distribute.MirroredStrategy"}
"""Baselines that are no placements -> what a user would take instead."""


@dataclass(frozen=True)
class DeviceFacts:
    """One device's share of a simulated step.

    Attributes:
      name: device name.
      ops: number of ops placed there.
      compute_s: seconds it computes.
      transfer_s: seconds it sends or receives.
      idle: fraction of the step in which it does not compute.
      peak_bytes: highest memory in use.
      limit_bytes: memory that may be used.
    """

    name: str
    ops: int
    compute_s: float
    transfer_s: float
    idle: float
    peak_bytes: int
    limit_bytes: int

    def cells(self) -> tuple[str, ...]:
        """Texts for a table row under `DEVICE_HEADINGS`."""
        return (
            self.name,
            str(self.ops),
            format_seconds(self.compute_s),
            format_seconds(self.transfer_s),
            f"{100 * self.idle:.0f} %",
            format_bytes(self.peak_bytes),
            format_bytes(self.limit_bytes),
        )


DEVICE_HEADINGS = ("device", "ops", "compute", "transfer", "idle", "peak memory", "limit")


def device_facts(placement: Placement) -> list[DeviceFacts]:
    """A row per device, in the topology's order: the simulated breakdown, whoever measured the step."""
    ops = np.bincount(placement.op_device, minlength=len(placement.device_names))
    cost = placement.predicted
    return [
        DeviceFacts(
            name,
            int(ops[d]),
            float(cost.compute_s[d]),
            float(cost.transfer_s[d]),
            float(cost.idle_s[d] / cost.step_s) if cost.step_s > 0 else 0.0,
            int(cost.peak_bytes[d]),
            int(cost.limit_bytes[d]),
        )
        for d, name in enumerate(placement.device_names)
    ]


def title(placement: Placement) -> str:
    """What was placed where, and by whom."""
    what = placement.problem.graph.name if placement.problem is not None else f"graph {placement.graph_fingerprint}"
    return (
        f"{what}: {len(placement.op_names)} ops on {placement.topology_name}, "
        f"by {placement.placer}, seed {placement.seed}"
    )


@dataclass(frozen=True)
class Wording:
    """What the numbers of placements are called, by their objective.

    Attributes:
      devices: title of the table of devices.
      others: title of the table of other placements.
      number: the number that says how good a placement is.
      column: heading of such numbers.
      whole: what a device's compute and transfer are parts of.
      key: of the number in JSON.
    """

    devices: str
    others: str
    number: str
    column: str
    whole: str
    key: str


def wording(objective: str, source: str = SIMULATED) -> Wording:
    """A load is never called a step time."""
    if objective == STEP_TIME:
        return Wording("Devices (simulated)", f"Step times ({source})", "step time", "step", "the step", "step_s")
    return Wording(
        "Loads of the devices, per sample of a full pipeline",
        "Largest loads (objective: throughput)",
        "largest load",
        "largest load",
        "the largest load",
        "load_s",
    )


def said(placement: Placement) -> list[str]:
    """The step time, what it waits for, which devices are one, slices, their order, and what the placer noted."""
    return [*said_of_step(placement), *placement.notes]


def said_of_step(placement: Placement) -> list[str]:
    """The same without the notes."""
    lines = [step_line(placement), waits_line(placement), shared_line(placement), slices_line(placement)]
    return [line for line in (*lines, order_line(placement)) if line]


def notes_by_subject(placement: Placement) -> tuple[list[str], list[str]]:
    """Notes on the placement, and those on how its search went, which begin with the placer's name."""
    of_search = f"{placement.placer.partition(' ')[0]}: "
    notes: tuple[list[str], list[str]] = ([], [])
    for note in placement.notes:
        notes[note.startswith(of_search)].append(note)
    return notes


def slices_line(placement: Placement) -> str:
    """The slices of a split step, and whether its numbers stay the same; empty of a whole step."""
    slices = None if placement.problem is None else placement.problem.graph.slices
    return "" if slices is None else str(slices)


def order_line(placement: Placement) -> str:
    """The order of the phases on each device; empty where none is kept."""
    if placement.phases is None:
        return ""
    counts = [
        len(np.unique(placement.phases[(placement.op_device == d) & (placement.phases >= 0)]))
        for d in range(len(placement.device_names))
    ]
    each = ", ".join(f"{n} on {name}" for name, n in zip(placement.device_names, counts, strict=True) if n)
    return f"order {placement.order}, phases run one after another: {each or 'none'}"


def step_line(placement: Placement) -> str:
    """The step time, or the largest load, and how near it is to the bound."""
    predicted = placement.predicted
    step, bound = predicted.step_s, placement.bound_s
    if placement.cost.objective == STEP_TIME:
        line = f"simulated step time {format_seconds(step)}, {format_bytes(predicted.moved_bytes)} moved"
    else:
        line = f"objective throughput: a sample every {format_seconds(step)}, the largest load of a device; "
        line += f"{format_bytes(predicted.moved_bytes)} moved per sample"
    if bound > 0:
        near = f"within {100 * (step / bound - 1):.1f} % of" if step < 2 * bound else f"{step / bound:.1f} times"
        line += f"; {near} the bound of {format_seconds(bound)}"
    return line if placement.cost is predicted else f"{_evaluated(placement.cost)}; {line}"


def shared_line(placement: Placement, devices: Mapping[str, str] | None = None) -> str:
    """That devices in use have the same cores, where times were not measured; empty if none have.

    Args:
      placement: the placement.
      devices: as in `shared_devices`.
    """
    shared = shared_devices(placement, devices)
    if not shared or placement.cost.source == MEASURED:
        return ""
    groups = "; ".join(", ".join(names) for names in shared)
    source = placement.cost.source
    return f"same cores: {groups}. Times are {source} as if each had its own; measure before you rely on them"


def shared_devices(placement: Placement, devices: Mapping[str, str] | None = None) -> list[list[str]]:
    """Devices with ops that compute on the same processor.

    Args:
      placement: the placement.
      devices: placement device -> TensorFlow device; others keep their name.
    """
    on: dict[str, list[str]] = {}
    for d in np.unique(placement.op_device).tolist():
        name = placement.device_names[d]
        on.setdefault(processor_of((devices or {}).get(name, name)), []).append(name)
    return [names for names in on.values() if len(names) > 1]


def _evaluated(cost: StepCost) -> str:
    """A step time that is not simulated, with what is known of how it was measured."""
    line = f"{cost.source} step time {format_seconds(cost.step_s)}"
    samples = cost.samples
    if samples is None:
        return line
    line += f" (median of {len(samples.step_s)} steps, interquartile range {format_seconds(samples.spread_s)}"
    line += f", {samples.rejected} disturbed steps left out" if samples.rejected else ""
    line += f", {samples.disturbed} disturbed steps kept" if samples.disturbed else ""
    return line + (f", {samples.ratio:.3f} of the reference)" if samples.ratio is not None else ")")


def verdict(placement: Placement) -> str:
    """Whether the placement beats keeping everything on one device, in one line."""
    if not placement.cost.feasible:
        return "this placement does not fit"
    if not any(name.startswith("single ") for name in placement.baselines):
        return "not compared with single devices"
    best = placement.best_single
    other, fastest = baseline_order(placement)[0]
    other = _ELSEWHERE.get(other.removesuffix(COMPILED), other)
    if best is None:
        if fastest.feasible and _ratio(placement.cost, fastest) > 1 + _same(placement.cost, fastest):
            faster = _times(_ratio(placement.cost, fastest))
            return f"no single device fits; take {other}: {faster} faster than this placement"
        return "no single device fits; this placement does"
    name, cost = best[0].removeprefix("single ").removesuffix(UNSPLIT), best[1]
    if all(_ratio(beaten, fastest) > 1 + _same(beaten, fastest) for beaten in (placement.cost, cost)):
        return (
            f"take {other}: {_times(_ratio(placement.cost, fastest))} faster than this placement, "
            f"{_times(_ratio(cost, fastest))} faster than {name}"
        )
    same = _same(placement.cost, cost)
    if _ratio(cost, placement.cost) > 1 + same:
        return f"{_times(_ratio(cost, placement.cost))} faster than {_alone(placement)} ({name})"
    if _ratio(placement.cost, cost) > 1 + same:
        slower = _times(_ratio(placement.cost, cost))
        return f"stay on {name}: this placement is {slower} slower than {_alone(placement)}"
    return f"stay on {name}: no faster placement was found"


def _alone(placement: Placement) -> str:
    """What is compared with; a step that is not split has fewer ops and may be faster on one device."""
    slices = None if placement.problem is None else placement.problem.graph.slices
    if slices is None:
        return "the best single device"
    if any(name.endswith(UNSPLIT) for name in placement.baselines):
        return "the whole step on the best single device"
    return f"all {len(slices.sizes)} slices on the best single device"


def baseline_order(placement: Placement) -> list[tuple[str, StepCost]]:
    """Baselines, fastest first, those that do not fit last."""
    return sorted(placement.baselines.items(), key=lambda item: (*item[1].key, item[0]))


def misfit(cost: StepCost, device_names: tuple[str, ...]) -> str:
    """Why a placement does not fit: the device that is most over, with its numbers; empty when it fits."""
    if cost.feasible:
        return ""
    if cost.failure is not None:
        return f"failed: {cost.failure}"
    worst = int(np.argmax(cost.peak_bytes - cost.limit_bytes))
    need, limit = format_bytes(cost.peak_bytes[worst]), format_bytes(cost.limit_bytes[worst])
    return f"does not fit (needs {need} of {limit} on {device_names[worst]})"


def versus(placement: Placement, cost: StepCost) -> str:
    """How another step time compares with the placement's."""
    ratio = _ratio(cost, placement.cost)
    if abs(ratio - 1) <= _same(placement.cost, cost):
        return "the same"
    return f"{_times(ratio)} slower" if ratio > 1 else f"{_times(_ratio(placement.cost, cost))} faster"


def _ratio(one: StepCost, other: StepCost) -> float:
    """Seconds of one over those of the other: 1 if neither takes any, infinite if only the other takes none."""
    if other.step_s > 0:
        return one.step_s / other.step_s
    return math.inf if one.step_s > 0 else 1.0


def _same(one: StepCost, other: StepCost) -> float:
    """The fraction by which two step times may differ and count as equal; measured ones by half of their spreads."""
    spread = sum(cost.samples.spread_s / cost.samples.median_s for cost in (one, other) if cost.samples is not None)
    return max(SAME, spread / 2)


def _times(ratio: float) -> str:
    if math.isinf(ratio):
        return "infinitely many times"
    return f"{ratio:.2f} times" if ratio >= 1.05 else f"{100 * (ratio - 1):.1f} %"


def placement_facts(placement: Placement) -> dict[str, Any]:
    """The same as plain data, for programs: seconds and bytes.

    Under "simulated" is the prediction, under the evaluator's name ("measured", "grappler") what it said, if it was
    another.
    """
    predicted, by_step = placement.predicted, placement.cost.objective == STEP_TIME
    sections: dict[str, dict[str, Any]] = {
        "simulated" if by_step else placement.cost.objective: {
            wording(placement.cost.objective).key: predicted.step_s,
            "bound_s": placement.bound_s,
            "moved_bytes": predicted.moved_bytes,
            "waits_for": [asdict(one) for one in waits(placement)],
            "devices": [asdict(row) for row in device_facts(placement)],
            "layers": [asdict(row) for row in layer_facts(placement)],
        }
    }
    own = placement.cost.source if by_step else placement.cost.objective
    sections.setdefault(own, {}).update(_compared(placement))
    return {
        "title": title(placement),
        "verdict": verdict(placement),
        "topology": placement.topology_name,
        "placer": placement.placer,
        "seed": placement.seed,
        "objective": placement.cost.objective,
        "notes": list(placement.notes),
        "sharing_cores": shared_devices(placement),
        "slices": _slices_facts(placement),
        "order": placement.order,
        **sections,
        "graph_fingerprint": placement.graph_fingerprint,
        "topology_fingerprint": placement.topology_fingerprint,
        "versions": dict(placement.versions),
    }


def _slices_facts(placement: Placement) -> dict[str, Any] | None:
    """How the step was split; None of a whole one."""
    slices = None if placement.problem is None else placement.problem.graph.slices
    if slices is None:
        return None
    return {
        "sizes": list(slices.sizes),
        "verdict": slices.verdict,
        "differences": [asdict(one) for one in slices.differences],
        "gathered": list(slices.gathered),
    }


def _compared(placement: Placement) -> dict[str, Any]:
    """What the search's evaluator said of the placement and of the baselines."""
    best = placement.best_single
    cost = placement.cost
    key = wording(placement.cost.objective).key
    out: dict[str, Any] = {
        key: cost.step_s,
        "best_single": None if best is None else best[0].removeprefix("single "),
        "speedup_over_best_single": None if best is None or cost.step_s <= 0 else best[1].step_s / cost.step_s,
        "baselines": [
            {
                "name": name,
                key: other.step_s if other.feasible else None,
                "fits": other.feasible,
                "peak_bytes": other.peak_bytes.tolist(),
                **({"failure": str(other.failure)} if other.failure is not None else {}),
            }
            for name, other in baseline_order(placement)
        ],
    }
    if cost.samples is not None:
        s = cost.samples
        counts = {"steps": len(s.step_s), "rejected": s.rejected, "disturbed": s.disturbed}
        out |= {"spread_s": s.spread_s, "ratio": s.ratio, **counts}
    return out
