"""CriticalPath: what made a step as long as it is."""

from __future__ import annotations

from typing import NamedTuple

from tfplace.core.arrays import FloatArray, IntArray


class CriticalPath(NamedTuple):
    """Ops and transfers of a step, each of which could not begin before the one after it here had ended.

    It is the longest path through the schedule, not through the graph: an op may also wait for its device, and a
    transfer for its channel. The last to end comes first.

    Attributes:
      unit: [N] the unit that computes; or the one that makes what is sent.
      reader: [N] one of the units that it is sent to; -1 where a unit computes.
      seconds: [N] that it takes.
    """

    unit: IntArray
    reader: IntArray
    seconds: FloatArray
