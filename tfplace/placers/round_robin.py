"""Units dealt over the devices in turn: balanced counts, no thought for edges."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.local_search.devices import compute_devices, settle


class RoundRobin:
    """Unit i, in topological order, on compute device i modulo their number."""

    citation = (
        "Folklore; the load-spreading default of TensorFlow's parameter servers (tf.train.replica_device_setter)."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Deals the units out; needs no evaluation."""
        devices = compute_devices(context.problem)
        return settle(context.problem, devices[np.arange(context.problem.num_units) % len(devices)])
