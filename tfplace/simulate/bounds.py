"""Step times that no placement can beat, by the rules of docs/simulator.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.core.problem import Problem


@dataclass(frozen=True)
class Bound:
    """The best of several lower bounds on the step time.

    Attributes:
      seconds: no placement of the problem is simulated to be faster.
      kind: which bound that is.
      all: every bound by kind: "critical path", "work", "largest unit".
    """

    seconds: float
    kind: str
    all: Mapping[str, float]


def lower_bound(problem: Problem) -> Bound:
    """The largest of the bounds on the step time of any placement that keeps to the allowed devices."""
    unit_s = problem.unit_seconds
    bounds = {
        "critical path": critical_path_s(problem),
        "work": work_s(unit_s),
        "largest unit": float(unit_s.min(axis=1).max(initial=0.0)),
    }
    kind = max(bounds, key=bounds.__getitem__)
    # Sums of the same numbers in another order differ in the last digits; a bound must not pass the truth for that.
    return Bound(bounds[kind] * (1 - 1e-9), kind, bounds)


def critical_path_s(problem: Problem) -> float:
    """The longest path with every op at its fastest allowed device and transfers free, in seconds."""
    graph = problem.graph
    allowed = problem.allowed[problem.grouping.unit_of] if problem.num_units else np.zeros_like(problem.costs.compute_s)
    fastest = np.where(allowed, problem.costs.compute_s, np.inf).min(axis=1)
    fastest[graph.replicable] = 0.0
    ends = fastest.tolist()
    counted = ~graph.edge_back & ~graph.replicable[graph.edge_src] & ~graph.replicable[graph.edge_dst]
    order = np.flatnonzero(counted)[np.argsort(graph.edge_dst[counted], kind="stable")]
    for src, dst in zip(graph.edge_src[order].tolist(), graph.edge_dst[order].tolist(), strict=True):
        ends[dst] = max(ends[dst], ends[src] + float(fastest[dst]))
    return float(max(ends))


def work_s(unit_s: FloatArray, steps: int = 200) -> float:
    """The least seconds in which the devices can do all units' work, were units divisible, in seconds.

    For weights w of the devices that sum to 1, no division of the work has a largest load below
    `sum over units of min over devices of w * unit_s`: the dual of the linear relaxation of scheduling on unrelated
    machines (Lenstra, Shmoys and Tardos 1990, section 2). Multiplicative weights (Plotkin, Shmoys and Tardos 1995)
    come close to the best w; the value is valid at every step, so the largest is returned.

    Args:
      unit_s: [U, D] seconds of a unit on a device, infinite where it may not be.
      steps: how many weights are tried.
    """
    units, devices = unit_s.shape
    if units == 0:
        return 0.0
    weight = np.full(devices, 1.0 / devices)
    best = 0.0
    for step in range(steps):
        weighted = unit_s * weight
        chosen = weighted.argmin(axis=1)
        best = max(best, float(weighted[np.arange(units), chosen].sum()))
        load = np.bincount(chosen, weights=unit_s[np.arange(units), chosen], minlength=devices)
        weight = weight * np.exp(load / max(load.max(), 1e-300) / np.sqrt(1 + step))
        weight = np.maximum(weight / weight.sum(), 1e-12)
        weight /= weight.sum()
    return best
