"""One graph, costed under many placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from grappler_bridge.check import EXECUTIONS, MAX_EXECUTIONS
from grappler_bridge.cluster import VirtualDevice, device_names
from grappler_bridge.costs import GraphCosts, PeakMemory, measure_costs, peak_memory
from grappler_bridge.transfers import Link, Tensor, WithTransfers, add_transfers, copy_constants

_VARIABLE_READS = {"ReadVariableOp"}


@dataclass(frozen=True)
class Step:
    """A graph and where it may run; plain data, so that it can be sent to another process.

    Attributes:
      meta: a serialized MetaGraphDef of a flat graph, what to run in its `train_op` collection.
      ops: names of the ops that are placed; all but fetched `NoOp`s.
      devices: [D] the cluster.
      links: one for every ordered pair of devices.
      tensors: "op:slot" -> type and size of everything that may be sent.
      executions: op -> how often it runs in a step, where that is not once.
      copied: constants that are copied to every device that reads them instead of being sent.
    """

    meta: bytes
    ops: tuple[str, ...]
    devices: tuple[VirtualDevice, ...]
    links: tuple[Link, ...]
    tensors: Mapping[str, Tensor]
    executions: Mapping[str, int] = field(default_factory=dict)
    copied: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepFigures:
    """What a step costs under one placement, transfers included.

    Attributes:
      step_s: when the last op ends.
      compute_s: [D] seconds each device is busy with ops of the graph.
      channel_s: channel -> (start, seconds) of each transfer it serves.
      peak_bytes: [D] bytes of tensors held at the time Grappler takes for the peak; reads of variables, which Grappler
        counts as copies, and the variables themselves left out. None where Grappler says nothing that can be true.
      moved_bytes: bytes sent.
    """

    step_s: float
    compute_s: tuple[float, ...]
    channel_s: Mapping[str, tuple[tuple[float, float], ...]]
    peak_bytes: tuple[int | None, ...]
    moved_bytes: int


class StepGraph:
    """A step, read once.

    Args:
      step: what it is.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._names = device_names(step.devices)
        self._meta = tf.compat.v1.MetaGraphDef.FromString(step.meta)
        for node in self._meta.graph_def.node:
            if node.name in step.executions:
                node.attr[EXECUTIONS].i = min(max(step.executions[node.name], 1), MAX_EXECUTIONS)

    def own_s(self, op_device: Sequence[int]) -> float:
        """Step seconds by Grappler alone, to which transfers are free.

        Args:
          op_device: device of each of `Step.ops`.

        Raises:
          GrapplerInputError, GrapplerError: as `measure_costs`.
        """
        return measure_costs(self._placed(op_device), self._step.devices).step_s

    def figures(self, op_device: Sequence[int]) -> StepFigures:
        """Everything that is known of a step, transfers included.

        Args:
          op_device: device of each of `Step.ops`.

        Raises:
          GrapplerInputError, GrapplerError: as `measure_costs`.
        """
        step = self._step
        sent = add_transfers(self._placed(op_device), step.devices, step.links, step.tensors)
        costs = measure_costs(sent.meta, sent.devices)
        memory = peak_memory(sent.meta, sent.devices)
        ops = set(step.ops)
        compute_s = GraphCosts(costs.step_s, tuple(op for op in costs.ops if op.name in ops)).busy_s()
        reads = {node.name for node in sent.meta.graph_def.node if node.op in _VARIABLE_READS}
        return StepFigures(
            step_s=costs.step_s,
            compute_s=tuple(compute_s.get(name, 0.0) for name in self._names),
            channel_s=_channel_s(sent, costs),
            peak_bytes=tuple(_without(memory[name], reads) for name in self._names),
            moved_bytes=sent.moved_bytes,
        )

    def _placed(self, op_device: Sequence[int]) -> Any:
        place = dict(zip(self._step.ops, op_device, strict=True))
        for node in self._meta.graph_def.node:
            if node.name in place:
                node.device = self._names[place[node.name]]
        return copy_constants(self._meta, self._step.copied)


def _channel_s(sent: WithTransfers, costs: GraphCosts) -> dict[str, tuple[tuple[float, float], ...]]:
    channel_of = {device: channel for channel, device in sent.channels.items()}
    served: dict[str, list[tuple[float, float]]] = {channel: [] for channel in sent.channels}
    for op in costs.ops:
        if op.device in channel_of:
            served[channel_of[op.device]].append((op.start_s, op.seconds))
    return {channel: tuple(sorted(times)) for channel, times in served.items()}


def _without(peak: PeakMemory, ops: set[str]) -> int | None:
    if peak.size_bytes is None:
        return None
    return peak.size_bytes - sum(tensor.size_bytes for tensor in peak.tensors if tensor.op in ops)
