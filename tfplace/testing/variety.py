"""Placements of many kinds for one problem, on which evaluators are compared."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.group.coarsen import hierarchy
from tfplace.local_search.devices import compute_devices, settle, single_device
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search

CUTS = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Where contiguous placements are cut, as a fraction of all seconds in op order."""


def variety(
    problem: Problem, *, randoms: int = 8, searches: tuple[int, ...] = (50, 500, 5000), seed: int = 0
) -> dict[str, IntArray]:
    """Placements from the plain to the optimized, duplicates left out.

    - "single D": everything on one device.
    - "cut 0.3": the ops in topological order cut in two after that fraction of all seconds (one cut, two devices).
    - "thirds A B A": cut in three, the first and last part on one device.
    - "random L": clusters of one level of the hierarchy on random devices; L clusters, from few to single units.
    - "heft", "expert", "round_robin": what these placers say.
    - "search N": what annealing finds in N evaluations.

    Args:
      problem: what is placed.
      randoms: how many random placements.
      searches: evaluations of each search.
      seed: of everything random.

    Returns:
      Name -> [U] devices.
    """
    rng = np.random.default_rng(seed)
    named: dict[str, IntArray] = {}
    devices = compute_devices(problem)
    for d in devices.tolist():
        named[f"single {problem.topology.device_names[d]}"] = single_device(problem, d)
    named |= _contiguous(problem, devices)
    named |= _random(problem, devices, randoms, rng)
    for name in ("heft", "expert", "round_robin"):
        named[name] = _placed(problem, PLACERS[name](), len(problem.topology.devices), seed)
    for budget in searches:
        named[f"search {budget}"] = _placed(problem, PLACERS["local_search"](), budget, seed + budget)
    return _distinct(named)


def _contiguous(problem: Problem, devices: IntArray) -> dict[str, IntArray]:
    """Cuts of the units in the order of their first op."""
    first = np.array([members[0] for members in problem.grouping.members])
    order = np.argsort(first, kind="stable")
    seconds = problem.unit_seconds.min(axis=1)[order].cumsum()
    turn = np.empty(len(order))
    turn[order] = seconds / seconds[-1]
    out = {}
    for i, cut in enumerate(CUTS):
        ends = np.roll(devices, i)[:2]
        out[f"cut {cut}"] = settle(problem, ends[(turn > cut).astype(int) % len(ends)])
    a, b = devices[0], devices[-1]
    out["thirds A B A"] = settle(problem, np.where((turn > 1 / 3) & (turn <= 2 / 3), b, a))
    return out


def _random(problem: Problem, devices: IntArray, count: int, rng: np.random.Generator) -> dict[str, IntArray]:
    levels = [*reversed(hierarchy(problem)), np.arange(problem.num_units, dtype=np.int32)]
    out = {}
    for i in range(count):
        level = levels[round(i * (len(levels) - 1) / max(count - 1, 1))]
        clusters = int(level.max()) + 1
        out[f"random {clusters} ({i})"] = settle(problem, rng.choice(devices, clusters)[level])
    return out


def _placed(problem: Problem, placer: Placer, evaluations: int, seed: int) -> IntArray:
    """What a placer finds within some simulated evaluations."""
    search = Search(problem, Budget(evaluations=evaluations), seed)
    return search.run(placer, "variety")


def _distinct(named: dict[str, IntArray]) -> dict[str, IntArray]:
    seen: set[bytes] = set()
    out = {}
    for name, devices in named.items():
        if devices.tobytes() not in seen:
            seen.add(devices.tobytes())
            out[name] = devices
    return out
