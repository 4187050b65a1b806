"""Placement: which device every op runs on, and the predicted cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tfplace.core.arrays import IntArray, freeze
from tfplace.core.compilation import AUTO, COMPILATIONS
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.stepcost import STEP_TIME, StepCost
from tfplace.core.timeline import Timeline
from tfplace.errors import PlacementError
from tfplace.files import write_whole
from tfplace.formatting import format_seconds
from tfplace.registry import SERVICES

FREE = "free"
"""The order of a placement without phases: ops run as they become ready."""

BY_USE = "by_use"
"""The order in which variables are read shortly before the forward pass needs them; see `tfplace.simulation.phases`."""

CRITICAL_PATH = "critical_path"
"""The order in which ops with the longest path to the end go first; see `tfplace.simulation.stretches`."""

_OF_ANOTHER = (
    "step time, memory, bound and baselines are from another problem, with other costs, limits or rules; "
    "tfplace.simulate(problem, placement) computes them again"
)

COMPILED = ", compiled"
"""Suffix of the names of baselines whose step XLA compiles."""

UNSPLIT = ", unsplit"
"""Suffix of the names of baselines of the whole step, if the placement is for a step in slices."""


@dataclass(frozen=True, eq=False, repr=False)
class Placement:
    """A device for every op of one graph, and the predicted cost of a step.

    Attributes:
      op_names: [V] op names.
      device_names: [D] device names.
      op_device: [V] device index of each op.
      cost: the cost of a step, from the evaluator that the search used: simulated, measured or Grappler's.
      bound_s: lower bound, in seconds: no placement on this topology can be simulated faster.
      placer: name of the placer, with its settings.
      seed: random seed of the search.
      baselines: costs of other placements by the same evaluator, such as "single GPU:0".
      graph_fingerprint: fingerprint of the graph that it is for.
      topology_fingerprint: fingerprint of the topology that it is for.
      topology_name: name of the topology, for reports.
      versions: package name -> version with which it was made.
      problem: the problem that it solves; None after loading from a file without the graph.
      simulated: the simulated cost, if `cost` is not simulated; otherwise None.
      notes: remarks of the placer, such as how near a proven optimum it is.
      problem_fingerprint: fingerprint of its problem, including costs, limits and rules; empty if unknown.
      phases: [V] the phase of each op on its device, or -1 for none; None for a placement without phases. An op with a
        phase starts after all ops of earlier phases on its device have ended. Other ops start when they are ready.
      order: name of the order of phases, such as "gpipe" or "1f1b"; "free" without phases.
      compile: how the step runs: `NONE` (op by op), `XLA` (compiled), or `AUTO` (as the program's jit_compile says).
    """

    op_names: tuple[str, ...]
    device_names: tuple[str, ...]
    op_device: IntArray
    cost: StepCost
    bound_s: float
    placer: str
    seed: int
    graph_fingerprint: str
    topology_fingerprint: str
    topology_name: str
    baselines: Mapping[str, StepCost] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    problem: Problem | None = None
    simulated: StepCost | None = None
    notes: tuple[str, ...] = ()
    problem_fingerprint: str = ""
    phases: IntArray | None = None
    order: str = FREE
    compile: str = AUTO

    def __post_init__(self) -> None:
        if self.op_device.shape != (len(self.op_names),):
            raise PlacementError(
                f"devices of shape {self.op_device.shape}", f"one device for each of {len(self.op_names)} ops"
            )
        if self.op_device.size and (self.op_device.min() < 0 or self.op_device.max() >= len(self.device_names)):
            raise PlacementError("a device index out of range", f"0..{len(self.device_names) - 1}")
        if len(set(self.device_names)) < len(self.device_names):
            raise PlacementError(f"devices {', '.join(self.device_names)}", "unique device names")
        if not 0 <= self.bound_s < math.inf:
            raise PlacementError(f"a bound of {self.bound_s!r} s", "finite seconds of at least 0")
        if self.compile not in COMPILATIONS:
            raise PlacementError(f"compile {self.compile!r}", f"one of {', '.join(COMPILATIONS)}")
        freeze(self.op_device)
        self._check_phases()

    def _check_phases(self) -> None:
        if (self.phases is None) != (self.order == FREE):
            what = "without" if self.phases is None else "with"
            raise PlacementError(
                f"order {self.order!r} {what} phases", f"order {FREE!r} without phases, or another order with phases"
            )
        if self.phases is None:
            return
        if self.phases.shape != self.op_device.shape or self.phases.dtype.kind != "i":
            raise PlacementError(
                f"phases of shape {self.phases.shape} and type {self.phases.dtype}",
                f"a whole number for each of {len(self.op_names)} ops",
            )
        if self.phases.size and self.phases.min() < -1:
            raise PlacementError(f"phase {self.phases.min()}", "phases from 0 on, and -1 for ops that have none")
        freeze(self.phases)

    def __repr__(self) -> str:
        what = f"{self.cost.source} step" if self.cost.objective == STEP_TIME else "largest load"
        return (
            f"Placement({len(self.op_names)} ops on {self.topology_name}, by {self.placer}, {what} "
            f"{format_seconds(self.cost.step_s)}, bound {format_seconds(self.bound_s)})"
        )

    @cached_property
    def devices(self) -> Mapping[str, str]:
        """Maps each op name to its device name."""
        return {op: self.device_names[d] for op, d in zip(self.op_names, self.op_device.tolist(), strict=True)}

    @property
    def predicted(self) -> StepCost:
        """The simulated cost, with its breakdown per device; `cost` itself if that is simulated."""
        return self.cost if self.simulated is None else self.simulated

    @property
    def best_single(self) -> tuple[str, StepCost] | None:
        """Name and cost of the fastest single-device baseline that fits; None if none fits."""
        fits = {k: c for k, c in self.baselines.items() if k.startswith("single ") and c.feasible}
        return min(fits.items(), key=lambda item: item[1].step_s) if fits else None

    def check_graph(self, graph: OpGraph) -> None:
        """Checks that the placement is for `graph`.

        Raises:
          PlacementError: it is for another graph. The error says what differs.
        """
        if graph.fingerprint != self.graph_fingerprint:
            raise PlacementError(
                f"a placement of graph {self.graph_fingerprint}",
                f"one of graph {graph.fingerprint} ({graph.name})",
                _ops_that_differ(self.op_names, graph.op_names),
            )

    def _bound(self, graph: OpGraph | None, problem: Problem | None) -> Placement:
        """The same placement for a graph, its ops in that order, or for a problem, with which `timeline()` works."""
        placement = self if problem is None else replace(self, problem=problem)
        graph = problem.graph if problem is not None else graph
        if graph is not None:
            placement.check_graph(graph)
            placement = placement._in_order_of(graph)
        if problem is not None and problem.topology.fingerprint != placement.topology_fingerprint:
            raise PlacementError(
                f"a placement on topology {placement.topology_name} ({placement.topology_fingerprint}, devices "
                f"{', '.join(placement.device_names)})",
                f"one on {problem.topology.name} ({problem.topology.fingerprint}, devices "
                f"{', '.join(problem.topology.device_names)})",
                "Their devices differ in names, speed, memory or links. If only memory differs, set max_memory.",
            )
        if problem is not None and placement.problem_fingerprint not in ("", problem.fingerprint):
            return replace(placement, notes=tuple(dict.fromkeys((*placement.notes, _OF_ANOTHER))))
        return placement

    def _in_order_of(self, graph: OpGraph) -> Placement:
        """The same placement, should a file list the ops in another order than the graph."""
        if self.op_names == graph.op_names:
            return self
        if set(self.op_names) != set(graph.op_names):
            raise PlacementError(
                f"devices for {len(self.op_names)} ops",
                f"one for each of the {graph.num_ops} ops of {graph.name!r}",
                _ops_that_differ(self.op_names, graph.op_names),
            )
        index = {op: v for v, op in enumerate(self.op_names)}
        own = np.array([index[op] for op in graph.op_names], np.int64)
        phases = None if self.phases is None else self.phases[own]
        return replace(self, op_names=graph.op_names, op_device=self.op_device[own], phases=phases)

    def diff(self, other: Placement) -> dict[str, tuple[str, str]]:
        """Maps each op on different devices in two placements to (device in this one, device in `other`).

        Raises:
          PlacementError: the placements are for different graphs.
        """
        if self.graph_fingerprint != other.graph_fingerprint:
            raise PlacementError(
                f"placements of graphs {self.graph_fingerprint} and {other.graph_fingerprint}",
                "two placements of one graph",
                _ops_that_differ(self.op_names, other.op_names),
            )
        mine, theirs = self.devices, other.devices
        return {op: (mine[op], theirs[op]) for op in self.op_names if mine[op] != theirs[op]}

    # ---- shown to people; the work is done in tfplace.report and tfplace.simulation ----------------------------------

    def summary(self, *, layers: bool = False) -> str:
        """A text table of the devices, and a comparison with the best single device.

        Args:
          layers: whether to add a table with the devices, memory and seconds of each layer (see `OpGraph.layers`).
        """
        text: str = SERVICES["placement_summary"](self, layers=layers)
        return text

    def _repr_html_(self) -> str:
        html: str = SERVICES["placement_html"](self)
        return html

    def pictures(self) -> str:
        """Charts as HTML for a notebook: each device's timeline, layers and graph by device, and memory.

        Raises:
          PlacementError: the placement was loaded from a file without its graph.
        """
        html: str = SERVICES["pictures_html"](self)
        return html

    def timeline(self) -> Timeline:
        """Simulates when each op runs and each tensor moves, with default options and the placement's own phases.

        For other options, use `Simulator(problem, options).timeline(placement.op_device)` from
        `tfplace.simulation.evaluate`.

        Raises:
          PlacementError: the placement was loaded from a file without its graph.
        """
        if self.problem is None:
            raise PlacementError(
                "a placement without its graph",
                "one made by tfplace.place() or bound to a problem",
                "Load it with Placement.load(path, problem=...).",
            )
        timeline: Timeline = SERVICES["simulate_timeline"](self.problem, self.op_device, self.phases)
        return timeline

    # ---- reading and writing -------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The placement as JSON text."""
        text: str = SERVICES["placement_json"](self)
        return text

    def save(self, path: str | Path) -> None:
        """Writes `to_json()` to a file. The write is atomic."""
        write_whole(path, self.to_json() + "\n")

    @classmethod
    def load(
        cls, source: str | Path | Placement, *, graph: OpGraph | None = None, problem: Problem | None = None
    ) -> Placement:
        """Reads a file that `save` wrote. A placement is accepted too.

        Args:
          source: the file, or a placement.
          graph: as in `from_json`.
          problem: as in `from_json`.

        Raises:
          PlacementError: no such file, not a placement, or a placement for another graph or topology. The error says
            what differs.
        """
        placement: Placement = source if isinstance(source, Placement) else SERVICES["load_placement"](source)
        return placement._bound(graph, problem)

    @classmethod
    def from_json(cls, text: str, graph: OpGraph | None = None, problem: Problem | None = None) -> Placement:
        """Reads the text of `to_json`. For files, use `load`.

        Args:
          text: JSON text.
          graph: refuse the placement unless it is for this graph.
          problem: refuse the placement unless it is for this problem's graph and topology. `timeline()` needs it.

        Raises:
          PlacementError: not a placement, or a placement for another graph or topology. The error says what differs.
        """
        placement: Placement = SERVICES["placement_from_json"](text)
        return placement._bound(graph, problem)


def _ops_that_differ(mine: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    a, b = set(mine), set(theirs)
    if a == b:
        return f"Both have the same {len(a)} op names; shapes, sizes or edges differ."
    only_a, only_b = sorted(a - b), sorted(b - a)
    shown = [
        f"{len(only)} ops only in the {which} ({', '.join(only[:3])})"
        for which, only in (("first", only_a), ("second", only_b))
        if only
    ]
    return "; ".join(shown) + "."
