"""A plan as a table for a terminal, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfplace.core.fidelity import UNKNOWN
from tfplace.core.plan import ALONE, STRATEGIES, Plan, PlanRow
from tfplace.core.stepcost import StepCost
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.plan_remedies import remedy_line
from tfplace.report.summary import plain_text

_HEAD = ("way", "step", "examples/s", "most memory", "of", "numbers")


def plan_summary(plan: Plan) -> str:
    """The tables as plain text."""
    return plain_text(plan_tables(plan))


def plan_tables(plan: Plan) -> RenderableType:
    """Which row to take, and all rows, as `rich` draws them."""
    shown = Table(title="Simulated steps", title_justify="left", box=box.SIMPLE_HEAD)
    measured = any(row.measured_s is not None for row in plan.rows)
    for heading in (*_HEAD, "measured") if measured else _HEAD:
        shown.add_column(heading, justify="left" if heading in ("way", "numbers") else "right")
    for row in plan.rows:
        shown.add_row(*map(Text, _cells(plan, row)), style="bold" if row is plan.chosen else "")
    untaken = "; not taken, as exact=True forbids it" if plan.exact else ""
    said = [Text(line) for line in said_of_chosen(plan)]
    said += [Text(f"* {text}{untaken}") for text in differing(plan.rows)]
    said += [Text(f"** {text}") for text in obstacles(plan.rows)]
    said += [Text(note, style="dim") for note in plan.notes]
    return Group(Text(plan_title(plan), style="bold"), Text(verdict(plan), style="bold"), shown, *said)


def plan_title(plan: Plan) -> str:
    """What was planned, and where."""
    return f"{plan.model} on {plan.topology_name}" + (f", {plan.examples} examples a step" if plan.examples else "")


def differing(rows: Sequence[PlanRow]) -> list[str]:
    """What rows do not have the same numbers for; the same layers have other names in each reading of a model."""
    return list({row.differs.partition(" (")[0]: row.differs for row in reversed(rows) if row.differs}.values())


def obstacles(rows: Sequence[PlanRow]) -> list[str]:
    """Why rows cannot be taken."""
    return list(dict.fromkeys(row.obstacle for row in rows if row.obstacle))


def said_of_chosen(plan: Plan) -> list[str]:
    """What is to be said of the row to take: why it takes as long, how sure that is, and how long it took to find."""
    row = plan.chosen
    if row is None:
        return []
    lines = [line] if (line := remedy_line(plan)) else []
    lines += [f"critical path: {row.bottleneck}"] if row.bottleneck else []
    lines.append(f"error: {UNKNOWN if row.error is None else row.error}")
    return lines + ([f"found in {format_seconds(row.found_s)}"] if row.found_s is not None else [])


def verdict(plan: Plan) -> str:
    """What to do, in one line."""
    row = plan.chosen
    if row is None:
        return _misfit(plan)
    singles = [one for one in plan.rows if one.way == ALONE and len(one.slices) < 2 and not one.obstacle]
    singles = [one for one in singles if one.cost.feasible]
    best = min(singles, key=lambda one: one.cost.step_s, default=None)
    step = format_seconds(row.cost.step_s)
    if row.measured_s is not None:
        count = sum(one.measured_s is not None for one in plan.rows)
        return f"take {row.name}: {format_seconds(row.measured_s)} a step, the fastest of {count} that were measured"
    if row is best:
        where = row.name.removeprefix(f"{ALONE} (").replace(")", "", 1)
        return f"stay on {where}: {step} a step, and no way is over 1 % faster"
    faster = (
        "no single device fits it"
        if best is None
        else f"{best.cost.step_s / row.cost.step_s:.2f} times faster than {best.name}"
    )
    if row.way in STRATEGIES:
        return f"take tf.distribute.{row.name}: {step} a step, {faster}, and no placement is over 1 % faster"
    return f"take {row.name}: {step} a step, {faster}"


def _misfit(plan: Plan) -> str:
    """What is missing where nothing may be taken."""
    fitting = [row for row in plan.rows if row.cost.feasible and not row.obstacle]
    if fitting:
        return f"nothing that fits has the same numbers; {fitting[0].name} fits, but {fitting[0].differs}"
    barred = min((row for row in plan.rows if row.cost.feasible), key=lambda row: row.cost.step_s, default=None)
    if barred is not None:
        return f"nothing that fits may be taken; {barred.name} fits, but {barred.obstacle}"
    nearest = min(plan.rows, key=lambda row: row.cost.key, default=None)
    if nearest is None:
        return "nothing could be tried"
    needs = [
        f"{format_bytes(s.need_bytes)} on {s.device}, {format_bytes(s.over_bytes)} more than it may use"
        for s in nearest.shortages
    ]
    return f"nothing fits: the nearest, {nearest.name}, needs {'; '.join(needs) or 'more memory'}"


def _cells(plan: Plan, row: PlanRow) -> tuple[str, ...]:
    cost = row.cost
    tightest = fullest(cost)
    per_s = rate(plan.examples / cost.step_s) if plan.examples and cost.step_s > 0 else ""
    return (
        row.name + ("**" if row.obstacle else ""),
        format_seconds(cost.step_s) if cost.feasible else "does not fit",
        per_s if cost.feasible else "",
        format_bytes(cost.peak_bytes[tightest]),
        format_bytes(cost.limit_bytes[tightest]),
        "the same" if row.same_numbers else "differ*",
        *([] if row.measured_s is None else [format_seconds(row.measured_s)]),
    )


def fullest(cost: StepCost) -> int:
    """The device whose memory is used most, as a part of its limit."""
    return int(np.argmax(cost.peak_bytes / np.maximum(cost.limit_bytes, 1)))


def rate(per_s: float) -> str:
    """Examples a second as text."""
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def plan_facts(plan: Plan) -> dict[str, Any]:
    """The same as plain data: seconds and bytes."""
    return {
        "model": plan.model,
        "topology": plan.topology_name,
        "examples": plan.examples,
        "verdict": verdict(plan),
        "remedy": remedy_line(plan),
        "chosen": None if plan.chosen is None else plan.rows.index(plan.chosen),
        "rows": [
            {
                "name": row.name,
                "way": row.way,
                "slices": list(row.slices),
                "compile": row.compile,
                "step_s": row.cost.step_s,
                "fits": row.cost.feasible,
                "peak_bytes": row.cost.peak_bytes.tolist(),
                "limit_bytes": row.cost.limit_bytes.tolist(),
                "same_numbers": row.same_numbers,
                "differs": row.differs,
                "obstacle": row.obstacle,
                "measured_s": row.measured_s,
                "recomputes": row.recomputes,
                "error": None if row.error is None else asdict(row.error),
                "bottleneck": row.bottleneck if row is plan.chosen else None,
                "found_s": row.found_s,
                "replicas": row.replicas,
                "on_part": row.on_part,
                "host": row.host,
                "remedies": list(row.remedies),
            }
            for row in plan.rows
        ],
        "notes": list(plan.notes),
    }
