"""What a row of a plan would take if devices, links or the batch were otherwise: the same devices, simulated again.

Ops stay where they are and phases as they are, so that a search for the changed box may find more.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tfplace.core.compilation import XLA
from tfplace.core.costs import CostTable
from tfplace.core.device import Device, Link
from tfplace.core.explanation import WhatIf
from tfplace.core.graph import OpGraph
from tfplace.core.plan import Plan, PlanRow
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.cost.compiled import FusedStep, compiled_costs
from tfplace.errors import InputError, SourceError
from tfplace.search.clustered import clustered_cost
from tfplace.search.mirrored import mirrored_cost
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import WITHOUT_PHASES

TIMES = 2
"""How much faster, larger or shorter everything gets."""

LINKS, LATENCIES, DEVICES = "links twice as fast", "latencies and overheads halved", "devices twice as fast"
MEMORY, BATCH = "twice the memory on every device", "a batch twice as large"


def what_ifs(plan: Plan, row: PlanRow | None) -> tuple[list[WhatIf], list[str]]:
    """Changes that were simulated, what helps most first, and what could not be, with the reason.

    Args:
      plan: with the problems of its placements.
      row: one that fits, whose step is changed; None for a plan of which nothing may be taken.

    Raises:
      InputError: the plan was loaded from files.
    """
    found, left_out = [_with_memory(plan, row)], []
    if row is not None:
        problem = problem_of(plan, row)
        found += [_what_if(row, change, simulated(row, changed)) for change, changed in _changed(problem)]
        larger = _with_batch(plan, row)
        if isinstance(larger, WhatIf):
            found.append(larger)
        else:
            left_out.append(f"{BATCH}: {larger}")
    return sorted(found, key=lambda one: -one.gain), left_out


def problem_of(plan: Plan, row: PlanRow) -> Problem:
    """What a row's placement answers; for one without a placement, what others with its slices do.

    Raises:
      InputError: the plan was loaded from files, or the row has several replicas.
    """
    if row.replicas > 1:
        raise InputError(
            f"row {row.name!r}, which has several replicas",
            "a row with one replica",
            "See docs/concepts/large_boxes.md.",
        )
    for one in (row, *plan.rows):
        found = None if one.placement is None else one.placement.problem
        if found is not None and (one.slices, one.compile, one.recomputes) == (row.slices, row.compile, row.recomputes):
            return found
    raise InputError(
        f"row {row.name!r} of a plan that was loaded from files",
        "a plan made in this process",
        "Make the plan again with tfplace.plan().",
    )


def simulated(row: PlanRow, problem: Problem) -> StepCost:
    """What a row's step costs in a problem with the same ops."""
    placement = row.placement
    if placement is None:
        return mirrored_cost(problem)
    if problem.compile == XLA:
        return clustered_cost(problem, placement.op_device, placement.phases, WITHOUT_PHASES)
    return Simulator(problem, WITHOUT_PHASES, phases=placement.phases, threads=1).devices(placement.op_device)


def _what_if(row: PlanRow, change: str, cost: StepCost) -> WhatIf:
    return WhatIf(change, row.name, cost.step_s, _gain(row, cost.step_s))


def _gain(row: PlanRow, step_s: float) -> float:
    return 1 - step_s / row.cost.step_s if row.cost.step_s > 0 else 0.0


def _with_memory(plan: Plan, row: PlanRow | None) -> WhatIf:
    """The row that would be taken: a step takes the same seconds and bytes whatever the limits are."""
    more = tuple(replace(one, cost=replace(one.cost, limit_bytes=TIMES * one.cost.limit_bytes)) for one in plan.rows)
    taken = replace(plan, rows=more).chosen
    if taken is None:
        return WhatIf(MEMORY, "", math.inf, 0.0)
    if row is None:
        return WhatIf(MEMORY, taken.name, taken.cost.step_s, 1.0)
    return WhatIf(MEMORY, taken.name, taken.cost.step_s, _gain(row, taken.cost.step_s))


