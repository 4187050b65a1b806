"""What it took to make a step fit, and what that costs, in one line."""

from __future__ import annotations

import numpy as np

from tfplace.core.plan import ALONE, STRATEGY, Plan, PlanRow
from tfplace.formatting import format_bytes

_ALIKE = 1.01
"""Times the chosen step that is said to cost nothing."""


def remedy_line(plan: Plan) -> str:
    """How the chosen way fits, beside the one that would be fastest with enough memory; empty if that fits.

    Slices count as a remedy if there are more of them than in that way, and so do devices that share what one has.
    """
    row = plan.chosen
    others = [one for one in plan.rows if not one.obstacle and (one.same_numbers or not plan.exact)]
    ample = min(others, key=lambda one: one.cost.step_s, default=None)
    if row is None or ample is None or ample.cost.feasible or not row.cost.feasible:
        return ""
    needed = _needed(row, ample) or ["another way"]
    times = row.cost.step_s / ample.cost.step_s
    price = f"takes {times:.2f} times as long as" if times > _ALIKE else "is as fast as"
    over = ", ".join(f"{format_bytes(one.need_bytes)} on {one.device}" for one in ample.shortages[:1])
    return f"fits with {' and '.join(needed)}; {price} {ample.name}, which needs {over or _most(ample)}"


def _most(row: PlanRow) -> str:
    """What a way needs of each device that it is not known to have a name for."""
    return f"{format_bytes(int(np.max(row.cost.peak_bytes)))} on a device"


def _needed(row: PlanRow, ample: PlanRow) -> list[str]:
    needed = [one for one in row.remedies if one not in ample.remedies]
    if row.way != ALONE and len(row.slices) > max(len(ample.slices), 1):
        needed.insert(0, f"{len(row.slices)} slices")
    if row.way not in (ALONE, STRATEGY) and ample.way in (ALONE, STRATEGY):
        needed.insert(0, "variables spread over devices")
    return needed
