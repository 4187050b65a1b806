"""MinCut: static mapping by Scotch onto the accelerators alone."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.stepcost import Key
from tfplace.group.mapping import static_mapping
from tfplace.group.parts import fit_variables
from tfplace.group.unit_graph import unit_graph
from tfplace.study.base import Study
from tfplace.study.devices import compute_devices, settle

_TOLERANCES = (0.01, 0.05, 0.2, 0.5)


class MinCut:
    """What the placer `scotch` does, without the host CPU: only units that cannot be on an accelerator go there.

    The target's vertices are the accelerators, or all devices if there are none. Everything else, and the departures,
    are those of `tfplace.placers.scotch.Scotch`. It needs pyscotch: `pip install 'tfplace[scotch]'`.
    """

    citation = (
        '"MinCut" of A. Mirhoseini et al.: Device Placement Optimization with Reinforcement Learning. ICML 2017, '
        "section 4.2: Scotch with GPUs only."
    )

    def place(self, study: Study) -> IntArray:
        """Maps a few times; the best of these.

        Raises:
          InputError: pyscotch is not installed.
        """
        problem = study.problem
        graph, devices = unit_graph(problem), compute_devices(problem)
        tried: list[tuple[Key, int, IntArray]] = []
        for tolerance in _TOLERANCES:
            mapped = static_mapping(problem, graph, devices, tolerance)
            wanted = np.where(mapped < 0, devices[0], mapped)
            placed = fit_variables(problem, graph, settle(problem, wanted))
            tried.append((study.key(placed), len(tried), placed))
        return min(tried, key=lambda each: each[:2])[2]
