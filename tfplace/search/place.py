"""One search from problem to placement: run a placer, check what it says, and report it beside the baselines."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.placers.base import BudgetSpentError, Placer, single_device
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.shortage import infeasible
from tfplace.search.study import Progress, Search
from tfplace.simulate.bounds import lower_bound
from tfplace.simulate.evaluate import Simulator
from tfplace.version import VERSION

BASELINES = ("round_robin", "expert", "heft")
"""Placers reported beside every placement, after each single device."""


def search_placement(
    problem: Problem,
    *,
    placer: str,
    budget: str | float | int | Budget,
    seed: int = 0,
    baselines: tuple[str, ...] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Placement:
    """Places `problem`; see `tfplace.place`, which this implements.

    Raises:
      InfeasibleError: the best placement found exceeds a device's memory.
      UnknownNameError: no such placer.
    """
    method: Placer = PLACERS[placer]()
    limit = Budget.parse(budget)
    # Before the search: an interruption during what comes after it would lose the placement found.
    compared = _baselines(problem, BASELINES if baselines is None else baselines, seed)
    search = Search(problem, limit, seed, progress)
    chosen = _run(method, search, placer)
    cost = search.simulator(chosen)
    op_device = problem.expand(chosen)
    if not cost.feasible:
        raise infeasible(problem, op_device, cost, search.evaluations)
    return Placement(
        op_names=problem.graph.op_names,
        device_names=problem.topology.device_names,
        op_device=op_device,
        cost=cost,
        bound_s=lower_bound(problem).seconds,
        placer=f"{placer} ({search.budget})",
        seed=seed,
        graph_fingerprint=problem.graph.fingerprint,
        topology_fingerprint=problem.topology.fingerprint,
        topology_name=problem.topology.name,
        baselines=compared,
        versions=_versions(),
        problem=problem,
    )


def _run(method: Placer, search: Search, placer: str) -> IntArray:
    """The placer's answer; the best it evaluated if its budget ran out or the user stopped it.

    Raises:
      KeyboardInterrupt: stopped before any placement was found.
    """
    if not search.problem.num_units:  # constants only, which follow one another
        return np.zeros(0, np.int32)
    study = search.study(placer)
    try:
        chosen = method.place(study)
    except (BudgetSpentError, KeyboardInterrupt):
        if study.best is None:
            raise
        return study.best
    return np.asarray(chosen, np.int32)


def _baselines(problem: Problem, names: Sequence[str], seed: int) -> Mapping[str, StepCost]:
    """Costs of every single device and of the named placers, each with one pass of its own.

    Raises:
      UnknownNameError: no such placer.
    """
    methods: dict[str, Placer] = {name: PLACERS[name]() for name in names}
    simulator = Simulator(problem)
    costs = {}
    for d, device in enumerate(problem.topology.device_names):
        alone = single_device(problem, d)
        if np.any(alone == d):
            costs[f"single {device}"] = simulator(alone)
    for name, method in methods.items():
        search = Search(problem, Budget(evaluations=len(problem.topology.devices)), seed)
        costs[name] = simulator(_run(method, search, name))
    return costs


def _versions() -> dict[str, str]:
    return {"tfplace": VERSION} | {package: importlib.metadata.version(package) for package in ("numpy", "numba")}
