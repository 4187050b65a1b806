"""Plan: every way to run a step on some devices that makes sense, and which of them to take."""

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
"""Ways that need no placing: `tf.device`, and the strategies of `tf.distribute` for one host and for several."""

STRATEGIES = (STRATEGY, MULTI_WORKER)

SEARCHED = "placed"
"""The way of what a search found."""

AS_GOOD = 1.01
"""A simpler way is taken if its step takes at most so many times the fastest one's."""


@dataclass(frozen=True, eq=False)
class PlanRow:
    """One way to run a step.

    Attributes:
      way: `ALONE`, one of `STRATEGIES`, or the placer that made the placement.
      slices: examples of each slice of the batch; empty for the whole step.
      compile: how it is run, `tfplace.core.compilation.NONE` or `XLA`.
      cost: simulated.
      placement: what runs it; None for `STRATEGIES`, which are TensorFlow's own. Of several replicas that of one.
      same_numbers: whether losses and weights are those of the plain step but for rounding.
      differs: what is not, in words; empty if nothing.
      obstacle: why it is not taken, however fast; empty for nothing.
      measured_s: median seconds of a step on the devices at hand; None where it was not measured.
      recomputes: whether results of the forward pass are computed again for the backward pass, to take less memory.
      error: how far off such simulated steps are; None where that is not known.
      found_s: seconds that it took to find and simulate, after the model was read; None where nobody looked.
      known_waits: what the step waits for, if that was worked out before; see `waits`.
      replicas: equal parts of the batch that are run side by side, each in such slices on devices of its own. tfplace
        runs only rows with 1.
      on_part: whether it is `STRATEGY` on as many accelerators as there are slices, and others have nothing to do.
      host: what is in the memory of a host beside accelerators: "variables", of which some are trained, "slots" of the
        optimizer only, or nothing.
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
        """The parts of the step's critical path, the longest first; worked out when they are first asked for.

        None are known of `STRATEGIES`, of several replicas, and of a row from a file but for the chosen one.
        """
        if self.known_waits is not None or self.placement is None or self.replicas > 1:
            return self.known_waits or ()
        found: tuple[Waiting, ...] = SERVICES["waits"](self.placement)
        return found

    @property
    def bottleneck(self) -> str:
        """What the step is as long as it is for, or how much memory is missing, in words."""
        words: str = SERVICES["bottleneck"](self)
        return words

    @property
    def name(self) -> str:
        """The way, with its device if it has only one, the number of slices and how it is run."""
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
        """What saves memory and costs time: slices one after the other, what is on the host, results computed again."""
        slices = (f"{len(self.slices)} slices",) if self.way == ALONE and len(self.slices) > 1 else ()
        host = (f"{self.host} on the host",) if self.host else ()
        return (*slices, *host, *(("recomputing",) if self.recomputes else ()))

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the way, the slices or where its ops are, or when, change."""
        parts = [self.name, repr(self.slices)]
        if (placement := self.placement) is None:
            return digest(parts)
        phases = () if placement.phases is None else (placement.phases,)
        devices = "\n".join(placement.device_names)
        return digest([*parts, placement.graph_fingerprint, devices, placement.op_device, placement.order, *phases])

    @property
    def shortages(self) -> tuple[Shortage, ...]:
        """Devices that are over their limit; none if it fits, or if it is not known where it runs."""
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
        """0 for what needs least of a user."""
        return {ALONE: 0, STRATEGY: 1, MULTI_WORKER: 1}.get(self.way, 2)


