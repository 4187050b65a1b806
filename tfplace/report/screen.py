"""The first screen of `tfplace place` and `tfplace plan`: at most 80 columns and 40 lines.

The answer first, then the ways side by side, where the memory goes, and what to do next. `--verbose` prints everything.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from tfplace.core.compilation import XLA
from tfplace.core.placement import Placement
from tfplace.core.plan import ALONE, STRATEGIES, Plan, PlanRow
from tfplace.core.stepcost import StepCost
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.facts import (
    DEVICE_HEADINGS,
    baseline_order,
    device_facts,
    notes_by_subject,
    said_of_step,
    step_line,
    title,
    verdict,
    versus,
    wording,
)
from tfplace.report.plan_table import (
    differing,
    fullest,
    obstacles,
    plan_title,
    rate,
    said_of_chosen,
)
from tfplace.report.plan_table import (
    verdict as plan_verdict,
)

WIDTH, HEIGHT = 80, 40
_PLANS, _BASELINES, _DEVICES, _HOLDERS, _KINDS = 8, 6, 6, 3, 2
_LINES, _WHOLE = 2, 9
"""The most lines that a text may take on the screen, and one that is not to be cut."""

_EMPTY = Text("")


def placement_screen(placement: Placement, files: Mapping[str, str]) -> RenderableType:
    """What to know of a placement first.

    Args:
      placement: the answer.
      files: what was written of it -> where.
    """
    first: list[RenderableType] = [_text(title(placement)), _text(verdict(placement), style="bold", most=_WHOLE)]
    first += [_text(step_line(placement), most=_WHOLE), _EMPTY]
    first += [_baselines(placement), _EMPTY] if placement.baselines else []
    first += [_devices(placement), _EMPTY, *_held(placement)]
    lines = [*said_of_step(placement)[1:], *notes_by_subject(placement)[0]]
    return _screen(first, lines, _next(_steps_of_placement(placement, files), files))


def plan_screen(plan: Plan, files: Mapping[str, str]) -> RenderableType:
    """What to know of a plan first; see `placement_screen`."""
    first: list[RenderableType] = [
        _text(plan_title(plan)),
        _text(plan_verdict(plan), style="bold", most=_WHOLE),
        _EMPTY,
        _rows(plan),
    ]
    left = len(plan.rows) - len(_shown_rows(plan))
    first += [_text(f"{left} more with --verbose", style="dim")] if left else []
    first.append(_EMPTY)
    row = plan.shown
    first += _held(row.placement) if row is not None and row.placement is not None else []
    lines = [f"* {text.partition(' (')[0]}" for text in differing(_shown_rows(plan))]
    lines += [f"! cannot be taken: {text}" for text in obstacles(_shown_rows(plan))]
    return _screen(first, [*lines, *said_of_chosen(plan)], _next(_steps_of_plan(plan, files), files))


def _screen(first: Sequence[RenderableType], lines: Sequence[str], last: Sequence[RenderableType]) -> RenderableType:
    """As many of the lines as there is room for between what is first and what is last."""
    room = HEIGHT - _height([*first, *last])
    texts = [_text(line) for line in lines]
    while texts and _height(texts) > room:
        texts.pop()
    return Constrain(Group(*first, *texts, *last), WIDTH)


def _height(parts: Sequence[RenderableType]) -> int:
    console = Console(width=WIDTH, file=io.StringIO(), force_terminal=False, force_jupyter=False)
    return sum(len(console.render_lines(part)) for part in parts)


def _text(line: str, *, style: str = "", most: int = _LINES) -> Text:
    """Wrapped with a hanging indent, and cut where it would fill the screen."""
    lines = textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
        max_lines=most,
        placeholder=" ...",
    )
    return Text("\n".join(lines), style=style, no_wrap=True, overflow="ignore")  # paths stay whole


def _table(heading: str, columns: Sequence[str], left: Sequence[int] = (0,)) -> Table:
    table = Table(title=heading, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i in left else "right", overflow="fold")
    return table


def _baselines(placement: Placement) -> Table:
    words = wording(placement.cost.objective, placement.cost.source)
    table = _table(words.others, ("placement", words.column, "memory", "against this one"), (0, 3))
    own = (f"this one, by {placement.placer}", format_seconds(placement.cost.step_s), _memory(placement.cost), "")
    table.add_row(*map(Text, own), style="bold")
    order = baseline_order(placement)
    shown = order[:_BASELINES]
    shown += [one for one in order[_BASELINES:] if placement.best_single and one[0] == placement.best_single[0]]
    for name, cost in shown:
        against = versus(placement, cost) if cost.feasible else ""
        table.add_row(Text(name), _seconds(cost), _memory(cost), Text(against))
    return table


def _seconds(cost: StepCost) -> str:
    return format_seconds(cost.step_s) if cost.feasible else "failed" if cost.failure is not None else "too large"


def _memory(cost: StepCost) -> str:
    d = fullest(cost)
    return format_bytes(cost.peak_bytes[d]) if cost.peak_bytes[d] >= 0 else ""


def _devices(placement: Placement) -> Table:
    table = _table(wording(placement.cost.objective).devices, DEVICE_HEADINGS)
    rows = sorted(device_facts(placement), key=lambda row: -row.compute_s)[:_DEVICES]
    for row in (one for one in device_facts(placement) if one in rows):
        table.add_row(*map(Text, row.cells()))
    if len(placement.device_names) > len(rows):
        table.caption = f"the {len(rows)} busiest of {len(placement.device_names)} devices"
        table.caption_justify = "left"
    return table


def _held(placement: Placement) -> list[RenderableType]:
    """What the devices hold at their peaks that are nearest their limits."""
    from tfplace.report.peak_memory import peak_memory  # with numba, which a table by itself can do without

    ranked = sorted((one for one in peak_memory(placement) if one.peak_bytes), key=lambda one: -one.part)
    lines = [
        f"{one.device}  {format_bytes(one.peak_bytes)} of {format_bytes(one.limit_bytes)}:  {one.kinds(_KINDS)}"
        for one in ranked[:_HOLDERS]
    ]
    more = ranked[_HOLDERS:]
    lines += [f"{len(more)} more: at most {format_bytes(max(m.peak_bytes for m in more))} each"] if more else []
    heading = [Text("Memory of the fullest devices at their peaks", style="italic")]
    return [*heading, *map(_text, lines)] if lines else []


def _shown_rows(plan: Plan) -> list[PlanRow]:
    """The fastest, and in any case the chosen one and the fastest on one device."""
    alone = [row for row in plan.rows if row.way == ALONE and row.cost.feasible]
    wanted = [row for row in (plan.chosen, *alone[:1]) if row is not None]
    fastest = [row for row in plan.rows if row not in wanted][: max(_PLANS - len(wanted), 0)]
    return [row for row in plan.rows if row in (*wanted, *fastest)]


def _rows(plan: Plan) -> Table:
    measured = any(row.measured_s is not None for row in plan.rows)
    columns = ("plan", "step", "examples/s", "memory", *(("measured",) if measured else ()))
    table = _table("Simulated steps", columns)
    for row in _shown_rows(plan):
        marks = "*" * (not row.same_numbers) + "!" * bool(row.obstacle)
        fits = row.cost.feasible and row.cost.step_s > 0
        each = [row.name + (f" {marks}" if marks else ""), _seconds(row.cost)]
        each += [rate(plan.examples / row.cost.step_s) if plan.examples and fits else "", _memory(row.cost)]
        each += [format_seconds(row.measured_s)] if row.measured_s is not None else []
        table.add_row(*map(Text, each), style="bold" if row is plan.chosen else "")
    return table


def _next(steps: Sequence[str], files: Mapping[str, str]) -> list[RenderableType]:
    report = [f"{files['report']} shows the timeline, memory, layers and transfers"] if "report" in files else []
    kept = [f"{files['plan']} keeps the plan: Plan.load, or tfplace report for its report"] if "plan" in files else []
    lines = [f"- {line}" for line in (*report, *steps, *kept)]
    others = [Path(path).name for what, path in files.items() if what not in ("report", "plan")]
    lines += [f"written: {', '.join(others)}"] if others else []
    return [_EMPTY, Text("Next", style="bold"), *(_text(line, most=_WHOLE) for line in lines)]


def _steps_of_placement(placement: Placement, files: Mapping[str, str]) -> list[str]:
    steps = [] if files else ["--out=DIRECTORY keeps the placement and writes a report with timeline and memory"]
    if "placement" in files:
        is_taken = not verdict(placement).startswith(("stay on", "take "))
        steps.append(
            f"run it: tfplace.apply(model, {files['placement']!r}, batch)"
            if is_taken
            else f"kept in {files['placement']}"
        )
    return [*steps, "--verbose prints every baseline and note, --layers the layers"]


def _steps_of_plan(plan: Plan, files: Mapping[str, str]) -> list[str]:
    row, steps = plan.chosen, []
    if row is None:
        return ["allow more memory, or take a smaller batch; --largest_batch finds the largest"]
    if row.way in STRATEGIES:
        steps.append(f"make and compile the model in the scope of tf.distribute.{row.way}()")
    elif plan_verdict(plan).startswith("stay on"):
        steps.append("place nothing" + ("; compile the model with jit_compile=True" if row.compile == XLA else ""))
    elif row.replicas == 1:
        steps.append("to train: PlacementCallback in fit, or plan.apply(); --run=10 measures the best here")
    steps += [] if files else ["--out=DIRECTORY keeps the plan and writes a report with timeline and memory"]
    return [*steps, "--explain shows why, and what would help"]
