"""Random search: the best of placements drawn blindly, which every search has to beat."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.group.coarsen import hierarchy
from tfplace.local_search.batches import all_keys, try_all
from tfplace.local_search.sampling import device_share, pick

_ROWS = 64


class RandomSearch(Placer):
    """Draws placements, independently of one another, until the budget is used up.

    One placement is drawn like this. A level of `tfplace.group.coarsen.hierarchy` is drawn, each equally likely, from
    single units to the whole graph as one group. Each of its groups goes to a device of its own draw: each accelerator
    is equally likely, a host beside them a hundredth as likely, and units that may be on a host only go there.

    Papers that report random placements draw a device for each group of their one fixed grouping, which is what this
    does at one level. On a graph of thousands of ops, drawing a device for every op gives nothing but transfers, so
    that would be no contest; it is what `mixed=False` does. If there are at most 2,000 placements, all of them are
    tried instead.

    Args:
      mixed: draw at all levels; otherwise for single units only.
    """

    citation = (
        "J. Bergstra, Y. Bengio: Random Search for Hyper-Parameter Optimization. Journal of Machine Learning Research "
        "13, 2012."
    )
    supports_workers = True

    def __init__(self, mixed: bool = True) -> None:
        self.mixed = mixed

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up, or all placements have been tried."""
        if not try_all(context):
            levels = _levels(context.problem, self.mixed)
            share = device_share(context.problem)
            while True:
                all_keys(context, _draw(context.rng, levels, share))
        assert context.best is not None
        return context.best


def _levels(problem: Problem, mixed: bool) -> list[IntArray]:
    """[U] the group of each unit, per level, finest first."""
    units = np.arange(problem.num_units, dtype=np.int32)
    return [units, *hierarchy(problem), np.zeros_like(units)] if mixed else [units]


def _draw(rng: np.random.Generator, levels: list[IntArray], share: FloatArray) -> IntArray:
    """[B, U] devices. Units of one group get the same key, so where they share devices, the same device."""
    rows = []
    for level in rng.integers(len(levels), size=_ROWS).tolist():
        label = levels[level]
        rows.append(rng.random(int(label.max()) + 1)[label])
    return pick(np.stack(rows), share)


class Untrained(RandomSearch):
    """What a policy that places units or groups would find if it never learned: each by itself, in the same shares.

    `RandomSearch` for single units only.
    """

    def __init__(self) -> None:
        super().__init__(mixed=False)