Larger = Callable[[tuple[int, ...] | None], Problem]
"""Examples of each slice, None for the whole step -> what is placed, with twice the batch; raises SourceError."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The answer to what is fastest on some devices, and whether it fits.

    Attributes:
      rows: fastest first, those that do not fit last.
      model: name of the graph.
      topology_name: of the devices.
      examples: in a batch; 0 if that is not known.
      exact: whether only rows with the same numbers may be chosen.
      notes: what there is to say of the search.
      graph_fingerprint: of the whole step; empty if unknown.
      topology_fingerprint: of the devices; empty if unknown.
      larger: reads the step for a batch twice as large, to tell what that would take; None where it cannot be.
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
        """The row to take: the fastest that fits, or a simpler one that is as good; None if nothing fits.

        Where some were measured, it is the fastest of these.
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
        """The chosen row's placement, or that of the best row which tfplace runs; None if none of these fits."""
        with_one = [row for row in self.rows if row.placement is not None and row.replicas == 1]
        if self.chosen is None or self.chosen in with_one:
            return None if self.chosen is None else self.chosen.placement
        best = replace(self, rows=tuple(with_one)).chosen
        return None if best is None else best.placement

    @property
    def shown(self) -> PlanRow | None:
        """The row whose step reports show: the chosen one, or else the best that has a placement.

        That is the best that tfplace runs, or where nothing fits, the one that comes nearest.
        """
        if self.chosen is not None and self.chosen.placement is not None:
            return self.chosen
        with_one = [row for row in self.rows if row.placement is not None]
        best = self.placement
        if best is not None:
            return next(row for row in with_one if row.placement is best)
        return min(with_one, key=lambda row: row.cost.key, default=None)

    def apply(self, *, devices: Mapping[str, str] | None = None) -> Any:
        """Makes the program run as `placement` says; see `tfplace.apply`, which tells more and also takes loaded plans.

        Args:
          devices: as in `tfplace.apply`.

        Raises:
          ApplyError: this machine lacks a device of the topology.
          InfeasibleError: nothing fits.
          InputError: the plan was loaded from files, which do not have the program; or its chosen row has several
            replicas.
        """
        return SERVICES["apply_plan"](self, devices=devices)

    def row(self, name: str) -> PlanRow:
        """The fastest row with a name, such as "data_parallel, 4 slices"; also one that does not fit.

        Raises:
          UnknownNameError: there is none; lists the names.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError("row", name, (row.name for row in self.rows))

    def take(self, name: str) -> Placement:
        """A row's placement, whichever row is chosen.

        Raises:
          UnknownNameError: there is no such row.
          InfeasibleError: it does not fit; says which devices are short of how many bytes.
          InputError: it has an obstacle, has several replicas, or is TensorFlow's own and has no placement.
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
        """Changes when the graph, the devices or where a row has its ops change; not with seconds of any kind."""
        return digest([self.graph_fingerprint, self.topology_fingerprint, *(row.fingerprint for row in self.rows)])

    def diff(self, other: Plan) -> PlanDiff:
        """What another plan of the same step has otherwise.

        Raises:
          PlacementError: it is of another step.
        """
        self._check_graph(other.graph_fingerprint, f"{other.model}, {other.batch}")
        mine, theirs = ({(row.name, row.slices): row for row in plan.rows} for plan in (self, other))
        changes = [_row_diff(mine.get(key), theirs.get(key)) for key in {**theirs, **mine}]
        (before, before_s), (after, after_s) = (_told(plan.chosen) for plan in (self, other))
        rows = tuple(change for change in changes if change is not None)
        return PlanDiff((before, after), (before_s, after_s), rows)

    @property
    def batch(self) -> str:
        """The examples of a step, in words."""
        return f"{self.examples} examples a step" if self.examples else "unsplit batch"

    def _check_graph(self, fingerprint: str, what: str) -> None:
        if self.graph_fingerprint and fingerprint and self.graph_fingerprint != fingerprint:
            raise PlacementError(
                f"a plan of graph {self.graph_fingerprint} ({self.model}, {self.batch})",
                f"one of graph {fingerprint} ({what})",
                "Another batch or optimizer makes another graph. So do layer names: Keras numbers them in a process.",
            )

    def measure(self, batch: Any, *, top: int = 3, steps: int = 10, devices: Mapping[str, str] | None = None) -> Plan:
        """The same plan, with its best rows that tfplace runs measured on the devices at hand; these decide.

        What measured steps take over simulated ones corrects the others, of compiled steps and op by op apart; rows
        that are then expected to be faster than the fastest measured one are measured, too, `top` of them at most.
        Variables get back the values that they had.

        Args:
          batch: what a step is given.
          top: rows to measure first.
          steps: that count for each.
          devices: as in `tfplace.apply`.

        Raises:
          ApplyError: this machine lacks a device of the topology.
          InputError: fewer than 1 row or step, a plan that was loaded from files, or no row that can be run.
        """
        plan: Plan = SERVICES["measure_plan"](self, batch, top=top, steps=steps, devices=devices)
        return plan

    def explain(self) -> Explanation:
        """Why the chosen row is taken, what would help most, and where its layers are; takes some seconds.

        What would help is simulated: faster links and devices, more memory, a larger batch.

        Raises:
          InputError: a plan that was loaded from files.
        """
        explanation: Explanation = SERVICES["explain_plan"](self)
        return explanation

    def summary(self) -> str:
        """The rows as a table of text, and which to take."""
        text: str = SERVICES["plan_summary"](self)
        return text

    def save(self, directory: str | Path) -> None:
        """Writes "plan.json", the placements of rows, and the problem of the row that reports show, to a directory.

        Raises:
          UnwrittenError: it cannot be written.
        """
        SERVICES["save_plan"](self, directory)

    @classmethod
    def load(cls, directory: str | Path, *, graph: OpGraph | None = None, topology: Topology | None = None) -> Plan:
        """What `save` wrote, its placements without their problems.

        Args:
          directory: that it was saved to.
          graph: refuse the plan unless it is for this whole step, with its batch.
          topology: refuse the plan unless it is for these devices.

        Raises:
          PlacementError: no such directory, not a plan, or one for another graph or topology.
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
