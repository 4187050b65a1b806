"""CriticalPath: the ops and transfers that determine the length of a step, and its parts for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tfplace.core.arrays import FloatArray, IntArray


class CriticalPath(NamedTuple):
    """The critical path of a step: ops and transfers, each of which could not start before the next one had ended.

    It is the longest path through the schedule, not through the graph: an op may also wait for its device, and a
    transfer for its channel. The last to end comes first.

    Attributes:
      unit: [N] the unit that computes, or whose result is sent.
      reader: [N] one of the units to which the result is sent; -1 if the unit computes.
      seconds: [N] duration of the op or transfer.
      start: [U] seconds from the start of the step to the start of each unit's first op; 0 if it has none.
      finish: [U] seconds from the start of the step to the end of each unit's last op; 0 if it has none.
      op: [N] the op that computes, or whose result is sent.
    """

    unit: IntArray
    reader: IntArray
    seconds: FloatArray
    start: FloatArray
    finish: FloatArray
    op: IntArray


@dataclass(frozen=True)
class Waiting:
    """The time that a device or link contributes to a step's critical path.

    Attributes:
      what: name of the device that computes, or of the two devices of a link, such as "GPU:0 to GPU:1".
      seconds: seconds on the critical path.
      sends: whether it is a link, instead of a device that computes.
    """

    what: str
    seconds: float
    sends: bool = False
