"""Random: each unit on a device drawn uniformly."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.study.base import Study
from tfplace.study.devices import compute_devices, settle

_DRAWS = 100


class Random:
    """A uniformly random placement over the compute devices: the first drawn that fits every memory.

    A unit that may be on some of them is drawn among those; one that may be on none is settled elsewhere. If a hundred
    draws do not fit, the one that comes nearest is returned.
    """

    citation = "Uniformly random placements, the baseline of the placement literature; no single source."

    def place(self, study: Study) -> IntArray:
        """Draws and evaluates until one fits."""
        best = draw(study)
        best_key = study.key(best)
        for _ in range(_DRAWS - 1):
            if best_key[0] == 0:
                break
            devices = draw(study)
            key = study.key(devices)
            if key < best_key:
                best, best_key = devices, key
        return best


def draw(study: Study) -> IntArray:
    """[U] devices drawn uniformly among the compute devices each unit may be on."""
    problem = study.problem
    devices = compute_devices(problem)
    lots = study.rng.random((problem.num_units, len(devices)))
    return settle(problem, devices[np.where(problem.allowed[:, devices], lots, -1.0).argmax(axis=1)])
