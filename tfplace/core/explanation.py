"""Explanation: why a row of a plan is taken, what would help, and where its layers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfplace.core.critical_path import Waiting
from tfplace.registry import SERVICES

LITTLE = 0.01
"""A change that saves a smaller part of the step does not help."""


@dataclass(frozen=True)
class Side:
    """What a row's step waits for.

    Attributes:
      name: of the row.
      step_s: seconds of its step.
      waits: parts of the critical path by device and link, the longest first; none are known of TensorFlow's own.
      layers: seconds of the critical path in which a device computes, by layer, the longest first.
      bottleneck: the same in words.
    """

    name: str
    step_s: float
    waits: tuple[Waiting, ...]
    layers: Mapping[str, float]
    bottleneck: str

    def seconds(self, *, sends: bool) -> float:
        """Seconds of the critical path in which something is sent, or in which a device computes."""
        return sum(one.seconds for one in self.waits if one.sends == sends)


@dataclass(frozen=True)
class WhatIf:
    """A change, simulated.

    Attributes:
      change: in words, such as "links twice as fast".
      row: name of the row that is taken then.
      step_s: seconds of its step then; infinite if it does not fit.
      gain: part of the chosen row's seconds for each example that it saves; below 0 if it takes longer. 1 where nothing
        fits without the change.
    """

    change: str
    row: str
    step_s: float
    gain: float


@dataclass(frozen=True)
class LayerUse:
    """Layers in a row that are on the same devices.

    Attributes:
      layers: names, in the order of the forward pass.
      devices: device -> the slices of the batch whose ops are there, none for a whole step.
      owners: of a step in slices, devices of variables and of what else stands once for all slices; of several layers
        together.
      seconds: that the devices compute for them.
    """

    layers: tuple[str, ...]
    devices: Mapping[str, tuple[int, ...]]
    owners: tuple[str, ...]
    seconds: float

    @property
    def name(self) -> str:
        """The first and the last, and how many."""
        if len(self.layers) == 1:
            return self.layers[0]
        return f"{self.layers[0]} ... {self.layers[-1]} ({len(self.layers)})"


@dataclass(frozen=True)
class Explanation:
    """Why a plan says what it says.

    Attributes:
      chosen: the row to take; None if nothing fits.
      against: the best row of another way without a search; None if no other fits.
      changes: what was changed, what helps most first.
      left_out: changes that could not be simulated, and why.
      layers: where the chosen row has them; none if names tell of no layers, or TensorFlow runs the row.
    """

    chosen: Side | None
    against: Side | None
    changes: tuple[WhatIf, ...]
    left_out: tuple[str, ...] = ()
    layers: tuple[LayerUse, ...] = ()

    @property
    def advice(self) -> str:
        """What would help most, in one line."""
        best = max(self.changes, key=lambda one: one.gain, default=None)
        if best is None:
            return "no change could be simulated"
        if self.chosen is None:
            return f"{best.change}: {best.row} fits" if best.gain > 0 else "no change makes it fit"
        if best.gain < LITTLE:
            return f"no change helps more than {100 * max(best.gain, 0.0):.1f} %"
        return f"{best.change} would help most: {100 * best.gain:.0f} % less time for each example"

    def summary(self) -> str:
        """All of it as text."""
        text: str = SERVICES["explanation_summary"](self)
        return text
