"""PipeDream's programme: contiguous stages, each on several replicas, for the least bottleneck of a full pipeline."""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.kernels import kernel


class States(NamedTuple):
    """Where a stage may end: sets of ops that with an op have all that comes before it; [N], subsets first.

    Attributes:
      seconds: [N] of a set's ops on one device, forward and backward.
      parameter_bytes: [N] of a set's ops.
      output_bytes: [N] that what comes after a set is sent.
      within: [N, N] whether the row's set is a proper subset of the column's.
    """

    seconds: FloatArray
    parameter_bytes: FloatArray
    output_bytes: FloatArray
    within: BoolArray


class Stage(NamedTuple):
    """A part of a pipeline.

    Attributes:
      end: the state in which it ends; it begins where the one before ends.
      replicas: devices that share its work.
    """

    end: int
    replicas: int


class Plan(NamedTuple):
    """Stages, and the seconds of each mini-batch in a full pipeline."""

    bottleneck_s: float
    stages: tuple[Stage, ...]


def chain_states(seconds: FloatArray, parameter_bytes: FloatArray, output_bytes: FloatArray) -> States:
    """The states of ops that come one after the other; all three are [N] of a single op."""
    count = len(seconds)
    within: BoolArray = np.triu(np.ones((count, count), np.bool_), 1)
    return States(np.cumsum(seconds), np.cumsum(parameter_bytes), np.asarray(output_bytes, np.float64), within)


def replicated_stages(states: States, devices: int, bandwidth: float, most: int | None = None) -> list[Plan]:
    """The stages of the least bottleneck that use exactly so many devices, for each number of stages; the best first.

    With C seconds and W bytes of parameters a stage on m devices takes (C + 4 (m - 1) W / (m bandwidth)) / m seconds of
    each mini-batch. Sending a state's A bytes of output takes 2 A / (m bandwidth): of the m devices that receive it,
    and of the m that send it, but in the first stage. The bottleneck is the longest of all these.

    D. Narayanan, A. Harlap et al.: PipeDream: Generalized Pipeline Parallelism for DNN Training. SOSP 2019, section
    3.1, for one level of the topology and without its limit of memory; the first plan is the paper's. The costs are
    those of the authors' program (optimizer_graph_hierarchical.py of github.com/msr-fiddle/pipedream with
    --activation_compression_ratio=1), which differ from the paper's: it adds computing and the sum of gradients where
    the paper takes the longer, counts the bytes of both twice, and does not charge the first stage for what it sends.

    Args:
      states: where stages may end; the last one has all ops.
      devices: M, all alike.
      bandwidth: bytes per second between any two.
      most: replicas of one stage; by default any number.

    Returns:
      Nothing for numbers of stages that cannot use all devices.
    """
    count = len(states.seconds)
    best = np.full((devices + 1, count, devices + 1), np.inf)
    parent, replicas = (np.full(best.shape, -1, np.int32) for _ in range(2))
    _fill(states, bandwidth, devices if most is None else min(most, devices), best, parent, replicas)
    plans = []
    for number in np.flatnonzero(np.isfinite(best[:, -1, devices])).tolist():
        stages, at, left = [], count - 1, devices
        for n in range(number, 0, -1):
            stages.append(Stage(at, int(replicas[n, at, left])))
            at, left = int(parent[n, at, left]), left - stages[-1].replicas
        plans.append(Plan(float(best[number, -1, devices]), tuple(stages[::-1])))
    return sorted(plans, key=lambda plan: plan.bottleneck_s)


@kernel
def _fill(s: States, bandwidth: float, most: int, best: FloatArray, parent: IntArray, replicas: IntArray) -> None:
    """Fills in the programme's table.

    Args:
      s: where stages may end.
      bandwidth: bytes per second.
      most: replicas of one stage.
      best: [M + 1, N, M + 1] the least bottleneck in so many stages of what a state has, on so many devices; infinite
        before.
      parent: alike, the state before the last stage.
      replicas: alike, of the last stage.
    """
    count, devices = best.shape[1], best.shape[2] - 1
    for j in range(count):
        for r in range(1, most + 1):
            synchronized = 4.0 * (r - 1) * s.parameter_bytes[j] / (r * bandwidth)
            best[1, j, r], replicas[1, j, r] = (s.seconds[j] + synchronized) / r, r
        for i in range(j):
            if not s.within[i, j]:
                continue
            seconds = s.seconds[j] - s.seconds[i]
            parameters = s.parameter_bytes[j] - s.parameter_bytes[i]
            moved = s.output_bytes[i]
            if j < count - 1:
                moved = max(moved, s.output_bytes[j])
            for r in range(1, min(most, devices - 1) + 1):
                load = (seconds + 4.0 * (r - 1) * parameters / (r * bandwidth)) / r
                load = max(load, 2.0 * moved / (r * bandwidth))
                for n in range(2, devices - r + 2):
                    for m in range(n - 1, devices - r + 1):
                        value = max(best[n - 1, i, m], load)
                        if value < best[n, j, m + r]:
                            best[n, j, m + r], parent[n, j, m + r], replicas[n, j, m + r] = value, i, r
