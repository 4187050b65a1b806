"""What each device of a placement holds when it holds most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfplace.core.kept import kept
from tfplace.core.placement import Placement
from tfplace.formatting import format_bytes
from tfplace.report.step_memory import HeldTensor, held_by_kind
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import WITHOUT_PHASES


@dataclass(frozen=True)
class PeakMemory:
    """The peak of one device; simulated.

    Attributes:
      device: its name.
      limit_bytes: what it may use.
      by_kind: one of `tfplace.report.step_memory.KINDS` -> bytes; they add up to the peak.
      largest: the largest pieces, at most ten.
    """

    device: str
    limit_bytes: int
    by_kind: Mapping[str, int]
    largest: tuple[HeldTensor, ...]

    @property
    def peak_bytes(self) -> int:
        """The most that it holds."""
        return sum(self.by_kind.values())

    @property
    def part(self) -> float:
        """Of what it may use."""
        return self.peak_bytes / max(self.limit_bytes, 1)

    def kinds(self, most: int) -> str:
        """The kinds that take most, in words."""
        ranked = sorted(((size, kind) for kind, size in self.by_kind.items() if size), reverse=True)
        return ", ".join(f"{kind} {format_bytes(size)}" for size, kind in ranked[:most])


@kept
def peak_memory(placement: Placement) -> tuple[PeakMemory, ...]:
    """[D] the peaks of a placement's devices; none if it does not know its problem, or that has no tensors."""
    problem = placement.problem
    if problem is None or not problem.graph.num_tensors:
        return ()
    simulator = Simulator(problem, WITHOUT_PHASES, phases=placement.phases, threads=1)
    limits = placement.predicted.limit_bytes.tolist()
    return tuple(
        PeakMemory(name, limit, *held_by_kind(problem.graph, simulator.holdings(placement.op_device, d)))
        for d, (name, limit) in enumerate(zip(placement.device_names, limits, strict=True))
    )
