"""Explanation: why a row of a plan is chosen, what would help, and where the layers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfplace.core.critical_path import Waiting
from tfplace.registry import SERVICES

LITTLE = 0.01
"""A change that saves a smaller fraction of the step does not help."""


@dataclass(frozen=True)
class Side:
    """The critical path of a row's step.

    Attributes:
      name: name of the row.
      step_s: seconds of the step.
      waits: seconds of the critical path by device and link, longest first; empty for rows that TensorFlow runs.
      layers: seconds of the critical path in which a device computes, by layer, longest first.
      bottleneck: the critical path in words.
    """

    name: str
    step_s: float
    waits: tuple[Waiting, ...]
    layers: Mapping[str, float]
    bottleneck: str

    def seconds(self, *, sends: bool) -> float:
        """Seconds of the critical path that are transfers (`sends`) or computation."""
        return sum(one.seconds for one in self.waits if one.sends == sends)


@dataclass(frozen=True)
class WhatIf:
    """The simulated effect of a change.

    Attributes:
      change: the change in words, such as "links twice as fast".
      row: name of the row that is chosen with the change.
      step_s: seconds of its step with the change; infinite if it does not fit.
      gain: fraction of the chosen row's seconds per example that the change saves; negative if it takes longer. 1 if
        nothing fits without the change.
    """

    change: str
    row: str
    step_s: float
    gain: float


@dataclass(frozen=True)
class LayerUse:
    """Consecutive layers that are on the same devices.

    Attributes:
      layers: names of the layers, in the order of the forward pass.
      devices: device -> the slices of the batch whose ops are there; empty for a whole step.
      owners: for a step in slices, the devices of variables and of other ops that all slices share; for all these
        layers together.
      seconds: seconds that the devices compute for the layers.
    """

    layers: tuple[str, ...]
    devices: Mapping[str, tuple[int, ...]]
    owners: tuple[str, ...]
    seconds: float

    @property
    def name(self) -> str:
        """The first and the last layer, and their number."""
        if len(self.layers) == 1:
            return self.layers[0]
        return f"{self.layers[0]} ... {self.layers[-1]} ({len(self.layers)})"


@dataclass(frozen=True)
class Explanation:
    """Why a plan chooses its row, and what would help.

    Attributes:
      chosen: the chosen row; None if nothing fits.
      against: the best row of another way that needs no search; None if no other fits.
      changes: the simulated changes, the most helpful first.
      left_out: changes that could not be simulated, with the reason.
      layers: where the layers of the chosen row are; empty if op names show no layers, or if TensorFlow runs the row.
    """

    chosen: Side | None
    against: Side | None
    changes: tuple[WhatIf, ...]
    left_out: tuple[str, ...] = ()
    layers: tuple[LayerUse, ...] = ()

    @property
    def advice(self) -> str:
        """One line on what would help most."""
        best = max(self.changes, key=lambda one: one.gain, default=None)
        if best is None:
            return "no change could be simulated"
        if self.chosen is None:
            return f"{best.change}: {best.row} fits" if best.gain > 0 else "no change makes it fit"
        if best.gain < LITTLE:
            return f"no change helps more than {100 * max(best.gain, 0.0):.1f} %"
        return f"{best.change} would help most: {100 * best.gain:.0f} % less time for each example"

    def summary(self) -> str:
        """The explanation as text."""
        text: str = SERVICES["explanation_summary"](self)
        return text
