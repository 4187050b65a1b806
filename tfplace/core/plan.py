"""Plan: the ways to run a step on some devices, and which one to choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.arrays import digest
from tfplace.core.compilation import XLA
from tfplace.core.critical_path import Waiting
from tfplace.core.explanation import Explanation
from tfplace.core.fidelity import ErrorBand
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.plan_diff import PlanDiff, RowDiff
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.topology import Topology
from tfplace.errors import InfeasibleError, InputError, PlacementError, Shortage, UnknownNameError
from tfplace.registry import SERVICES

ALONE, STRATEGY, MULTI_WORKER = "one device", "MirroredStrategy", "MultiWorkerMirroredStrategy"
"""Ways that need no placement: `tf.device`, and the strategies of `tf.distribute` for one host and for several."""

STRATEGIES = (STRATEGY, MULTI_WORKER)

SEARCHED = "placed"
"""The way of a placement that a search found."""

AS_GOOD = 1.01
"""A simpler way is chosen if its step takes at most this many times as long as the fastest step."""


@dataclass(frozen=True, eq=False)
class PlanRow:
    """One way to run a step.

    Attributes:
      way: `ALONE`, one of `STRATEGIES`, or the placer that made the placement.
      slices: number of examples of each slice of the batch; empty for the whole step.
      compile: how the step runs: `tfplace.core.compilation.NONE` (op by op) or `XLA` (compiled).
      cost: the simulated cost.
      placement: the placement; None for `STRATEGIES`, which TensorFlow runs. With several replicas, the placement of
        one of them.
      same_numbers: whether losses and weights equal those of the plain step up to rounding.
      differs: which numbers differ, in words; empty if none do.
      obstacle: why the row cannot be chosen, however fast it is; empty if it can.
      measured_s: median seconds of a measured step on the devices of this machine; None if it was not measured.
      recomputes: whether the step uses rematerialization: it computes results of the forward pass again for the
        backward pass, to save memory.
      error: how far off such simulated steps are; None if unknown.
      found_s: seconds to find and simulate the row, after the model was read; None if not recorded.
      known_waits: the parts of the critical path, if they were computed before; see `waits`.
      replicas: number of equal parts of the batch that run in parallel, each in such slices on its own devices. tfplace
        runs only rows with 1.
      on_part: whether it is `STRATEGY` on only as many accelerators as there are slices; the others are idle.
      host: what is kept in the memory of a host that has accelerators: "variables" (some of them trained), "slots" (of
        the optimizer only), or empty.
    """

    way: str
    slices: tuple[int, ...]
    compile: str
    cost: StepCost
    placement: Placement | None = None
    same_numbers: bool = True
    differs: str = ""
    obstacle: str = ""
    measured_s: float | None = None
    recomputes: bool = False
    host: str = ""
    error: ErrorBand | None = None
    found_s: float | None = None
    known_waits: tuple[Waiting, ...] | None = None
    replicas: int = 1
    on_part: bool = False

    @cached_property
    def waits(self) -> tuple[Waiting, ...]:
        """The parts of the step's critical path, longest first. Computed on first access.

        Empty for `STRATEGIES`, for several replicas, and for rows from a file other than the chosen one.
        """
        if self.known_waits is not None or self.placement is None or self.replicas > 1:
            return self.known_waits or ()
        found: tuple[Waiting, ...] = SERVICES["waits"](self.placement)
        return found

    @property
    def bottleneck(self) -> str:
        """What limits the speed of the step, or how much memory is missing, in words."""
        words: str = SERVICES["bottleneck"](self)
        return words

    @property
    def name(self) -> str:
        """The way, its device if it has only one, the number of slices, and how the step runs, in words."""
        where = f" ({self._only_device})" if self.way == ALONE else ""
        count = len(self.slices)
        where += f" on {count} devices" if self.on_part else ""
        slices = f", {count} slices" if count > 1 and self.way not in STRATEGIES else ""
        slices += f", {self.replicas} replicas" if self.replicas > 1 else ""
        host = f", {self.host} on the host" if self.host else ""
        again = ", recomputing" if self.recomputes else ""
        return f"{self.way}{where}{slices}{host}{again}{', compiled' if self.compile == XLA else ''}"

    @property
    def remedies(self) -> tuple[str, ...]:
        """What saves memory at the cost of time: slices in sequence, tensors on the host, rematerialization."""
        slices = (f"{len(self.slices)} slices",) if self.way == ALONE and len(self.slices) > 1 else ()
        host = (f"{self.host} on the host",) if self.host else ()
        return (*slices, *host, *(("recomputing",) if self.recomputes else ()))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the way, the slices, the devices of the ops, and their order."""
        parts = [self.name, repr(self.slices)]
        if (placement := self.placement) is None:
            return digest(parts)
        phases = () if placement.phases is None else (placement.phases,)
        devices = "\n".join(placement.device_names)
        return digest([*parts, placement.graph_fingerprint, devices, placement.op_device, placement.order, *phases])

    @property
    def shortages(self) -> tuple[Shortage, ...]:
        """Devices over their memory limit; empty if the row fits, or has no placement."""
        names = () if self.placement is None else self.placement.device_names
        needs = zip(names, self.cost.peak_bytes.tolist(), self.cost.limit_bytes.tolist(), strict=False)
        return tuple(Shortage(name, need, limit) for name, need, limit in needs if need > limit)

    @property
    def _only_device(self) -> str:
        assert self.placement is not None
        names, ops = self.placement.device_names, np.bincount(self.placement.op_device)
        beside = [bool(self.host) and name.startswith("CPU") for name in names[: len(ops)]]
        return names[int(np.where(beside, -1, ops).argmax())]

    @property
    def simplicity(self) -> int:
        """Rank of the way by how much it asks of the user; 0 is the simplest."""
        return {ALONE: 0, STRATEGY: 1, MULTI_WORKER: 1}.get(self.way, 2)


