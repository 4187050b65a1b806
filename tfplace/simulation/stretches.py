"""Phases that follow the critical path: what each device does in a step by that order, cut into stretches.

Of its ready ops a device starts the one after which most seconds remain, as in HLFET, highest levels first (T. L. Adam,
K. M. Chandy, J. R. Dickson: A Comparison of List Schedules for Parallel Processing Systems, CACM 17(12), 1974).
TensorFlow runs what is ready, whatever its level, so a program gets such an order only by phases. Departures: an op's
level does not count its own seconds; and within a stretch, ops run as they become ready.

Ops in the order of their starts come after all that they read. A stretch ends where another begins, so no op waits for
itself through ends of stretches, but for the turns of a loop on several devices.
"""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.control_flow import ARGUMENTS, control_flow
from tfplace.core.graph import OpGraph

STRETCHES = 48
"""Of a device's seconds; a guess. More keep more of the order, but at each end all ops there wait for one op more."""


class Stretches:
    """Cuts steps of one graph.

    Args:
      graph: whose steps. Its arguments, variables and copied constants are in no stretch, as they cannot wait.
      count: stretches on each device, of equal seconds.
    """

    def __init__(self, graph: OpGraph, count: int = STRETCHES) -> None:
        self._count = count
        self._waits = ~graph.replicable & ~np.array([kind in ARGUMENTS for kind in graph.op_types], bool)
        self._loop = control_flow(graph).loop

    def __call__(self, op_device: IntArray, start_s: FloatArray, compute_s: FloatArray) -> IntArray:
        """[V] the stretch of each op on its device, -1 for none: equal seconds, but with all of a loop in one.

        Args:
          op_device: [V].
          start_s: [V] when each op starts in a step in which ops start after all that they read.
          compute_s: [V, D] seconds.
        """
        out = np.full(len(op_device), -1, np.int32)
        for d in np.unique(op_device[self._waits]).tolist():
            ops = np.flatnonzero(self._waits & (op_device == d))
            ops = ops[np.argsort(start_s[ops], kind="stable")]  # of one instant by index, which is a topological order
            out[ops] = _cut(compute_s[ops, d], self._loop[ops], self._count)
        return out


def _cut(seconds: FloatArray, loop: IntArray, count: int) -> IntArray:
    """[N] the stretch of each op of a device, in the order of starts; of ops in a loop the number of it, else -1."""
    done = np.cumsum(seconds)
    before = np.concatenate([[0.0], done[:-1]])
    stretch = np.minimum(count * before / max(done[-1], 1e-300), count - 1).astype(np.int32)
    ends = np.diff(stretch) > 0
    for one in np.unique(loop[loop >= 0]).tolist():
        of_loop = np.flatnonzero(loop == one)
        ends[of_loop[0] : of_loop[-1]] = False
    return np.concatenate([[0], np.cumsum(ends)]).astype(np.int32)
