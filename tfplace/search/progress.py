"""What a search says of itself while it goes on."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.core.stepcost import SIMULATED, Key


@dataclass(frozen=True)
class Improvement:
    """A placement that was better than all before it.

    Attributes:
      evaluations: how many placements had been evaluated by then.
      seconds: how long the search had run.
      key: what it costs.
      stage: the part of the search that found it.
      ran_s: step seconds of all placements evaluated by then.
    """

    evaluations: int
    seconds: float
    key: Key
    stage: str
    ran_s: float = 0.0


@dataclass(frozen=True)
class Progress:
    """Where a search stands, for progress bars.

    Attributes:
      evaluations: placements evaluated.
      seconds: since the start; see `Clock`.
      fraction: of the budget used, from 0 to 1.
      best_s: step seconds of the best placement, or None.
      fits: whether it fits every device's memory.
      stage: the part of the search at work.
      source: who evaluates: "simulated", "grappler" or "measured".
    """

    evaluations: int
    seconds: float
    fraction: float
    best_s: float | None
    fits: bool
    stage: str
    source: str = SIMULATED
