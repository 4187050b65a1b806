"""Where TensorFlow really ran each op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfplace.core.graph import OpGraph
from tfplace.execution.clusters import Clusters
from tfplace.execution.devices import canonical, short

# TensorFlow's partitioner puts these with the ops they steer, wherever they were asked to be.
CONTROL_FLOW = {"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration"}
CONTROL_FLOW |= {"RefNextIteration", "LoopCond", "ControlTrigger", "_SwitchN"}


@dataclass(frozen=True)
class Moved:
    """An op that did not run on the requested device, or did not run at all.

    Attributes:
      op: name of the op.
      asked: device in the placement.
      ran: device on which it ran; None if it was optimized away.
      reason: why, as far as that is known.
    """

    op: str
    asked: str
    ran: str | None
    reason: str


@dataclass(frozen=True)
class ActualPlacement:
    """Where TensorFlow really ran each op, read from the partitioned graphs of the first call.

    Attributes:
      devices: op name -> device on which it ran, by its name in the placement if it has one. Arguments and ops that did
        not run are left out.
      moved: ops that did not run on the requested device, or did not run at all.
      arguments: argument op -> device of its data when the program was called. TensorFlow reads it from there.
      copies: constant that was copied to several devices -> the additional devices.
      clusters: which ops were compiled, and why others were not; None for a step that ran op by op.
    """

    devices: Mapping[str, str]
    moved: tuple[Moved, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clusters: Clusters | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Maps each device to the number of ops that ran there."""
        return dict(sorted(Counter(self.devices.values()).items()))

    def summary(self, limit: int = 10) -> str:
        """The number of ops on each device and the moved ops, as text. Names at most `limit` ops for each reason."""
        devices = f"{len(self.counts)} device{'s' if len(self.counts) != 1 else ''}"
        lines = [f"{len(self.devices)} ops ran on {devices}"]
        lines += [f"  {device}: {count} ops" for device, count in self.counts.items()]
        if self.clusters is not None:
            lines += _cluster_lines(self.clusters)
        by_reason: dict[str, list[Moved]] = {}
        for moved in self.moved:
            by_reason.setdefault(moved.reason, []).append(moved)
        lines.append(f"{len(self.moved)} ops ran elsewhere than asked" + (":" if self.moved else "."))
        for reason, group in by_reason.items():
            lines.append(f"  {len(group)} {reason}")
            lines += [f"    {m.op}: asked {m.asked}, ran {m.ran or 'nowhere'}" for m in group[:limit]]
            if len(group) > limit:
                lines.append(f"    and {len(group) - limit} more")
        return "\n".join(lines)


def nodes_by_device(graph_defs: Iterable[Any]) -> dict[str, str]:
    """Op name -> full device name, over the partitions of a graph."""
    return {node.name: canonical(node.device) for graph_def in graph_defs for node in graph_def.node}


def compare(
    graph: OpGraph,
    asked: Mapping[str, str],
    ran: Mapping[str, str],
    *,
    names: Mapping[str, str],
    fixed: Mapping[str, str],
    arguments: Iterable[str],
    copies: Mapping[str, str],
    clusters: Clusters | None = None,
) -> ActualPlacement:
    """Sets what was asked against what ran.

    Args:
      graph: the ops.
      asked: op -> full device name the placement asks for.
      ran: op or copy -> full device name as run.
      names: full device name -> the placement's name for it.
      fixed: op -> why it could not be where it was asked to be.
      arguments: ops that stand for arguments.
      copies: copied constant -> its constant.
      clusters: what was compiled.
    """
    fed = set(arguments)
    copied: dict[str, list[str]] = {}
    for copy, constant in copies.items():
        if copy in ran:
            copied.setdefault(constant, []).append(_name(ran[copy], names))
    moved = [
        Moved(op, _name(asked[op], names), _name(ran[op], names) if op in ran else None, why)
        for v, op in enumerate(graph.op_names)
        if op not in fed and ran.get(op) != asked[op] and (why := _why(graph, v, ran, fixed, copied))
    ]
    return ActualPlacement(
        devices={op: _name(ran[op], names) for op in graph.op_names if op in ran and op not in fed},
        moved=tuple(moved),
        arguments={op: _name(ran[op], names) for op in graph.op_names if op in fed and op in ran},
        copies={op: tuple(devices) for op, devices in copied.items()},
        clusters=clusters,
    )


def _why(
    graph: OpGraph, v: int, ran: Mapping[str, str], fixed: Mapping[str, str], copied: Mapping[str, list[str]]
) -> str:
    """Why op `v` is not where it was asked to be; empty for a constant of which only copies are read."""
    op, kind = graph.op_names[v], graph.op_types[v]
    if op not in ran:
        return "" if op in copied else "optimized away"
    if op in fixed:
        return fixed[op]
    if kind in CONTROL_FLOW:
        return "control flow, which runs with the ops it steers"
    if graph.resource[v] >= 0:
        return "bound to a resource that is elsewhere"
    return "no kernel for the asked device, or moved by TensorFlow for a reason it does not tell"


def _name(device: str, names: Mapping[str, str]) -> str:
    return names.get(device) or short(device)


def _cluster_lines(clusters: Clusters, limit: int = 4) -> list[str]:
    """How many ops are compiled on each device, and what runs op by op, as text; at most `limit` reasons."""
    ops, count = Counter[str](), Counter[str]()
    for cluster in clusters.clusters:
        ops[cluster.device] += len(cluster.ops)
        count[cluster.device] += 1
    lines = [f"compiled by XLA: {clusters}; op by op: {len(clusters.left_out):,}"]
    lines += [f"  {short(d)}: {ops[d]} ops in {count[d]} cluster{'s' * (count[d] > 1)}" for d in sorted(ops)]
    reasons = [f"{number} {why}" for why, number in clusters.reasons.items()]
    rest = f", {len(reasons) - limit} more reasons" if len(reasons) > limit else ""
    return lines + ([f"  left out: {', '.join(reasons[:limit])}{rest}"] if reasons else [])
