"""Constants of the hierarchical planner."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfplace.errors import InputError
from tfplace.learned.training.settings import TrainSettings


@dataclass(frozen=True)
class HierarchicalSettings:
    """Constants; by default those published for the paper, but for the rate.

    With the published rate of 0.1 the grouper of this implementation soon puts everything into one group, from where
    it does not come back (tests/learned/policies/test_hierarchy.py).

    Attributes:
      groups: at most so many (256 in TensorFlow's controller), and at most `groups_per_device` for each device (20
        there).
      groups_per_device: see `groups`.
      groupings: drawn for each update (m).
      grouper: size of the grouper's hidden layer (64 in TensorFlow's controller).
      hidden: of the placer's LSTMs (512 in TensorFlow's controller).
      embedding: of a device.
      clip, temperature: C and T of C tanh(logits / T).
      noise: of the placer's logits during the first `noise_updates`, in units of their root mean square.
      noise_updates: see `noise`.
      entropy: weight of the mean entropies of both choices, which are made large (none in the paper).
      lean: probability of what a start has, in the first distributions.
      train: see there; the batch are all placements of an update, m * k.

    Raises:
      InputError: a batch that is no multiple of the groupings.
    """

    groups: int = 256
    groups_per_device: int = 20
    groupings: int = 1
    grouper: int = 64
    hidden: int = 512
    embedding: int = 32
    clip: float = 5.0
    temperature: float = 10.0
    noise: float = 0.0
    noise_updates: int = 0
    entropy: float = 0.0
    lean: float = 0.9
    train: TrainSettings = field(default_factory=lambda: TrainSettings(batch=4))

    def __post_init__(self) -> None:
        if not 0 <= self.lean < 1:
            raise InputError(f"lean {self.lean}", "at least 0 and below 1")
        if self.groupings < 1 or self.train.batch % self.groupings:
            raise InputError(
                f"a batch of {self.train.batch} with {self.groupings} groupings",
                "a batch that is a multiple of the groupings, which are at least 1",
            )

    @classmethod
    def published(cls) -> HierarchicalSettings:
        """Those published for the paper: Adam at a fixed rate of 0.1."""
        return cls(train=TrainSettings(batch=4, rate=0.1))

    @classmethod
    def shipped(cls) -> HierarchicalSettings:
        """Those of TensorFlow 1's `hierarchical_controller.py`, as far as they are no mistakes."""
        train = TrainSettings(batch=1, rate=0.1, cool_after=400, cool_by=0.95, ignore_failed_after=1000)
        return cls(clip=1.0, temperature=1.0, noise=0.5, noise_updates=750, train=train)
