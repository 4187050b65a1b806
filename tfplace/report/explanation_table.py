"""An explanation as tables for a terminal, and as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfplace.core.explanation import LITTLE, Explanation, LayerUse, Side
from tfplace.formatting import format_seconds
from tfplace.report.summary import plain_text

_MOST_PARTS, _MOST_LAYERS, _MOST_USES = 8, 8, 40


def explanation_summary(explanation: Explanation) -> str:
    """The tables as plain text."""
    return plain_text(explanation_tables(explanation))


def explanation_tables(explanation: Explanation) -> RenderableType:
    """Why the row is taken, what would help, and where the layers are, as `rich` draws them."""
    parts: list[RenderableType] = []
    if explanation.chosen is not None:
        parts += [Text(line) for line in why(explanation.chosen, explanation.against)]
        sides = [side for side in (explanation.chosen, explanation.against) if side is not None]
        parts += [_compared("on the critical path", [_by_part(one) for one in sides], sides)]
        parts += [_compared("computing, by layer", [one.layers for one in sides], sides, _MOST_LAYERS)]
    parts += [Text(explanation.advice, style="bold"), _changes(explanation)]
    parts += [Text(f"not tried: {text}", style="dim") for text in explanation.left_out]
    if explanation.layers:
        parts.append(_layers(explanation.layers))
    return Group(*parts)


def why(chosen: Side, against: Side | None) -> list[str]:
    """What makes the difference to another row, in words."""
    if against is None:
        return [f"{chosen.name}: no other way fits without a search"]
    less_s = against.step_s - chosen.step_s
    first = f"{chosen.name} against {against.name}: {format_seconds(abs(less_s))} {'less' if less_s >= 0 else 'more'}"
    if not (chosen.waits and against.waits):
        return [first, *(f"{side.name}: {side.bottleneck}" for side in (chosen, against))]
    computes, sends = (_difference(chosen, against, sends=sends) for sends in (False, True))
    return [f"{first} a step; on its critical path {computes} computing and {sends} sending"]


def _difference(chosen: Side, against: Side, *, sends: bool) -> str:
    less_s = against.seconds(sends=sends) - chosen.seconds(sends=sends)
    return f"{format_seconds(abs(less_s))} {'less' if less_s >= 0 else 'more'}"


def _by_part(side: Side) -> Mapping[str, float]:
    """Seconds of all that compute or send, and by part."""
    totals = {f"all {what}": side.seconds(sends=sends) for what, sends in (("computing", False), ("sending", True))}
    return totals | {f"{'sending' if one.sends else 'computing on'} {one.what}": one.seconds for one in side.waits}


def _compared(
    title: str, columns: Sequence[Mapping[str, float]], sides: Sequence[Side], most: int = _MOST_PARTS
) -> Table:
    """Seconds and their part of the step, of one row beside another; what is least is told together."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(title)
    for side in sides:
        table.add_column(Text(side.name), justify="right")
    names = sorted({name for column in columns for name in column}, key=lambda name: -max(_of(columns, name)))
    shown, rest = names[:most], names[most:]
    for name in shown:
        table.add_row(Text(name), *map(_cell, _of(columns, name), sides))
    if rest:
        sums = [sum(column.get(name, 0.0) for name in rest) for column in columns]
        table.add_row(f"{len(rest)} more", *map(_cell, sums, sides))
    return table


def _of(columns: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [column.get(name, 0.0) for column in columns]


def _cell(seconds: float, side: Side) -> str:
    """Of TensorFlow's own way nobody knows the critical path."""
    if seconds <= 0:
        return "-" if side.waits else "?"
    return f"{format_seconds(seconds)} {100 * seconds / side.step_s:3.0f} %"


def _changes(explanation: Explanation) -> Table:
    table = Table(title="What if (each op stays where it is; simulated)", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("change", "step", "saves for each example", "row taken then"):
        table.add_column(heading, justify="right" if heading in ("step", "saves for each example") else "left")
    own = "" if explanation.chosen is None else explanation.chosen.name
    for one in explanation.changes:
        step = format_seconds(one.step_s) if math.isfinite(one.step_s) else "does not fit"
        saves = f"{100 * one.gain:.0f} %" if own and abs(one.gain) >= LITTLE else "-"
        table.add_row(Text(one.change), step, saves, Text("the same" if one.row == own else one.row))
    return table


def _layers(uses: Sequence[LayerUse]) -> Table:
    table = Table(title="Layers", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("layers", "compute", "devices and slices"):
        table.add_column(heading, justify="right" if heading == "compute" else "left")
    for use in uses[:_MOST_USES]:
        table.add_row(Text(use.name), format_seconds(use.seconds), Text(where(use)))
    if len(uses) > _MOST_USES:
        rest = uses[_MOST_USES:]
        table.add_row(
            f"{sum(len(use.layers) for use in rest)} more", format_seconds(sum(use.seconds for use in rest)), ""
        )
    return table


def where(use: LayerUse) -> str:
    """Devices, with the slices that are there, and those of the variables.

    >>> where(LayerUse(("dense",), {"GPU:0": (0, 1), "GPU:1": (2,)}, ("CPU:0",), 1.0))
    'GPU:0 slices 0-1, GPU:1 slice 2; variables on CPU:0'
    """
    told = ", ".join(f"{device}{_slices(slices)}" for device, slices in use.devices.items())
    if not use.owners:
        return told
    owners = "all of these" if len(use.owners) > 1 and {*use.owners} == {*use.devices} else ", ".join(use.owners)
    return "; ".join([*([told] if told else []), f"variables on {owners}"])


def _slices(slices: Sequence[int]) -> str:
    """Neighbors are told as one; nothing is said of a whole step."""
    runs: list[list[int]] = []
    for k in slices:
        if runs and k == runs[-1][-1] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    told = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f" slice{'s' if len(slices) > 1 else ''} {told}" if slices else ""


def explanation_facts(explanation: Explanation) -> dict[str, Any]:
    """The same as plain data: seconds, and parts of 1."""
    facts = asdict(explanation)
    for change in facts["changes"]:
        change["step_s"] = change["step_s"] if math.isfinite(change["step_s"]) else None
    return facts | {"advice": explanation.advice}
