"""Plans on the devices at hand: what runs as the plan says, and what its rows really take."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfplace.core.placement import Placement
from tfplace.core.plan import MULTI_WORKER, Plan, PlanRow
from tfplace.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from tfplace.execution.placed import Placed


def apply_plan(plan: Plan, *, devices: Mapping[str, str] | None = None) -> Placed:
    """See `Plan.apply`.

    Raises:
      ApplyError, InfeasibleError, InputError: see there.
    """
    from tfplace.execution.placed import apply_placement

    if plan.chosen is not None and plan.chosen.replicas > 1:
        raise InputError(
            f"a plan that takes {plan.chosen.name}",
            "a plan whose chosen row has one replica, on the devices of this process",
            f"For several replicas, use tf.distribute.{MULTI_WORKER}.",
        )
    if plan.placement is None:
        raise InfeasibleError(f"No row of the plan of {plan.model!r} may be taken.", [], ("See plan.summary().",))
    if plan.placement.problem is None:
        raise InputError(
            "a plan that was loaded from files",
            "a plan made in this process, which has the program",
            "tfplace.apply(model, plan.placement, batch) runs it.",
        )
    return apply_placement(plan.placement.problem.graph, plan.placement, devices=devices)


def measure_plan(
    plan: Plan, batch: Any, *, top: int = 3, steps: int = 10, devices: Mapping[str, str] | None = None
) -> Plan:
    """See `Plan.measure`.

    Raises:
      ApplyError, InputError: see there.
    """
    from tfplace.execution.step_times import median_step_s

    for name, number in (("top", top), ("steps", steps)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"{name}={number!r}", "a whole number of at least 1")
    runs = [number for number, row in enumerate(plan.rows) if _can_be_run(row, plan.exact)]
    if not runs:
        raise InputError("a plan in which no row can be run here", "a plan with a placement that fits")

    def measured(row: PlanRow) -> float:
        assert isinstance(row.placement, Placement)
        return median_step_s(row.placement, batch, steps, devices)

    took = _measured(plan.rows, runs, top, measured)
    rows = (replace(row, measured_s=took.get(number)) for number, row in enumerate(plan.rows))
    return replace(plan, rows=tuple(rows))


def _can_be_run(row: PlanRow, exact: bool) -> bool:
    runs = row.placement is not None and row.replicas == 1
    return runs and row.cost.feasible and not row.obstacle and (row.same_numbers or not exact)


def _measured(
    rows: tuple[PlanRow, ...], runs: list[int], top: int, measure: Callable[[PlanRow], float]
) -> dict[int, float]:
    """Seconds of the `top` fastest rows, and of those that they make look faster than what was measured."""
    took = {number: measure(rows[number]) for number in runs[:top]}
    while len(took) < 2 * top and len(took) < len(runs):
        expected = {number: rows[number].cost.step_s * _correction(rows, took, number) for number in runs}
        number = min((number for number in runs if number not in took), key=expected.__getitem__)
        if expected[number] >= min(took.values()):
            break
        took[number] = measure(rows[number])
    return took


def _correction(rows: tuple[PlanRow, ...], took: Mapping[int, float], number: int) -> float:
    """Measured over simulated seconds: the median of the rows that are run the same way, or of all."""
    alike = [other for other in took if rows[other].compile == rows[number].compile]
    return statistics.median(_ratios(rows, took, alike or took))


def _ratios(rows: tuple[PlanRow, ...], took: Mapping[int, float], of: Iterable[int]) -> list[float]:
    return [took[number] / rows[number].cost.step_s for number in of]
