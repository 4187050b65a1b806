"""Cross-entropy method: a distribution over placements, fitted again and again to the best drawn from it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, SearchContext
from tfplace.group.coarsen import nested_groups
from tfplace.group.merge import renumber
from tfplace.local_search.batches import all_keys, try_all
from tfplace.local_search.devices import single_devices
from tfplace.local_search.elite import fit_elite
from tfplace.local_search.grouped_context import GroupedContext
from tfplace.local_search.penalized_cost import PenalizedCost, begin
from tfplace.local_search.sampling import device_share, pick


class CrossEntropy(Placer):
    """Draws each group's device by itself, and moves the probabilities to the best placements drawn.

    The budget is shared equally by levels of `tfplace.group.coarsen.hierarchy` from coarse to fine. At each, samples
    are drawn from a categorical distribution per group, which is then updated; see `fit_elite`. A level's first
    distribution is the last of the level before, each group's given to all groups it is made of. If there are at most
    2,000 placements, all of them are tried instead.

    Departures. From Rubinstein: levels of groups. From Post, whose cross-entropy step this is without its steps of
    proximal policy optimization between: levels instead of one grouping; the first distribution leans towards the best
    of some placements, where Post's is uniform (`lean=0`); smoothing, where Post replaces the distribution
    (`smoothing=1`); mixed in is the blind draw of `tfplace.local_search.sampling.device_share`, which is uniform but
    for a host beside accelerators. Placements that do not fit the memory are ranked with a price for what is missing,
    which rises while half of the elite or more are such (`PenalizedCost.adapt`).

    Args:
      starts: [U] placements; by default everything on each device in turn. Groups are parted where the best of them
        has them on several devices.
      groups: for each level, how many groups it has at most before they are parted.
      samples: placements drawn per update (N).
      elite: fraction of them that the distribution is fitted to (rho); Post's is 0.1.
      smoothing: how far an update goes from the old distribution to that of the elite (alpha).
      mixing: part of the blind draw in the distribution after each update (epsilon).
      lean: probability of the best start's device in the first distribution.
    """

    citation = (
        "R. Y. Rubinstein: The Cross-Entropy Method for Combinatorial and Continuous Optimization. Methodology and "
        "Computing in Applied Probability 1, 1999; for placement as in Y. Gao, L. Chen, B. Li: Post: Device Placement "
        "with Cross-Entropy Minimization and Proximal Policy Optimization. NeurIPS 2018, equation 10."
    )
    accepts_starts = True
    supports_workers = True

    def __init__(
        self,
        starts: Sequence[IntArray] = (),
        groups: Sequence[int] = (300, 1000),
        *,
        samples: int = 50,
        elite: float = 0.1,
        smoothing: float = 0.5,
        mixing: float = 0.002,
        lean: float = 0.9,
    ) -> None:
        self.starts = tuple(starts)
        self.groups = tuple(groups)
        self.samples = samples
        self.elite = elite
        self.smoothing = smoothing
        self.mixing = mixing
        self.lean = lean

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up, or all placements have been tried."""
        starts = self.starts or single_devices(context.problem)
        start, _, price = begin(context, starts)
        if not try_all(context):
            self._levels(context, start, price)
        return start if context.best is None else context.best

    def _levels(self, context: SearchContext, start: IntArray, price: PenalizedCost) -> None:
        # groups are parted where the start parts them, or they could not say it
        whole = nested_groups(context.problem, self.groups)
        labels = [renumber(label * context.problem.num_devices + start) for label in whole]
        probability: FloatArray | None = None
        for level, label in enumerate(labels):
            part = context.share(1 / (len(labels) - level), f"cross_entropy, {int(label.max()) + 1} groups")
            grouped = GroupedContext(part, label)
            first = np.unique(label, return_index=True)[1]
            if probability is None:
                blind = device_share(grouped.problem)
                probability = (1 - self.lean) * blind + self.lean * np.eye(blind.shape[1])[start[first]]
            else:
                probability = probability[labels[level - 1][first]]
            probability = self._fit(grouped, probability, price)

    def _fit(self, context: SearchContext, probability: FloatArray, price: PenalizedCost) -> FloatArray:
        """[U, D] the distribution when the context's budget is used up."""
        blind = device_share(context.problem)
        count = max(round(self.elite * self.samples), 1)
        with contextlib.suppress(BudgetSpentError):
            while True:
                devices = pick(context.rng.random((self.samples, len(probability))), probability)
                over, step_s = all_keys(context, devices)
                elite = np.argsort(price.rows(over, step_s), kind="stable")[:count]
                probability = fit_elite(probability, devices[elite], blind, self.smoothing, self.mixing)
                price.adapt(fits=np.median(over[elite]) == 0)
        return probability