Larger = Callable[[tuple[int, ...] | None], Problem]
"""Examples of each slice (None: whole step) -> the problem with twice the batch. It may raise SourceError."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The ways to run a step on some devices, and the one to choose.

    Attributes:
      rows: the ways, fastest first; those that do not fit come last.
      model: name of the graph.
      topology_name: name of the devices' topology.
      examples: number of examples in a batch; 0 if unknown.
      exact: whether only rows with the same numbers as the plain step may be chosen.
      notes: remarks on the search.
      graph_fingerprint: fingerprint of the whole step's graph; empty if unknown.
      topology_fingerprint: fingerprint of the devices; empty if unknown.
      larger: reads the step for a batch twice as large, to simulate it; None if that is not possible.
    """

    rows: tuple[PlanRow, ...]
    model: str
    topology_name: str
    examples: int
    exact: bool = False
    notes: tuple[str, ...] = ()
    graph_fingerprint: str = ""
    topology_fingerprint: str = ""
    larger: Larger | None = field(default=None, repr=False)

    @cached_property
    def chosen(self) -> PlanRow | None:
        """The chosen row: the fastest that fits, or a simpler one that takes at most 1 % longer; None if nothing fits.

        If rows were measured, it is the fastest measured one.
        """
        measured = {row.measured_s: row for row in self.rows if row.measured_s is not None}
        if measured:
            return measured[min(measured)]
        able = [row for row in self.rows if row.cost.feasible and not row.obstacle]
        able = [row for row in able if row.same_numbers or not self.exact]
        if not able:
            return None
        fastest = min(able, key=lambda row: row.cost.step_s)
        good = [row for row in able if row.cost.step_s <= AS_GOOD * fastest.cost.step_s]
        return min(good, key=lambda row: (row.simplicity, row.cost.step_s))

    @property
    def placement(self) -> Placement | None:
        """The placement of the chosen row, or of the best row that tfplace runs; None if none of these fits."""
        with_one = [row for row in self.rows if row.placement is not None and row.replicas == 1]
        if self.chosen is None or self.chosen in with_one:
            return None if self.chosen is None else self.chosen.placement
        best = replace(self, rows=tuple(with_one)).chosen
        return None if best is None else best.placement

    @property
    def shown(self) -> PlanRow | None:
        """The row whose step reports show: the chosen one, or else the best that has a placement.

        The best is the fastest row that tfplace runs. If none fits, it is the one that comes nearest.
        """
        if self.chosen is not None and self.chosen.placement is not None:
            return self.chosen
        with_one = [row for row in self.rows if row.placement is not None]
        best = self.placement
        if best is not None:
            return next(row for row in with_one if row.placement is best)
        return min(with_one, key=lambda row: row.cost.key, default=None)

    def apply(self, *, devices: Mapping[str, str] | None = None) -> Any:
        """Makes the program run as `placement` says. See `tfplace.apply`, which also takes placements of loaded plans.

        Args:
          devices: as in `tfplace.apply`.

        Raises:
          ApplyError: this machine lacks a device of the topology.
          InfeasibleError: no row can be chosen.
          InputError: the plan was loaded from files, which do not contain the program; or its chosen row has several
            replicas.
        """
        return SERVICES["apply_plan"](self, devices=devices)

    def row(self, name: str) -> PlanRow:
        """The fastest row with a name, such as "data_parallel, 4 slices", even if it does not fit.

        Raises:
          UnknownNameError: no row has this name. The error lists the names.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError("row", name, (row.name for row in self.rows))

    def take(self, name: str) -> Placement:
        """The placement of a row by name, whether or not it is the chosen one.

        Raises:
          UnknownNameError: no row has this name. The error lists the names.
          InfeasibleError: the row does not fit. The error says which devices lack how many bytes.
          InputError: the row has an obstacle or several replicas, or TensorFlow runs it, so that it has no placement.
        """
        row = self.row(name)
        if row.obstacle or row.placement is None or row.replicas > 1:
            strategy = row.way if row.way in STRATEGIES else MULTI_WORKER if row.replicas > 1 else STRATEGY
            why = row.obstacle or f"tf.distribute.{strategy} runs {'replicas' if row.replicas > 1 else 'it'}"
            raise InputError(f"row {name!r}, which has no placement to take ({why})", "a row that tfplace runs")
        if not row.cost.feasible:
            fitting = next((one.name for one in self.rows if one.cost.feasible and one.placement is not None), None)
            ways = [] if fitting is None else [f"Take {fitting!r}, which fits."]
            raise InfeasibleError(f"{name} does not fit:", row.shortages, (*ways, "Allow more memory."))
        return row.placement

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the graph, the devices and the rows' placements. It does not depend on times."""
        return digest([self.graph_fingerprint, self.topology_fingerprint, *(row.fingerprint for row in self.rows)])

    def diff(self, other: Plan) -> PlanDiff:
        """The differences between this plan and another plan of the same step.

        Raises:
          PlacementError: the other plan is for another step.
        """
        self._check_graph(other.graph_fingerprint, f"{other.model}, {other.batch}")
        mine, theirs = ({(row.name, row.slices): row for row in plan.rows} for plan in (self, other))
        changes = [_row_diff(mine.get(key), theirs.get(key)) for key in {**theirs, **mine}]
        (before, before_s), (after, after_s) = (_told(plan.chosen) for plan in (self, other))
        rows = tuple(change for change in changes if change is not None)
        return PlanDiff((before, after), (before_s, after_s), rows)

    @property
    def batch(self) -> str:
        """The number of examples per step, in words."""
        return f"{self.examples} examples a step" if self.examples else "unsplit batch"

    def _check_graph(self, fingerprint: str, what: str) -> None:
        if self.graph_fingerprint and fingerprint and self.graph_fingerprint != fingerprint:
            raise PlacementError(
                f"a plan of graph {self.graph_fingerprint} ({self.model}, {self.batch})",
                f"one of graph {fingerprint} ({what})",
                "Another batch or optimizer makes another graph. So do layer names: Keras numbers them in a process.",
            )

    def measure(self, batch: Any, *, top: int = 3, steps: int = 10, devices: Mapping[str, str] | None = None) -> Plan:
        """Measures the best rows that tfplace runs on this machine's devices, and returns the plan with the results.

        The fastest measured row is then the chosen one. The ratio of measured to simulated seconds corrects the other
        rows, separately for compiled steps and op by op. Rows that are then expected to beat the fastest measured row
        are measured too, at most `top` of them. Afterwards variables have their earlier values.

        Args:
          batch: the batch of the measured steps.
          top: number of rows to measure first.
          steps: number of measured steps for each row.
          devices: as in `tfplace.apply`.

        Raises:
          ApplyError: this machine lacks a device of the topology.
          InputError: `top` or `steps` is below 1, the plan was loaded from files, or none of its rows can be run.
        """
        plan: Plan = SERVICES["measure_plan"](self, batch, top=top, steps=steps, devices=devices)
        return plan

    def explain(self) -> Explanation:
        """Explains why the row is chosen, what would help most, and where the layers are. Takes some seconds.

        What would help is simulated: faster links and devices, more memory, and a larger batch.

        Raises:
          InputError: the plan was loaded from files.
        """
        explanation: Explanation = SERVICES["explain_plan"](self)
        return explanation

    def summary(self) -> str:
        """The rows as a text table, with the row to choose."""
        text: str = SERVICES["plan_summary"](self)
        return text

    def save(self, directory: str | Path) -> None:
        """Writes "plan.json", the rows' placements, and the problem of the row that reports show, to a directory.

        Raises:
          UnwrittenError: the directory cannot be written.
        """
        SERVICES["save_plan"](self, directory)

    @classmethod
    def load(cls, directory: str | Path, *, graph: OpGraph | None = None, topology: Topology | None = None) -> Plan:
        """Reads a directory that `save` wrote. Placements come without their problems.

        Args:
          directory: the directory.
          graph: refuse the plan unless it is for this whole step, with its batch.
          topology: refuse the plan unless it is for these devices.

        Raises:
          PlacementError: no such directory, no plan in it, or a plan for another graph or topology.
        """
        plan: Plan = SERVICES["load_plan"](directory)
        if graph is not None:
            plan._check_graph(graph.fingerprint, graph.name)
        if topology is not None and plan.topology_fingerprint not in ("", topology.fingerprint):
            raise PlacementError(
                f"a plan on topology {plan.topology_name} ({plan.topology_fingerprint})",
                f"one on {topology.name} ({topology.fingerprint})",
                "Their devices differ in names, speed, memory or links: plan again.",
            )
        return plan


def _told(row: PlanRow | None) -> tuple[str | None, float | None]:
    return (None, None) if row is None else (row.name, row.cost.step_s)


def _row_diff(before: PlanRow | None, after: PlanRow | None) -> RowDiff | None:
    """How a row changed; None if it did not."""
    (name, before_s), (other_name, after_s) = _told(before), _told(after)
    named = str(name or other_name)
    before_fits, after_fits = (row is None or row.cost.feasible for row in (before, after))
    if before is None or after is None:
        return RowDiff(named, before_s, after_s, (before_fits, after_fits))
    if (before.fingerprint, before_s, before_fits) == (after.fingerprint, after_s, after_fits):
        return None
    moved, (one, other) = 0, (before.placement, after.placement)
    if one is not None and other is not None and one.graph_fingerprint == other.graph_fingerprint:
        moved = len(one.diff(other))
    return RowDiff(named, before_s, after_s, (before_fits, after_fits), moved)
