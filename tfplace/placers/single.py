"""Everything on one device: what TensorFlow itself does with one accelerator, and the first thing to beat."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.local_search.devices import single_devices


class Single:
    """The best single device; units without a kernel there, or pinned elsewhere, go to their fastest device."""

    citation = "TensorFlow's default: every op on one device."

    def place(self, context: SearchContext) -> IntArray:
        """Tries each device, the most promising first; the best that fits, else the one that comes nearest."""
        candidates = single_devices(context.problem)
        keys = [context.key(c) for c in candidates]
        return candidates[min(range(len(candidates)), key=keys.__getitem__)]
