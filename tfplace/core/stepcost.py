"""StepCost: the cost of one step under a placement, from any evaluator, or why there is none."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray, freeze
from tfplace.errors import GraphError

Key = tuple[int, float]
"""(bytes over the memory limits, step seconds). Smaller is better, so a placement that fits beats any that does not."""

SIMULATED, GRAPPLER, MEASURED = "simulated", "grappler", "measured"

STEP_TIME, THROUGHPUT = "step_time", "throughput"
"""Objectives, both minimized: the seconds of one step from start to end; or the seconds between samples that leave a
full pipeline, which is the largest load of a device (docs/concepts/objectives.md)."""

UNKNOWN_BYTES = -1
"""Peak memory of a device if it is unknown."""

FAILED_BYTES = 2**60
"""Missing bytes of a placement that failed, so that any placement that ran beats it."""


class FailureKind(enum.StrEnum):
    """Why a placement has no step time."""

    OUT_OF_MEMORY = "out of memory"
    NO_KERNEL = "no kernel"
    TIME_OUT = "time-out"
    WORKER_LOST = "worker lost"
    ERROR = "error"


@dataclass(frozen=True)
class Failure:
    """Why a placement could not run.

    Attributes:
      kind: kind of failure.
      message: the message of TensorFlow or the operating system.
      device: the device on which it happened; empty if unknown.
    """

    kind: FailureKind
    message: str
    device: str = ""

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"{self.kind}{where}: {self.message}"


@dataclass(frozen=True, eq=False)
class Samples:
    """Measured steps of one placement, each followed by a step of a reference placement.

    Attributes:
      step_s: [N] seconds of the accepted steps, in the order in which they ran.
      reference_s: [N] seconds of the reference's step next to each; empty without a reference.
      rejected: number of measured steps that were left out because other programs used the processor.
      warmup: number of warm-up steps, which were not measured.
      disturbed: number of accepted steps that were disturbed, because too few were undisturbed.
    """

    step_s: FloatArray
    reference_s: FloatArray
    rejected: int = 0
    warmup: int = 0
    disturbed: int = 0

    def __post_init__(self) -> None:
        if self.step_s.ndim != 1 or not len(self.step_s):
            raise GraphError(f"step seconds of shape {self.step_s.shape}", "[N] seconds of at least one step")
        if len(self.reference_s) not in (0, len(self.step_s)):
            raise GraphError(
                f"{len(self.reference_s)} reference steps", f"none, or one for each of {len(self.step_s)} steps"
            )
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
        """Median step seconds divided by those of the reference; None without a reference."""
        return _ratio(self.step_s, self.reference_s)

    @cached_property
    def halves(self) -> tuple[float, float]:
        """`ratio` of the steps with even and with odd index, or the median without a reference.

        Over several placements, the agreement of the two shows how reliable the measurement is.
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
      step_s: seconds from the first op's start to the last op's end, or as the objective says; infinite if the
        placement failed.
      compute_s: [D] seconds that each device computes; NaN if unknown.
      transfer_s: [D] seconds in which at least one of the device's channels sends or receives; NaN if unknown.
      idle_s: [D] seconds in which each device neither computes nor is kept busy by the overheads of links; NaN if
        unknown.
      peak_bytes: [D] peak memory; `UNKNOWN_BYTES` if unknown.
      limit_bytes: [D] memory that may be used.
      moved_bytes: bytes sent between devices; `UNKNOWN_BYTES` if unknown.
      source: where the cost comes from: "simulated", "grappler" or "measured".
      samples: the measured steps; None unless measured.
      failure: why there is no step time; None if there is one.
      objective: what `step_s` is: `STEP_TIME` or `THROUGHPUT`.

    Raises:
      GraphError: negative or missing step seconds, or arrays with wrong shapes or negative values.
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
    objective: str = STEP_TIME

    def __post_init__(self) -> None:
        if not self.step_s >= 0:
            raise GraphError(f"a step of {self.step_s!r} s", "seconds of at least 0")
        devices = (len(self.limit_bytes),)
        for name in (*_SECONDS, "peak_bytes", "limit_bytes"):
            array = getattr(self, name)
            if array.shape != devices:
                raise GraphError(f"{name} of shape {array.shape}", f"one number for each of {devices[0]} devices")
            if np.any(array < (0 if name in _SECONDS else UNKNOWN_BYTES)):
                raise GraphError(f"{name} of {array.min()}", "at least 0")

    @property
    def excess_bytes(self) -> int:
        """Bytes over the limits, summed over devices; 0 if it fits, `FAILED_BYTES` if it failed or never ends."""
        if self.failure is not None or np.isinf(self.step_s):
            return FAILED_BYTES
        return int(np.maximum(self.peak_bytes - self.limit_bytes, 0).sum())

    @property
    def feasible(self) -> bool:
        """Whether the placement runs and every known peak is within its limit."""
        return self.excess_bytes == 0

    @property
    def key(self) -> Key:
        """Bytes over the limits, then step seconds. Smaller is better."""
        return self.excess_bytes, self.step_s

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON. Unknown and infinite seconds are None."""
        out: dict[str, Any] = {
            "source": self.source,
            "step_s": _number(self.step_s),
            **{name: [_number(x) for x in getattr(self, name).tolist()] for name in _SECONDS},
            "peak_bytes": self.peak_bytes.tolist(),
            "limit_bytes": self.limit_bytes.tolist(),
            "moved_bytes": self.moved_bytes,
        }
        if self.objective != STEP_TIME:
            out["objective"] = self.objective
        if self.samples is not None:
            out["samples"] = {
                "step_s": self.samples.step_s.tolist(),
                "reference_s": self.samples.reference_s.tolist(),
                "rejected": self.samples.rejected,
                "warmup": self.samples.warmup,
                "disturbed": self.samples.disturbed,
            }
        if self.failure is not None:
            out["failure"] = asdict(self.failure)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StepCost:
        """Reads the result of `to_dict`.

        Raises:
          KeyError, TypeError, ValueError: the data has another form.
        """
        samples, failure = data.get("samples"), data.get("failure")
        return cls(
            step_s=np.inf if data["step_s"] is None else float(data["step_s"]),
            **{name: np.array([np.nan if x is None else x for x in data[name]], float) for name in _SECONDS},
            peak_bytes=np.array(data["peak_bytes"], np.int64),
            limit_bytes=np.array(data["limit_bytes"], np.int64),
            moved_bytes=int(data["moved_bytes"]),
            source=_source(data["source"]),
            samples=samples and _samples(samples),
            failure=failure and Failure(FailureKind(failure["kind"]), failure["message"], failure["device"]),
            objective=str(data.get("objective", STEP_TIME)),
        )


_SECONDS = ("compute_s", "transfer_s", "idle_s")


def _source(value: Any) -> str:
    if value not in (SIMULATED, GRAPPLER, MEASURED):
        raise ValueError(f"source {value!r:.80}")
    return str(value)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _samples(data: Mapping[str, Any]) -> Samples:
    steps, reference = (np.array(data[name], float) for name in ("step_s", "reference_s"))
    counts = {name: int(data[name]) for name in ("rejected", "warmup", "disturbed")}
    return Samples(steps, reference, **counts)


def bare(
    step_s: float, limit_bytes: LongArray, source: str, samples: Samples | None = None, failure: Failure | None = None
) -> StepCost:
    """A cost of which only the step time is known.

    Args:
      step_s: seconds.
      limit_bytes: [D] memory that may be used.
      source: where the cost comes from.
      samples: the measured steps.
      failure: why there is no step time.
    """
    unknown = np.full(len(limit_bytes), np.nan)
    nobody = np.full(len(limit_bytes), UNKNOWN_BYTES, np.int64)
    return StepCost(step_s, unknown, unknown, unknown, nobody, limit_bytes, UNKNOWN_BYTES, source, samples, failure)


def failed(failure: Failure, limit_bytes: LongArray, source: str) -> StepCost:
    """The cost of a placement that failed.

    Args:
      failure: why it failed.
      limit_bytes: [D] memory that may be used.
      source: where the cost comes from.
    """
    return bare(np.inf, limit_bytes, source, failure=failure)
