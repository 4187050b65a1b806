"""Random: each unit on a device drawn uniformly."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.local_search.devices import compute_devices, settle

_DRAWS = 100


class Random:
    """A uniformly random placement over the compute devices: the first drawn that fits every memory.

    A unit that may be on some of them is drawn among those; one that may be on none is settled elsewhere. If a hundred
    draws do not fit, the one that comes nearest is returned.
    """

    citation = "Uniformly random placements, the baseline of the placement literature; no single source."

    def place(self, context: SearchContext) -> IntArray:
        """Draws and evaluates until one fits."""
        best = draw(context)
        best_key = context.key(best)
        for _ in range(_DRAWS - 1):
            if best_key[0] == 0:
                break
            devices = draw(context)
            key = context.key(devices)
            if key < best_key:
                best, best_key = devices, key
        return best


def draw(context: SearchContext) -> IntArray:
    """[U] devices drawn uniformly among the compute devices each unit may be on."""
    problem = context.problem
    devices = compute_devices(problem)
    lots = context.rng.random((problem.num_units, len(devices)))
    return settle(problem, devices[np.where(problem.allowed[:, devices], lots, -1.0).argmax(axis=1)])
