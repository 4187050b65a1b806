"""Scotch: static mapping onto all devices, the host included."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.stepcost import Key
from tfplace.group.mapping import static_mapping
from tfplace.group.parts import fit_variables
from tfplace.group.unit_graph import unit_graph
from tfplace.study.base import Study
from tfplace.study.devices import settle

_TOLERANCES = (0.01, 0.05, 0.2, 0.5)


class Scotch:
    """Maps the graph of units onto the graph of devices, so that little is sent far while each device has its share.

    Every device, also a host CPU beside accelerators, is a vertex of the target, as fast as it would do all the work;
    distances are how slow the links are. A unit weighs its mean seconds, an edge the mean seconds of the transfers
    along it. Units with one device to be on are fixed there. Scotch is asked four times, with loads that may be 1, 5,
    20 and 50 % over their share; the shortest simulated step is the answer. It needs pyscotch:
    `pip install 'tfplace[scotch]'`.

    Departures from the paper, which gives its cost model in one sentence: units that may not be where Scotch maps them
    go to the fastest device they may be on, and variables that a device cannot hold are moved; there, placements ran
    out of memory.
    """

    citation = (
        '"Scotch" of A. Mirhoseini et al.: Device Placement Optimization with Reinforcement Learning. ICML 2017, '
        "section 4.2; F. Pellegrini, J. Roman: Scotch: A Software Package for Static Mapping by Dual Recursive "
        "Bipartitioning of Process and Architecture Graphs. HPCN Europe 1996."
    )

    def place(self, study: Study) -> IntArray:
        """Maps a few times; the best of these.

        Raises:
          InputError: pyscotch is not installed.
        """
        problem = study.problem
        graph, devices = unit_graph(problem), np.arange(problem.num_devices, dtype=np.int32)
        tried: list[tuple[Key, int, IntArray]] = []
        for tolerance in _TOLERANCES:
            wanted = static_mapping(problem, graph, devices, tolerance)
            placed = fit_variables(problem, graph, settle(problem, wanted))
            tried.append((study.key(placed), len(tried), placed))
        return min(tried, key=lambda each: each[:2])[2]
