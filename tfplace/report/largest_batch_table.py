"""The largest batch as a table for a terminal, and as plain data."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfplace.core.largest_batch import LargestBatch
from tfplace.formatting import format_seconds
from tfplace.report.plan_table import plan_facts
from tfplace.report.summary import plain_text

_HEAD = ("batch", "step", "examples/s", "way")


def largest_batch_summary(found: LargestBatch) -> str:
    """The table as plain text."""
    return plain_text(largest_batch_tables(found))


def largest_batch_tables(found: LargestBatch) -> RenderableType:
    """The answer, and all sizes, as `rich` draws them."""
    shown = Table(title="Simulated steps", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in _HEAD:
        shown.add_column(heading, justify="left" if heading == "way" else "right")
    for one in found.tried:
        took = (format_seconds(one.step_s), f"{one.rate:,.0f}") if one.fits else ("-", "-")
        cells = map(Text, (f"{one.examples:,}", *took, one.way))
        shown.add_row(*cells, style="bold" if one.examples == found.examples else "")
    title = f"{found.plan.model} on {found.plan.topology_name}"
    notes = [Text(note, style="dim") for note in found.notes]
    return Group(Text(title, style="bold"), Text(largest_verdict(found), style="bold"), shown, *notes)


def largest_verdict(found: LargestBatch) -> str:
    """The answer in one line."""
    own = next(one for one in found.tried if one.examples == found.examples)
    text = f"the largest batch is {own.examples:,}: {own.way}, {format_seconds(own.step_s)} a step"
    if found.fastest is own:
        return f"{text}, {own.rate:,.0f} examples/s, the most of all sizes"
    best = found.fastest
    return f"{text}, {own.rate:,.0f} examples/s; a batch of {best.examples:,} makes most, {best.rate:,.0f} examples/s"


def largest_batch_facts(found: LargestBatch) -> dict[str, Any]:
    """The same as plain data: seconds and bytes."""
    return {
        "largest_batch": found.examples,
        "verdict": largest_verdict(found),
        "tried": [
            {
                "examples": one.examples,
                "fits": one.fits,
                "step_s": one.step_s if math.isfinite(one.step_s) else None,
                "way": one.way,
            }
            for one in found.tried
        ],
        "plan": plan_facts(found.plan),
        "notes": list(found.notes),
    }
