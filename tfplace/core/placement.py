"""Placement: the answer. Which device every op runs on, and what is predicted of it."""

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
"""The order of a placement without phases: what is ready runs."""

BY_USE = "by_use"
"""The order in which variables are read as the forward pass comes to need them; see `tfplace.simulation.phases`."""

CRITICAL_PATH = "critical_path"
"""The order in which ops with the longest way to the end go first; see `tfplace.simulation.stretches`."""

_OF_ANOTHER = (
    "step time, memory, bound and baselines are from another problem, with other costs, limits or rules; "
    "tfplace.simulate(problem, placement) computes them again"
)

COMPILED = ", compiled"
"""How the names of baselines end that are of a step that XLA compiles."""

UNSPLIT = ", unsplit"
"""How the names of baselines end that are of the whole step, where the placement is of one in slices."""


@dataclass(frozen=True, eq=False, repr=False)
class Placement:
    """Devices for all ops of one graph.

    Attributes:
      op_names: [V].
      device_names: [D].
      op_device: [V] device index of each op.
      cost: what a step costs according to the evaluator that the search used: simulated, measured or Grappler's.
      bound_s: no placement on this topology can be predicted faster than this, in seconds.
      placer: name of the placer, with its settings.
      seed: its random seed.
      baselines: costs of other placements by the same evaluator, such as "single GPU:0".
      graph_fingerprint: of the graph it belongs to.
      topology_fingerprint: of the topology it belongs to.
      topology_name: for people.
      versions: package -> version that made it.
      problem: what it answers; absent after loading from a file without the graph.
      simulated: the simulated cost, where `cost` is not simulated.
      notes: what the placer has to say of it, such as how much of an optimum it has proven.
      problem_fingerprint: of the problem it was found for, costs, limits and rules included; empty if unknown.
      phases: [V] number of the phase of each op on its device, or -1. An op of a phase starts after all ops of the
        phases before it on its device have ended; one with -1 starts when it is ready, as all do where this is None.
      order: what the phases are called, such as "gpipe" or "1f1b"; "free" without phases.
      compile: how its step is run: `NONE`, `XLA`, or `AUTO` for as the program asks with jit_compile.
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
        """Op name -> device name."""
        return {op: self.device_names[d] for op, d in zip(self.op_names, self.op_device.tolist(), strict=True)}

    @property
    def predicted(self) -> StepCost:
        """The simulated cost, with its breakdown per device; `cost` itself if that is simulated."""
        return self.cost if self.simulated is None else self.simulated

    @property
    def best_single(self) -> tuple[str, StepCost] | None:
        """The fastest single-device baseline that fits, by name."""
        fits = {k: c for k, c in self.baselines.items() if k.startswith("single ") and c.feasible}
        return min(fits.items(), key=lambda item: item[1].step_s) if fits else None

    def check_graph(self, graph: OpGraph) -> None:
        """Raises unless the placement is for `graph`.

        Raises:
          PlacementError: it is for another graph; says what differs.
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
        """Ops that the two put on different devices: name -> (device here, device there).

        Raises:
          PlacementError: they place different graphs.
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
        """A table per device and the verdict against the best single device, as text.

        Args:
          layers: whether a second table tells each layer's devices, memory and seconds (see `OpGraph.layers`).
        """
        text: str = SERVICES["placement_summary"](self, layers=layers)
        return text

    def _repr_html_(self) -> str:
        html: str = SERVICES["placement_html"](self)
        return html

    def pictures(self) -> str:
        """Each device's timeline, the layers and the graph by device, and memory, as HTML that a notebook shows.

        Raises:
          PlacementError: loaded from a file without its graph.
        """
        html: str = SERVICES["pictures_html"](self)
        return html

    def timeline(self) -> Timeline:
        """When each op runs and each tensor moves, simulated by the default rules, with the placement's own phases.

        `Simulator(problem, options).timeline(placement.op_device)`, which is in `tfplace.simulation.evaluate`, does it
        by others.

        Raises:
          PlacementError: loaded from a file without its graph.
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
        """Writes `to_json()` to a file, whole or not at all."""
        write_whole(path, self.to_json() + "\n")

    @classmethod
    def load(
        cls, source: str | Path | Placement, *, graph: OpGraph | None = None, problem: Problem | None = None
    ) -> Placement:
        """Reads a file that `save` wrote; a placement itself is passed on.

        Args:
          source: the file.
          graph: as in `from_json`.
          problem: as in `from_json`.

        Raises:
          PlacementError: no such file, not a placement, or one for another graph or topology; says what differs.
        """
        placement: Placement = source if isinstance(source, Placement) else SERVICES["load_placement"](source)
        return placement._bound(graph, problem)

    @classmethod
    def from_json(cls, text: str, graph: OpGraph | None = None, problem: Problem | None = None) -> Placement:
        """Reads `to_json`'s text; `load` reads files.

        Args:
          text: the JSON.
          graph: refuse the placement unless it is for this graph.
          problem: the same, and binds it so that `timeline()` works.

        Raises:
          PlacementError: not a placement, or one for another graph or topology; says what differs.
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
