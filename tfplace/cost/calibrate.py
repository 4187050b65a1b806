"""From measured transfers to a link: robust fits of seconds over sizes, split between the ends and the wire."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from tfplace.core.arrays import FloatArray
from tfplace.core.device import Link
from tfplace.errors import InputError

MAX_BANDWIDTH = 1e15
"""Bytes per second of a wire that adds nothing measurable to what the ends take."""


@dataclass(frozen=True)
class Line:
    """seconds = fixed_s + size * per_byte_s.

    Attributes:
      fixed_s: seconds of a transfer without bytes.
      per_byte_s: seconds per byte.
    """

    fixed_s: float
    per_byte_s: float

    def __call__(self, size_bytes: ArrayLike) -> FloatArray:
        """Seconds for sizes of any shape."""
        return self.fixed_s + np.asarray(size_bytes, np.float64) * self.per_byte_s


def fit_line(size_bytes: ArrayLike, seconds: ArrayLike) -> Line:
    """The line with the least sum of absolute relative errors, neither part of it below 0.

    Least absolute deviations, since a disturbed measurement must not draw the line to itself; relative ones, since
    sizes span five orders of magnitude and a transfer of a kilobyte matters as much as one of megabytes. A line of that
    kind passes through two of the points (or through one, at a bound), so that the best of all such lines is exact.

    Args:
      size_bytes: [S], at least two different ones.
      seconds: [S], above 0.

    Raises:
      InputError: fewer than two sizes, or seconds that are not above 0.
    """
    x, y = np.asarray(size_bytes, np.float64), np.asarray(seconds, np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(np.unique(x)) < 2:
        raise InputError(f"sizes {x.tolist()} with {len(y)} times", "times of at least two different sizes")
    if not np.all(np.isfinite(y)) or not np.all(y > 0):
        raise InputError(f"seconds {y.tolist()}", "finite seconds above 0")
    lines = [Line(float(t), 0.0) for t in y]
    lines += [Line(0.0, float(t / n)) for n, t in zip(x, y, strict=True) if n > 0]
    for i, j in combinations(range(len(x)), 2):
        if x[i] != x[j]:
            slope = float((y[j] - y[i]) / (x[j] - x[i]))
            lines.append(Line(float(y[i] - slope * x[i]), slope))
    possible = [line for line in lines if line.fixed_s >= 0 and line.per_byte_s >= 0]
    return min(possible, key=lambda line: float(np.abs(line(x) / y - 1).sum()))


@dataclass(frozen=True, eq=False)
class TransferTimes:
    """What was measured of one directed pair of devices. [S] sizes.

    Attributes:
      src: sending device.
      dst: receiving device.
      size_bytes: [S].
      one_way_s: [S] seconds from the end of the op that makes a tensor to the start of the one that reads it, with both
        devices otherwise idle.
      send_s: [S] seconds a transfer takes of the sending device's core while that computes; at most 0 where that was
        too little to be told from nothing.
      receive_s: [S] the same of the receiving device's core.
    """

    src: str
    dst: str
    size_bytes: FloatArray
    one_way_s: FloatArray
    send_s: FloatArray
    receive_s: FloatArray


@dataclass(frozen=True, eq=False)
class LinkFit:
    """A link and how well it describes the measurements.

    Attributes:
      times: what was measured.
      link: the fit.
      one_way: fitted seconds of a transfer between idle devices.
      modelled_s: [S] what the link says a transfer takes: sending, wire and receiving.
    """

    times: TransferTimes
    link: Link
    one_way: Line
    modelled_s: FloatArray

    @property
    def fit_error(self) -> float:
        """Median relative error of the fitted line over the sizes."""
        return float(np.median(np.abs(self.one_way(self.times.size_bytes) / self.times.one_way_s - 1)))

    @property
    def excess(self) -> float:
        """Largest part by which the modeled time exceeds the measured one way, as a fraction of it."""
        return float(np.max(self.modelled_s / self.times.one_way_s - 1))


def fit_link(times: TransferTimes, *, within_one_way: bool = False) -> LinkFit:
    """The link that takes each end's core for as long as measured, and whose wire has the rest of the one-way time.

    Work at the two ends overlaps: part of it is done before the tensor is there (the request) or after it was handed
    over (cleaning up), and long tensors are received while they are sent. Where the ends' times together exceed the
    one-way time, nothing is left for the wire, and sending, wire and receiving one after the other take longer than
    measured between idle devices (`LinkFit.excess`). That errs for the latency and is right for how much of the cores
    transfers take, which is what decides on busy devices. `within_one_way` errs the other way: both ends are shortened
    alike until the sum fits.

    Args:
      times: what was measured.
      within_one_way: never take longer than the measured one way.
    """
    one_way = fit_line(times.size_bytes, times.one_way_s)
    ends = [_end(times.size_bytes, seconds) for seconds in (times.send_s, times.receive_s)]
    fixed = _split(one_way.fixed_s, [end.fixed_s for end in ends], within_one_way)
    per_byte = _split(one_way.per_byte_s, [end.per_byte_s for end in ends], within_one_way)
    link = Link(
        times.src,
        times.dst,
        bandwidth=min(1 / per_byte[2], MAX_BANDWIDTH) if per_byte[2] > 0 else MAX_BANDWIDTH,
        latency_s=fixed[2],
        send_overhead_s=fixed[0],
        send_overhead_s_per_byte=per_byte[0],
        receive_overhead_s=fixed[1],
        receive_overhead_s_per_byte=per_byte[1],
    )
    return LinkFit(times, link, one_way, Line(sum(fixed), sum(per_byte))(times.size_bytes))


def _end(size_bytes: FloatArray, seconds: FloatArray) -> Line:
    """What an end takes; nothing where that is too little to be measured."""
    if np.sum(seconds > 0) < 2:
        return Line(0.0, 0.0)
    return fit_line(size_bytes[seconds > 0], seconds[seconds > 0])


def _split(total: float, ends: list[float], within: bool) -> tuple[float, float, float]:
    """(sender, receiver, wire)."""
    taken = sum(ends)
    factor = min(1.0, total / taken) if within and taken > 0 else 1.0
    send, receive = (factor * end for end in ends)
    return send, receive, max(0.0, total - send - receive)
