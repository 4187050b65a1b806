"""StepCost: what one step costs under a placement, whoever says so, or why there is no such number."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray, freeze
from tfplace.errors import GraphError

Key = tuple[int, float]
"""(bytes over the memory limits, step seconds): smaller is better, so a placement that fits beats any that does not."""

SIMULATED, GRAPPLER, MEASURED = "simulated", "grappler", "measured"

UNKNOWN_BYTES = -1
"""Peak memory of a device on which nobody looked."""

FAILED_BYTES = 2**60
"""Stands for the missing bytes of a placement that failed, so that any placement that ran beats it."""


class FailureKind(enum.StrEnum):
    """Why a placement has no step time."""

    OUT_OF_MEMORY = "out of memory"
    NO_KERNEL = "no kernel"
    TIME_OUT = "time-out"
    WORKER_LOST = "worker lost"
    ERROR = "error"


@dataclass(frozen=True)
class Failure:
    """A placement that could not be run.

    Attributes:
      kind: what happened.
      message: what TensorFlow, or the operating system, said.
      device: the device it happened on, where that is known.
    """

    kind: FailureKind
    message: str
    device: str = ""

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"{self.kind}{where}: {self.message}"


@dataclass(frozen=True, eq=False)
class Samples:
    """Measured steps of one placement, each in turn with a step of a reference placement.

    Attributes:
      step_s: [N] seconds of the steps that count, in the order in which they ran.
      reference_s: [N] seconds of the reference's step next to each; empty if there was no reference.
      rejected: steps measured and left out because something else used the processor meanwhile.
      warmup: steps run before and not measured.
    """

    step_s: FloatArray
    reference_s: FloatArray
    rejected: int = 0
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.step_s.ndim != 1 or not len(self.step_s):
            raise GraphError(f"step seconds of shape {self.step_s.shape}", "[N] seconds of at least one step")
        if len(self.reference_s) not in (0, len(self.step_s)):
            raise GraphError(f"{len(self.reference_s)} reference steps", f"none, or one for each of {len(self.step_s)}")
        for array in (self.step_s, self.reference_s):
            freeze(array)

    @cached_property
    def median_s(self) -> float:
        """Median step seconds."""
        return float(np.median(self.step_s))

    @cached_property
    def spread_s(self) -> float:
        """Interquartile range of the step seconds."""
        low, high = np.percentile(self.step_s, [25, 75])
        return float(high - low)

    @cached_property
    def ratio(self) -> float | None:
        """Median step seconds over the reference's; None without a reference."""
        return _ratio(self.step_s, self.reference_s)

    @cached_property
    def halves(self) -> tuple[float, float]:
        """`ratio` (or the median, without a reference) of the steps at even and at odd places.

        Over several placements, how well the two agree tells how much the measurement itself can be trusted.
        """
        even, odd = ((self.step_s[i::2], self.reference_s[i::2]) for i in (0, 1))
        first = _ratio(*even) or float(np.median(even[0]))
        if not len(odd[0]):
            return first, first
        return first, _ratio(*odd) or float(np.median(odd[0]))


def _ratio(step_s: FloatArray, reference_s: FloatArray) -> float | None:
    return float(np.median(step_s) / np.median(reference_s)) if len(reference_s) else None


@dataclass(frozen=True, eq=False)
class StepCost:
    """The cost of one step under one placement.

    Attributes:
      step_s: seconds from the first op's start to the last op's end; infinite if the placement failed.
      compute_s: [D] seconds each device computes; NaN where it is not known.
      transfer_s: [D] seconds in which at least one of the device's channels is sending or receiving; NaN where it is
        not known.
      idle_s: [D] seconds each device does not compute (`step_s - compute_s`).
      peak_bytes: [D] highest memory in use at any time; `UNKNOWN_BYTES` where nobody looked.
      limit_bytes: [D] memory that may be used.
      moved_bytes: bytes sent between devices; `UNKNOWN_BYTES` if nobody looked.
      source: who says so: "simulated", "grappler" or "measured".
      samples: what was measured; None unless measured.
      failure: why there is no step time, or None.
    """

    step_s: float
    compute_s: FloatArray
    transfer_s: FloatArray
    idle_s: FloatArray
    peak_bytes: LongArray
    limit_bytes: LongArray
    moved_bytes: int
    source: str = SIMULATED
    samples: Samples | None = None
    failure: Failure | None = None

    @property
    def excess_bytes(self) -> int:
        """Bytes over the limit, summed over devices; 0 when the placement fits, `FAILED_BYTES` when it failed."""
        if self.failure is not None:
            return FAILED_BYTES
        return int(np.maximum(self.peak_bytes - self.limit_bytes, 0).sum())

    @property
    def feasible(self) -> bool:
        """Whether it ran, or would, and every device's peak is within its limit as far as that is known."""
        return self.excess_bytes == 0

    @property
    def key(self) -> Key:
        """Smaller is better: first what does not fit, then the step time."""
        return self.excess_bytes, self.step_s


def failed(failure: Failure, limit_bytes: LongArray, source: str) -> StepCost:
    """The cost of a placement that failed.

    Args:
      failure: why.
      limit_bytes: [D] memory that may be used.
      source: who tried it.
    """
    unknown = np.full(len(limit_bytes), np.nan)
    nobody = np.full(len(limit_bytes), UNKNOWN_BYTES, np.int64)
    return StepCost(
        np.inf, unknown, unknown, unknown, nobody, limit_bytes, UNKNOWN_BYTES, source=source, failure=failure
    )
