"""The hierarchical planner: a grouper and a placer, trained together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext, best_of
from tfplace.learned.training.hierarchical_settings import HierarchicalSettings

if TYPE_CHECKING:
    from tfplace.learned.networks.hierarchy import Hierarchy


class Hierarchical:
    """A feed-forward grouper draws a group for every op, an attentional LSTM a device for every group.

    A. Mirhoseini et al. 2018, section 2: the gradient is the sum of two REINFORCE terms that share the reward, minus
    the square root of the step time, against a moving average (equations 3 to 6).

    Departures. What is grouped are units, which cannot be split; a unit that may not be on its group's device goes to
    its fastest. Features are scaled: types as parts, logarithms of dimensions, places in the topological order as parts
    of the whole, where TensorFlow's controller takes type numbers, dimensions and indices as they are. Its grouper has
    no hidden layer, and it adds shapes to the columns of types; both are mistakes that are not repeated, and neither is
    that it draws nothing new after 500 updates. The placer has the departures of `Attentional`; the first distribution
    is the blind draw (see `prior_logits`), and rewards are those of `Reward`.

    Args:
      starts: [U] placements, of which the first distributions lean towards the best.
      settings: constants; `HierarchicalSettings.published()` are the paper's, `HierarchicalSettings.shipped()` those of
        TensorFlow's controller.
    """

    citation = (
        "A. Mirhoseini, A. Goldie, H. Pham, B. Steiner, Q. V. Le, J. Dean: A Hierarchical Model for Device Placement. "
        "ICLR 2018; TensorFlow 1.15, python/grappler/hierarchical_controller.py."
    )

    learned = True
    has_controllers = True

    def __init__(self, starts: Sequence[IntArray] = (), settings: HierarchicalSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or HierarchicalSettings()

    def place(self, context: SearchContext) -> IntArray:
        """Draws and learns until the context's budget is used up."""
        from tfplace.learned.training.trainer import train

        train(context, self.starts, functools.partial(_learner, self.settings), self.settings.train)
        return best_of(context)


def _learner(settings: HierarchicalSettings, start: IntArray | None, context: SearchContext) -> Hierarchy:
    from tfplace.learned.networks.hierarchy import Hierarchy

    return Hierarchy(context.problem, settings, context.rng, start)