def _changed(problem: Problem) -> list[tuple[str, Problem]]:
    """The problem with other links and devices."""
    topology, costs = problem.topology, _Costs(problem)
    links = replace(topology, links=tuple(map(_faster, topology.links)))
    quick = replace(topology, links=tuple(map(_sooner, topology.links)), devices=tuple(map(_lighter, topology.devices)))
    fast = replace(topology, devices=tuple(map(_stronger, topology.devices)))
    return [
        (LINKS, replace(problem, topology=links, other_costs=None)),
        (LATENCIES, costs.on(quick, 1.0)),
        (DEVICES, costs.on(fast, 1 / TIMES)),
    ]


class _Costs:
    """A problem's costs on other devices.

    Args:
      problem: whose costs are analytic, or any others. Analytic ones are worked out again; of others, of which nobody
        knows which part is overhead, all are multiplied.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._fused = FusedStep(problem.graph) if problem.compile == XLA else None
        again = self._analytic(problem.topology)
        self._is_analytic = np.allclose(again.compute_s, problem.costs.compute_s, rtol=1e-6, atol=0)

    def on(self, topology: Topology, otherwise: float) -> Problem:
        """The problem on a topology; other costs are multiplied by `otherwise`."""
        costs = self._problem.costs
        costs = self._analytic(topology) if self._is_analytic else replace(costs, compute_s=otherwise * costs.compute_s)
        return replace(self._problem, topology=topology, costs=costs, other_costs=None)

    def _analytic(self, topology: Topology) -> CostTable:
        if self._fused is None:
            return analytic_costs(self._problem.graph, topology)
        return compiled_costs(self._fused, topology)


def _faster(link: Link) -> Link:
    """Bytes take half the seconds, on the wire and of the devices."""
    return replace(
        link,
        bandwidth=TIMES * link.bandwidth,
        send_overhead_s_per_byte=link.send_overhead_s_per_byte / TIMES,
        receive_overhead_s_per_byte=link.receive_overhead_s_per_byte / TIMES,
    )


def _sooner(link: Link) -> Link:
    """A message takes half the seconds that it takes besides its bytes."""
    return replace(
        link,
        latency_s=link.latency_s / TIMES,
        send_overhead_s=link.send_overhead_s / TIMES,
        receive_overhead_s=link.receive_overhead_s / TIMES,
    )


def _lighter(device: Device) -> Device:
    return replace(device, op_overhead_s=device.op_overhead_s / TIMES)


def _stronger(device: Device) -> Device:
    """Twice the rates; an op's overhead stays."""
    flops = {dtype: TIMES * rate for dtype, rate in device.flops.items()}
    return replace(device, flops=flops, memory_bandwidth=TIMES * device.memory_bandwidth)


def _with_batch(plan: Plan, row: PlanRow) -> WhatIf | str:
    """The row with twice the examples in each slice; or why that was not simulated."""
    if plan.larger is None:
        return "this source has one batch size"
    if row.recomputes:
        return "recomputation was chosen for this batch"
    try:
        problem = plan.larger(tuple(TIMES * size for size in row.slices) or None)
    except SourceError as error:
        return str(error)
    if problem.compile != row.compile:
        problem = problem.otherwise or problem
    if not _are_alike(problem_of(plan, row).graph, problem.graph) or problem.compile != row.compile:
        return "its step has other ops"
    cost = simulated(row, problem)
    if not cost.feasible:
        return "it does not fit where the ops are"
    return WhatIf(BATCH, row.name, cost.step_s, _gain(row, cost.step_s / TIMES))


def _are_alike(one: OpGraph, other: OpGraph) -> bool:
    """Whether two steps have the same ops in the same order, whatever these are called and however much they do."""
    return (
        one.op_types == other.op_types
        and np.array_equal(one.edge_src, other.edge_src)
        and np.array_equal(one.edge_dst, other.edge_dst)
    )
