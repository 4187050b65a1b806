"""CriticalPath: what made a step as long as it is, and when everything was done in it; its parts, for people."""

from __future__ import annotations

from dataclasses import dataclass
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
      start: [U] seconds from the step's beginning to that of each unit's first op; 0 if it has none.
      finish: [U] the same to the end of its last.
      op: [N] the op that computes; or the one that makes what is sent.
    """

    unit: IntArray
    reader: IntArray
    seconds: FloatArray
    start: FloatArray
    finish: FloatArray
    op: IntArray


@dataclass(frozen=True)
class Waiting:
    """A part of a step's critical path.

    Attributes:
      what: the name of a device that computes, or of two, from one of which to the other something is sent.
      seconds: for which the step waits for it.
      sends: whether it is two.
    """

    what: str
    seconds: float
    sends: bool = False
