"""Constants of training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tfplace.errors import InputError
from tfplace.learned.training.rewards import RewardSettings


@dataclass(frozen=True)
class TrainSettings:
    """Constants of training, those of Mirhoseini 2017 where it has them.

    Attributes:
      batch: K, placements drawn for each update.
      rate: of Adam.
      cool_after: updates after which the rate is multiplied by `cool_by`, `cool_every` so many.
      cool_every: see `cool_after`.
      cool_by: see `cool_after`.
      clip: the gradient's norm is at most this.
      decay: of the moving average that rewards are compared with; None takes the mean of all trials instead.
      pessimistic: whether that begins at the reward of a placement that fails, as the paper has it. Rewards of the
        first dozens of updates are then all far above it, so that whatever was drawn becomes likelier; else it begins
        at the mean of the first batch, as the mean of all trials does.
      ignore_failed_after: updates after which placements that fail are left out, of the baseline too.
      reward: of what is drawn.
    """

    batch: int = 16
    rate: float = 1e-3
    cool_after: int = 0
    cool_every: int = 50
    cool_by: float = 1.0
    clip: float = 1.0
    decay: float | None = 0.9
    pessimistic: bool = True
    ignore_failed_after: int = 5000
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        if self.batch < 1 or not (0 < self.rate < math.inf and 0 < self.clip < math.inf):
            raise InputError(f"batch {self.batch}, rate {self.rate} and clip {self.clip}", "finite numbers above 0")
        if self.decay is not None and not 0 <= self.decay < 1:
            raise InputError(f"decay {self.decay}", "at least 0 and below 1, or None")
        if self.cool_every < 1 or not self.cool_by > 0:
            raise InputError(f"cool_every {self.cool_every} and cool_by {self.cool_by}", "numbers above 0")

    def rate_at(self, updates: int) -> float:
        """The rate after so many updates."""
        return self.rate * self.cool_by ** (max(updates - self.cool_after, 0) // self.cool_every)
