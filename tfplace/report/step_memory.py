"""What a step needs of one device's memory, by kind and by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfplace.core.graph import OpGraph
from tfplace.core.passes import is_backward
from tfplace.core.problem import Problem
from tfplace.errors import InputError
from tfplace.formatting import format_bytes
from tfplace.group.slots import slots_of
from tfplace.local_search.devices import single_device
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.holdings import Holding, HoldingKind
from tfplace.simulation.options import Options

KINDS = ("weights", "optimizer slots", "other state", "batch", "activations", "gradients", "workspace", "copies")
LARGEST = 10
CPU_OPS_AT_ONCE = 2
"""TensorFlow runs ops on a CPU while others still run, so more is held; with 2, peaks agree best with real ones."""


@dataclass(frozen=True)
class HeldTensor:
    """One of the largest tensors or other allocations in a device's memory.

    Attributes:
      name: name of the variable, or of the op whose result or workspace it is.
      kind: one of `KINDS`.
      size_bytes: size in bytes.
      shape: shape of the tensor; None if it is not a tensor, or has unknown rank.
    """

    name: str
    kind: str
    size_bytes: int
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class StepMemory:
    """The simulated memory of one device at the peak of a step.

    Attributes:
      model: name of the graph.
      device: name of the device.
      peak_bytes: peak memory.
      limit_bytes: bytes that may be used.
      by_kind: one of `KINDS` -> bytes. They add up to the peak.
      largest: the largest tensors and other allocations at the peak, at most ten.
      elsewhere_bytes: the highest peak memory of another device, for ops that cannot run on this one.
    """

    model: str
    device: str
    peak_bytes: int
    limit_bytes: int
    by_kind: Mapping[str, int]
    largest: tuple[HeldTensor, ...]
    elsewhere_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether the peak is within the limit."""
        return self.peak_bytes <= self.limit_bytes

    def summary(self) -> str:
        """The result as text."""
        verdict = "fits" if self.fits else "does not fit"
        lines = [
            f"{self.model} on {self.device}: {format_bytes(self.peak_bytes)} at the peak of a step (simulated); "
            f"{verdict} in {format_bytes(self.limit_bytes)}.",
            "",
        ]
        lines += [f"  {kind:<16} {format_bytes(size):>10}" for kind, size in self.by_kind.items() if size]
        lines += ["", "The largest at the peak:"]
        for held in self.largest:
            shape = "" if held.shape is None else f" {list(held.shape)}"
            lines.append(f"  {format_bytes(held.size_bytes):>10}  {held.kind:<16} {held.name}{shape}")
        if self.elsewhere_bytes:
            lines += ["", f"Ops that cannot run on {self.device} hold {format_bytes(self.elsewhere_bytes)} elsewhere."]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        return {
            "model": self.model,
            "device": self.device,
            "peak_bytes": self.peak_bytes,
            "limit_bytes": self.limit_bytes,
            "fits": self.fits,
            "by_kind": dict(self.by_kind),
            "largest": [
                {"name": h.name, "kind": h.kind, "size_bytes": h.size_bytes, "shape": h.shape} for h in self.largest
            ],
            "elsewhere_bytes": self.elsewhere_bytes,
        }


def step_memory(problem: Problem, device: str | None = None) -> StepMemory:
    """Simulates the memory of a step with everything on one device. Nothing is searched.

    Args:
      problem: the graph and the devices.
      device: name of the device; by default the first accelerator, or the first device if there is none.

    Raises:
      UnknownNameError: no such device.
      InputError: the problem's graph has no tensors, for example because it is a workload from a file.
    """
    topology, graph = problem.topology, problem.graph
    if not graph.num_tensors:
        raise InputError(f"{graph.name!r}, which has no tensors", "a model's graph")
    accelerators = [d.name for d in topology.devices if d.type != "CPU"]
    name = device or (accelerators or [topology.devices[0].name])[0]
    d = topology.index(name)
    op_device = problem.expand(single_device(problem, d))
    at_once = CPU_OPS_AT_ONCE if topology.devices[d].type == "CPU" else 1
    simulator = Simulator(problem, Options(parallel=at_once))
    cost = simulator.devices(op_device)
    by_kind, largest = held_by_kind(graph, simulator.holdings(op_device, d))
    return StepMemory(
        model=graph.name,
        device=name,
        peak_bytes=int(cost.peak_bytes[d]),
        limit_bytes=int(cost.limit_bytes[d]),
        by_kind=by_kind,
        largest=largest,
        elsewhere_bytes=int(max((int(b) for i, b in enumerate(cost.peak_bytes) if i != d), default=0)),
    )


def held_by_kind(graph: OpGraph, held: Sequence[Holding]) -> tuple[dict[str, int], tuple[HeldTensor, ...]]:
    """Bytes of each of `KINDS`, and the largest pieces, of what a device holds, the largest first."""
    slots = slots_of(graph)
    kinds = [_kind(graph, slots, holding) for holding in held]
    by_kind = {kind: sum(h.size_bytes for h, k in zip(held, kinds, strict=True) if k == kind) for kind in KINDS}
    return by_kind, tuple(_held(graph, h, k) for h, k in zip(held[:LARGEST], kinds, strict=False))


def _kind(graph: OpGraph, slots: Mapping[int, int], holding: Holding) -> str:
    if holding.kind == HoldingKind.COPY:
        return "copies"
    if holding.kind == HoldingKind.WORKSPACE:
        return "workspace"
    if holding.kind == HoldingKind.VARIABLE:
        if holding.op in slots:
            return "optimizer slots"
        return "weights" if any(v.trainable for v in graph.variables if v.op == holding.op) else "other state"
    if graph.tensor_dtype[int(graph.op_tensors[holding.op]) + holding.slot] == "resource":
        return "other state"
    if graph.op_types[holding.op] == "Placeholder":
        return "batch"
    return "gradients" if is_backward(graph.base_names[holding.op]) else "activations"


def _held(graph: OpGraph, holding: Holding, kind: str) -> HeldTensor:
    if holding.kind == HoldingKind.COPY:
        return HeldTensor("variables written while they are read", kind, holding.size_bytes, None)
    if holding.kind == HoldingKind.VARIABLE:
        name = next(v.name for v in graph.variables if v.op == holding.op)
        return HeldTensor(name, kind, holding.size_bytes, None)
    shape = None
    if holding.slot >= 0:
        shape = graph.tensor_shape[int(graph.op_tensors[holding.op]) + holding.slot]
    return HeldTensor(graph.op_names[holding.op], kind, holding.size_bytes, shape)
