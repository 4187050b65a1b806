"""Plan: every way to run a step on some devices that makes sense, and which of them to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.compilation import XLA
from tfplace.core.placement import Placement
from tfplace.core.stepcost import StepCost
from tfplace.registry import SERVICES

ALONE, STRATEGY = "one device", "MirroredStrategy"
"""Ways that need no placing: `tf.device`, and `tf.distribute.MirroredStrategy`."""

AS_GOOD = 1.01
"""A simpler way is taken if its step takes at most so many times the fastest one's."""


@dataclass(frozen=True, eq=False)
class PlanRow:
    """One way to run a step.

    Attributes:
      way: `ALONE`, `STRATEGY`, or the placer that made the placement.
      slices: examples of each slice of the batch; empty for the whole step.
      compile: how it is run, `tfplace.core.compilation.NONE` or `XLA`.
      cost: simulated.
      placement: what runs it; None for `STRATEGY`, which is TensorFlow's own.
      same_numbers: whether losses and weights are those of the plain step but for rounding.
      differs: what is not, in words; empty if nothing.
      obstacle: why it is not taken, however fast; empty for nothing.
      measured_s: median seconds of a step on the devices at hand; None where it was not measured.
      recomputes: whether results of the forward pass are computed again for the backward pass, to take less memory.
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

    @property
    def name(self) -> str:
        """The way, with its device if it has only one, the number of slices and how it is run."""
        where = f" ({self._only_device})" if self.way == ALONE else ""
        count = len(self.slices)
        slices = f", {count} slices" if count > 1 and self.way != STRATEGY else ""
        again = ", recomputing" if self.recomputes else ""
        return f"{self.way}{where}{slices}{again}{', compiled' if self.compile == XLA else ''}"

    @property
    def _only_device(self) -> str:
        assert self.placement is not None
        devices = self.placement.op_device
        return self.placement.device_names[int(np.bincount(devices).argmax())]

    @property
    def simplicity(self) -> int:
        """0 for what needs least of a user."""
        return {ALONE: 0, STRATEGY: 1}.get(self.way, 2)


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
    """

    rows: tuple[PlanRow, ...]
    model: str
    topology_name: str
    examples: int
    exact: bool = False
    notes: tuple[str, ...] = ()

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
        """The chosen row's placement, or that of the best row that has one; None if none of these fits."""
        if self.chosen is None or self.chosen.placement is not None:
            return None if self.chosen is None else self.chosen.placement
        with_one = [row for row in self.rows if row.placement is not None]
        best = replace(self, rows=tuple(with_one)).chosen
        return None if best is None else best.placement

    def apply(self, *, devices: Mapping[str, str] | None = None) -> Any:
        """Makes the program run as `placement` says; see `tfplace.apply`, which tells more and also takes loaded plans.

        Args:
          devices: as in `tfplace.apply`.

        Raises:
          ApplyError: this machine lacks a device of the topology.
          InfeasibleError: nothing fits.
          InputError: the plan was loaded from files, which do not have the program.
        """
        return SERVICES["apply_plan"](self, devices=devices)

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

    def summary(self) -> str:
        """The rows as a table of text, and which to take."""
        text: str = SERVICES["plan_summary"](self)
        return text

    def save(self, directory: str | Path) -> None:
        """Writes "plan.json" and the placements of rows to a directory, which is made.

        Raises:
          UnwrittenError: it cannot be written.
        """
        SERVICES["save_plan"](self, directory)

    @classmethod
    def load(cls, directory: str | Path) -> Plan:
        """What `save` wrote, its placements without their problems.

        Raises:
          PlacementError: no such directory, or not a plan.
        """
        plan: Plan = SERVICES["load_plan"](directory)
        return plan
