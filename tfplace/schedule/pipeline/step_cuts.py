"""The programme that cuts a split step into stages, one after the other, for the shortest synchronous step."""

# A NamedTuple's fields are of type Any once compiled.
# mypy: disable-error-code="no-any-return, untyped-decorator"
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.kernels import helper, kernel
from tfplace.core.topology import Topology
from tfplace.schedule.pipeline.line import Line

_FINER = 1.02
"""Ratio of one longest stage that is looked at to the next."""


class Cut(NamedTuple):
    """Stages.

    Attributes:
      devices: [S] of each stage.
      begin: [S + 1] the stretch with which each stage begins, and where they end.
      longest_s: of its stages' computing and transfers, for one slice.
      step_s: what a step takes by the formula.
    """

    devices: IntArray
    begin: IntArray
    longest_s: float
    step_s: float

    def along(self) -> IntArray:
        """[P] the device of each stretch."""
        return np.repeat(self.devices, np.diff(self.begin)).astype(np.int32)


def straight_cuts(
    line: Line, topology: Topology, order: IntArray, slices: int, limit: LongArray, *, all_held: bool
) -> list[Cut]:
    """Stages for each number of them and several longest stages, those of the shortest step first.

    With t seconds of each slice in a stage, a step of K slices takes sum(t) + (K - 1) max(t) seconds, as in a pipeline
    that is filled and emptied once (Y. Huang et al.: GPipe, NeurIPS 2019; D. Narayanan et al.: Efficient Large-Scale
    Language Model Training on GPU Clusters Using Megatron-LM, SC 2021, section 2.2). In the sum are the transfers to
    the next stage and back. They go on while a device computes, so that of one slice's computing and transfers the
    longest counts in the maximum.

    Between their passes a stage holds all slices, or min(K, s) of them if s stages are left with itself.

    Args:
      line: the step.
      topology: of its devices.
      order: devices in the order of the stages; some may be left out.
      slices: K.
      limit: [D] bytes.
      all_held: whether a stage holds all slices.

    Returns:
      The first takes at most 2 % longer than the shortest of all that fit; none if nothing fits.
    """
    count, devices = len(line.seconds), len(order)
    tables = _Tables(
        seconds=_prefix(line.seconds[:, order]),
        kept=_prefix(line.kept_bytes),
        stashed=_prefix(line.stashed_bytes),
        onward=_transfer_s(line, topology, order, 0),
        back=_transfer_s(line, topology, order, 1).transpose(0, 2, 1).copy(),
        held=np.array([slices if all_held else min(slices, s) for s in range(devices + 1)], np.int32),
        limit=limit[order].astype(np.float64),
    )
    best = np.full((devices + 1, devices, count + 1), np.inf)
    end, then = (np.full(best.shape, -1, np.int32) for _ in range(2))
    fill_stages(tables, np.inf, False, best, end, then)
    least = best[1:, :, 0].min(axis=1)  # the least longest stage for each number of stages
    found: dict[bytes, Cut] = {}

    def look(longest_s: float) -> tuple[float, float]:
        """Adds the least sums below a longest stage; the least of all, and of all steps so far."""
        best[:], end[:], then[:] = np.inf, -1, -1
        fill_stages(tables, longest_s * (1 + 1e-9), True, best, end, then)
        for stages in range(1, devices + 1):
            first = int(best[stages, :, 0].argmin())
            if np.isfinite(best[stages, first, 0]):
                cut = _cut(tables, end, then, stages, first, order, slices)
                found.setdefault(cut.along().tobytes(), cut)
        return float(best[1:, :, 0].min()), min(cut.step_s for cut in found.values())

    if np.isfinite(least.min()):
        least_sum, step_s = look(np.inf)
        for longest_s in least[np.isfinite(least)].tolist():
            step_s = look(longest_s)[1]
        longest_s = float(least.min())
        while (slices - 1) * longest_s > 0 and least_sum + (slices - 1) * longest_s < step_s:
            longest_s *= _FINER
            step_s = look(longest_s)[1]
    return sorted(found.values(), key=lambda cut: cut.step_s)


