"""MinCut: static mapping by Scotch onto the accelerators alone."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.group.mapping import load_pyscotch
from tfplace.local_search.devices import compute_devices
from tfplace.local_search.static_mapping import best_mapping


class MinCut:
    """What the placer `scotch` does, without the host CPU: only units that cannot be on an accelerator go there.

    The target's vertices are the accelerators, or all devices if there are none. Everything else, and the departures,
    are those of `tfplace.placers.scotch.Scotch`. It needs pyscotch: `pip install 'tfplace[scotch]'`.
    """

    citation = (
        '"MinCut" of A. Mirhoseini et al.: Device Placement Optimization with Reinforcement Learning. ICML 2017, '
        "section 4.2: Scotch with GPUs only."
    )

    check_extra = staticmethod(load_pyscotch)

    def place(self, context: SearchContext) -> IntArray:
        """Maps a few times; the best of these.

        Raises:
          InputError: pyscotch is not installed.
        """
        return best_mapping(context, compute_devices(context.problem))
