"""ColocRL: an attentional sequence-to-sequence policy, trained with REINFORCE on step times."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext, best_of
from tfplace.errors import InputError
from tfplace.learned.features.prior import prior_logits
from tfplace.learned.training.settings import TrainSettings
from tfplace.local_search.grouped_context import in_groups

if TYPE_CHECKING:
    from tfplace.learned.networks.one_by_one import OneByOne


@dataclass(frozen=True)
class Seq2SeqSettings:
    """Constants; those that the paper does not tell are marked.

    Attributes:
      groups: what is placed, if there are more units (188, 280 and 83 in the paper).
      hidden: of both LSTMs (not told; TensorFlow's later controller has 512).
      embedding: of a device (not told).
      entropy: weight of the mean entropy of a choice, which is made large (none in the paper).
      lean: of `prior_logits`, if there is a start.
      train: see there.
    """

    groups: int = 256
    hidden: int = 256
    embedding: int = 32
    entropy: float = 0.0
    lean: float = 0.9
    train: TrainSettings = field(default_factory=TrainSettings)

    def __post_init__(self) -> None:
        if min(self.groups, self.hidden, self.embedding) < 1 or not 0 <= self.lean < 1:
            raise InputError(
                f"groups {self.groups}, hidden {self.hidden}, embedding {self.embedding} and lean {self.lean}",
                "numbers above 0; lean below 1",
            )


class Seq2Seq:
    """An attentional LSTM reads all groups, another one decides their devices in turn; trained with REINFORCE.

    Section 3.1: REINFORCE on minus the square root of the step time, with a moving average for a baseline. Section 3.2:
    types, output shapes and adjacency of each group (`unit_features`), and the network (`Attentional`). Section 3.3:
    groups (`tfplace.group.co_placement.merge`).

    Departures. Those of the parts named above; the first distribution is the blind draw, where the paper's is uniform
    (see `prior_logits`); rewards are relative (see `Reward`), and grade how much memory is missing.

    Args:
      starts: [U] placements, of which the first distribution leans towards the best.
      settings: constants.
    """

    citation = (
        "A. Mirhoseini, H. Pham, Q. V. Le, B. Steiner, R. Larsen, Y. Zhou, N. Kumar, M. Norouzi, S. Bengio, J. Dean: "
        "Device Placement Optimization with Reinforcement Learning. ICML 2017."
    )

    learned = True
    has_controllers = True

    def __init__(self, starts: Sequence[IntArray] = (), settings: Seq2SeqSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or Seq2SeqSettings()

    def place(self, context: SearchContext) -> IntArray:
        """Draws and learns until the context's budget is used up."""
        from tfplace.learned.training.trainer import train

        grouped = in_groups(context, self.settings.groups)
        train(grouped, grouped.known(self.starts), functools.partial(_learner, self.settings), self.settings.train)
        return best_of(context)


def _learner(settings: Seq2SeqSettings, start: IntArray | None, context: SearchContext) -> OneByOne:
    from tfplace.learned.networks.one_by_one import OneByOne

    prior = prior_logits(context.problem, start, settings.lean)
    network = {"hidden": settings.hidden, "embedding": settings.embedding}
    return OneByOne(context.problem, prior, context.rng, network, entropy=settings.entropy)
