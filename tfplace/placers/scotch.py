"""Scotch: static mapping onto all devices, the host included."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.group.mapping import load_pyscotch
from tfplace.local_search.static_mapping import best_mapping


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

    check_extra = staticmethod(load_pyscotch)

    def place(self, context: SearchContext) -> IntArray:
        """Maps a few times; the best of these.

        Raises:
          InputError: pyscotch is not installed.
        """
        return best_mapping(context, np.arange(context.problem.num_devices, dtype=np.int32))
