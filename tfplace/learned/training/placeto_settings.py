"""Constants of Placeto."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from tfplace.errors import InputError
from tfplace.learned.features.prior import HOTTEST
from tfplace.learned.training.rewards import RewardSettings

Initial = Literal["random", "single", "best"]
_INITIAL = ("random", "single", "best")


@dataclass(frozen=True)
class PlacetoSettings:
    """Constants of Addanki et al. 2019 and of the code they published, but for those of learning from nothing.

    With the code's rate (1e-3 to 1e-4), discount (1) or entropy (1) hardly anything is learned in as few updates as
    20,000 evaluations of 256 groups suffice for. These and one episode an update were chosen by hand on three models;
    what each is worth there is in docs/research/policies.md.

    Attributes:
      groups: what is placed, if there are more units.
      coarse: how many are swept over first, at once.
      hidden: width of the network (the paper's is that of its features, 5 to 8).
      rounds: k, of message passing.
      episodes: placements that are worked on side by side, each an episode, in one update; the paper has 4 to 8
        workers.
      draws: sweeps that are drawn side by side, at once or in an update of fine-tuning.
      again: how often they are, at once; half of it, rounded down, in coarse groups.
      temperature: of these draws.
      initial: what an episode begins with: a "random" placement, everything on a "single" device, or the "best" so far.
      intermediate: whether each step is rewarded by what it gained, the paper's choice; else the last one alone, by
        what the whole episode gained.
      discount: what a later step's reward counts for less, for every step between.
      last: episodes whose returns at the same step are the baseline.
      rate: of Adam at first.
      last_rate: at the budget's end; it falls in proportion to the budget.
      clip: the gradient's norm is at most this.
      entropy: weight of the mean entropy of a choice at first, beside advantages in standard deviations; it falls to 0
        at the budget's end.
      lean: of `prior_logits`, if there is a start.
      reward: of what is visited.
    """

    groups: int = 256
    coarse: int = 64
    hidden: int = 16
    rounds: int = 8
    episodes: int = 1
    draws: int = 12
    again: int = 4
    temperature: float = 1.5
    initial: Initial = "random"
    intermediate: bool = True
    discount: float = 0.5
    last: int = 10
    rate: float = 3e-2
    last_rate: float = 1e-4
    clip: float = 1.25
    entropy: float = 0.003
    lean: float = 0.9
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        if self.initial not in _INITIAL:
            raise InputError(f"initial {self.initial!r}", f"one of {', '.join(_INITIAL)}")
        above = ("groups", "coarse", "hidden", "episodes", "draws", "last", "rate", "clip", "temperature")
        least = ("rounds", "again", "last_rate", "entropy")
        wrong = [f"{name} {getattr(self, name)}" for name in above if not getattr(self, name) > 0]
        wrong += [f"{name} {getattr(self, name)}" for name in least if not getattr(self, name) >= 0]
        if wrong:
            raise InputError(", ".join(wrong), f"numbers above 0, but at least 0 for {', '.join(least)}")
        if not (math.isfinite(self.clip) and self.temperature <= HOTTEST):
            raise InputError(
                f"clip {self.clip} and temperature {self.temperature}",
                f"a finite clip, and a temperature of at most {HOTTEST:g}",
            )
        if not 0 <= self.discount <= 1:
            raise InputError(f"discount {self.discount}", "from 0 to 1")
