"""Plans side by side: step times and memory as bars, with the limit that each has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tfplace.core.placement import Placement
from tfplace.core.plan import Plan, PlanRow
from tfplace.core.stepcost import StepCost
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.facts import baseline_order, misfit, versus, wording
from tfplace.report.plan_table import fullest, rate

_TIMES = 6.0
"""Bars end at so many times the fastest step: one slow way is not to hide how the others differ."""


class Way(NamedTuple):
    """A way to run the step.

    Attributes:
      name: of the plan's row, or of the baseline.
      cost: of a step.
      devices: [D] names; empty where the cost's devices have none.
      tag: what marks the way that the report is about; empty for others.
      remarks: texts.
    """

    name: str
    cost: StepCost
    devices: Sequence[str]
    tag: str = ""
    remarks: Sequence[str] = ()


def ways_of_plan(plan: Plan) -> list[Way]:
    """The rows of a plan."""
    return [
        Way(row.name, row.cost, _devices(row), "chosen" if row is plan.chosen else "", _remarks(plan, row))
        for row in plan.rows
    ]


def ways_of_placement(placement: Placement) -> list[Way]:
    """A placement and its baselines, the fastest first."""
    names = placement.device_names
    ways = [Way(placement.placer, placement.cost, names, "this placement")]
    for name, cost in baseline_order(placement):
        against = misfit(cost, names) if cost.failure is not None else versus(placement, cost)
        ways.append(Way(name, cost, names, remarks=(against,) if cost.feasible or cost.failure is not None else ()))
    return sorted(ways, key=lambda way: way.cost.key)


def ways_table(ways: Sequence[Way], objective: str, source: str) -> str:
    """The bars, as a table, since that is what those hear who do not see bars."""
    shown = [way.cost.step_s for way in ways if way.cost.feasible and math.isfinite(way.cost.step_s)]
    end = min(max(shown, default=1.0), _TIMES * min(shown, default=1.0)) or 1.0
    most = max((_fullest(way.cost)[1] for way in ways), default=1.0)
    words = wording(objective, source)
    headings = ("plan", words.number, "memory of the fullest device", "remarks")
    top = "".join(f'<th scope="col" role="columnheader" class="text">{text}</th>' for text in headings)
    rows = "".join(_row(way, end, max(most, 1.0)) for way in ways)
    return (
        f'<table class="plans" role="table"><caption>{escape(words.others)}; the mark on a memory bar is the limit'
        f'</caption><thead role="rowgroup"><tr role="row">{top}</tr></thead>'
        f'<tbody role="rowgroup">{rows}</tbody></table>'
    )


def _row(way: Way, end_s: float, most: float) -> str:
    tag = f'<span class="tag">{way.tag}</span>' if way.tag else ""
    remarks = "; ".join(map(escape, way.remarks))
    return (
        f'<tr role="row"{" class=told" if way.tag else ""}>'
        f'<th scope="row" role="rowheader">{escape(way.name)}{tag}</th>'
        f'<td role="cell" class="bar">{_step(way.cost, end_s)}</td>'
        f'<td role="cell" class="bar">{_memory(way, most)}</td>'
        f'<td role="cell" class="text">{remarks}</td></tr>'
    )


def _step(cost: StepCost, end_s: float) -> str:
    if not cost.feasible:
        return '<span class="over">failed</span>' if cost.failure is not None else '<span class="over">too large</span>'
    share, cut = min(cost.step_s / end_s, 1.0), cost.step_s > end_s
    inner = f'<i{" class=cut" if cut else ""} style="width:{100 * share:.1f}%"></i>'
    return f'{format_seconds(cost.step_s)}<span class="track" aria-hidden="true">{inner}</span>'


def _memory(way: Way, most: float) -> str:
    """The bar ends at the limit times `most`."""
    d, part = _fullest(way.cost)
    if way.cost.peak_bytes[d] < 0:
        return "not known"
    where = f" on {escape(way.devices[d])}" if d < len(way.devices) else ""
    text = f"{format_bytes(way.cost.peak_bytes[d])} of {format_bytes(way.cost.limit_bytes[d])}{where}"
    much = " class=much" if part > 1 else ""
    bar = f'<i{much} style="width:{100 * part / most:.1f}%"></i><b style="left:calc({100 / most:.1f}% - 2px)"></b>'
    return f'{text}<span class="track" aria-hidden="true">{bar}</span>'


def _fullest(cost: StepCost) -> tuple[int, float]:
    """The device whose memory is used most, and which part of its limit that is."""
    worst = fullest(cost)
    return worst, max(float(cost.peak_bytes[worst] / max(int(cost.limit_bytes[worst]), 1)), 0.0)


def _devices(row: PlanRow) -> Sequence[str]:
    return () if row.placement is None or row.replicas > 1 else row.placement.device_names


def _remarks(plan: Plan, row: PlanRow) -> list[str]:
    remarks = [] if row.measured_s is None else [f"measured {format_seconds(row.measured_s)}"]
    if plan.examples and row.cost.feasible and row.cost.step_s > 0:
        remarks.append(f"{rate(plan.examples / row.cost.step_s)} examples/s")
    remarks += [] if row.same_numbers else ["other numbers than the plain step"]
    return remarks + ([f"cannot be taken: {row.obstacle}"] if row.obstacle else [])
