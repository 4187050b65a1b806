"""Units dealt over the devices in turn: balanced counts, no thought for edges."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.study.base import Study
from tfplace.study.devices import compute_devices, settle


class RoundRobin:
    """Unit i, in topological order, on compute device i modulo their number."""

    citation = (
        "Folklore; the load-spreading default of TensorFlow's parameter servers (tf.train.replica_device_setter)."
    )

    def place(self, study: Study) -> IntArray:
        """Deals the units out; needs no evaluation."""
        devices = compute_devices(study.problem)
        return settle(study.problem, devices[np.arange(study.problem.num_units) % len(devices)])