def few_cuts(cuts: list[Cut], most: int) -> list[Cut]:
    """For each number of stages the cuts of the shortest step and of the least longest stage; the shortest first."""
    chosen: dict[bytes, Cut] = {}
    for stages in {len(cut.devices) for cut in cuts}:
        alike = [cut for cut in cuts if len(cut.devices) == stages]
        for cut in (min(alike, key=lambda c: c.step_s), min(alike, key=lambda c: (c.longest_s, c.step_s))):
            chosen[cut.along().tobytes()] = cut
    return sorted(chosen.values(), key=lambda cut: cut.step_s)[:most]


class _Tables(NamedTuple):
    """The numbers of the programme; devices in the order of the stages.

    Attributes:
      seconds: [P + 1, D] of a slice, before each stretch.
      kept: [P + 1] bytes, alike.
      stashed: [P + 1] bytes of a slice, alike.
      onward: [P + 1, D, D] seconds of a slice over each cut, from the row's device to the column's.
      back: [P + 1, D, D] seconds of the way back, from the column's device to the row's.
      held: [S + 1] slices that a stage holds if so many stages are left.
      limit: [D] bytes.
    """

    seconds: FloatArray
    kept: FloatArray
    stashed: FloatArray
    onward: FloatArray
    back: FloatArray
    held: IntArray
    limit: FloatArray


def _prefix(values: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


def _transfer_s(line: Line, topology: Topology, order: IntArray, way: int) -> FloatArray:
    """[P + 1, D, D] seconds of a slice's messages over each cut from the row's device to the column's."""
    pairs = np.ix_(order, order)
    per_byte, latency = 1.0 / topology.bandwidth[pairs], topology.latency_s[pairs]
    seconds: FloatArray = line.messages[way][:, None, None] * latency + line.size_bytes[way][:, None, None] * per_byte
    return seconds


def _cut(t: _Tables, end: IntArray, then: IntArray, stages: int, first: int, order: IntArray, slices: int) -> Cut:
    devices, begin, total, longest = [], [0], 0.0, 0.0
    at, d = 0, first
    for left in range(stages, 0, -1):
        to, after = int(end[left, d, at]), int(then[left, d, at])
        parts = [t.seconds[to, d] - t.seconds[at, d]]
        if left > 1:
            parts += [t.onward[to, d, after], t.back[to, d, after]]
        total, longest = total + sum(parts), max(longest, *parts)
        devices.append(int(order[d]))
        begin.append(to)
        at, d = to, after
    return Cut(np.array(devices, np.int32), np.array(begin, np.int32), longest, total + (slices - 1) * longest)


@helper
def _larger(a: float, b: float) -> float:
    return a if a > b else b


@kernel
def fill_stages(t: _Tables, limit_s: float, by_sum: bool, best: FloatArray, end: IntArray, then: IntArray) -> None:
    """Fills in the table of the programme, from the last stage to the first.

    Args:
      t: the numbers.
      limit_s: no stage's computing nor transfers may take longer.
      by_sum: whether the sum over the stages is least, or else their maximum.
      best: [S + 1, D, P + 1] the least of what begins with each stretch in so many stages, the first of which is on
        the device; infinite before.
      end: alike, the stretch with which the second of them begins.
      then: alike, the device of the second.
    """
    devices, count = best.shape[1], best.shape[2] - 1
    for left in range(1, devices + 1):
        for d in range(devices - left, -1, -1):
            for at in range(count):
                low = count if left == 1 else at + 1
                for to in range(low, count + 1):
                    own = t.seconds[to, d] - t.seconds[at, d]
                    held = t.kept[to] - t.kept[at] + t.held[left] * (t.stashed[to] - t.stashed[at])
                    if own > limit_s or held > t.limit[d]:
                        break
                    if left == 1:
                        best[left, d, at], end[left, d, at] = own, to
                        break
                    for after in range(d + 1, devices):
                        rest = best[left - 1, after, to]
                        there, back = t.onward[to, d, after], t.back[to, d, after]
                        if there > limit_s or back > limit_s:
                            continue
                        if by_sum:
                            value = own + there + back + rest
                        else:
                            value = _larger(_larger(own, rest), _larger(there, back))
                        if value < best[left, d, at]:
                            best[left, d, at], end[left, d, at], then[left, d, at] = value, to, after
