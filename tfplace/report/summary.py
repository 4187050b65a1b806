"""A placement as tables for a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.facts import (
    DEVICE_HEADINGS,
    baseline_order,
    device_facts,
    misfit,
    said,
    title,
    verdict,
    versus,
    wording,
)
from tfplace.report.layer_facts import LAYER_HEADINGS, LAYERS, LayerFacts, layer_facts

_WIDTH = 120


def placement_summary(placement: Placement, *, layers: bool = False) -> str:
    """The tables as plain text, without colors."""
    return plain_text(summary_tables(placement, layers=layers))


def plain_text(shown: RenderableType) -> str:
    """What `rich` would draw, as text without colors; in a notebook too, where it would draw on the page instead."""
    out = io.StringIO()
    console = Console(
        file=out, width=_WIDTH, color_system=None, force_terminal=False, force_jupyter=False, markup=False, emoji=False
    )
    console.print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")


def summary_tables(placement: Placement, *, layers: bool = False) -> RenderableType:
    """The tables as `rich` draws them; each says who gave its numbers.

    Args:
      placement: what is told of.
      layers: whether there is one of the layers, if the model has any.

    Cells are `Text`: names and TensorFlow's messages may hold what `rich` reads as styles, such as [/device:GPU:0].
    """
    parts: list[RenderableType] = [Text(title(placement), style="bold"), _devices(placement)]
    rows = layer_facts(placement) if layers else []
    if rows:
        parts.append(placed_layers(rows))
    if placement.baselines:
        parts.append(_baselines(placement))
    parts += [Text(line) for line in said(placement)]
    parts.append(Text(verdict(placement), style="bold"))
    return Group(*parts)


def _devices(placement: Placement) -> Table:
    table = Table(title=wording(placement.cost.objective).devices, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in DEVICE_HEADINGS:
        table.add_column(heading, justify="left" if heading == "device" else "right")
    for row in device_facts(placement):
        table.add_row(*map(Text, row.cells()))
    return table


def layers_table(graph: OpGraph) -> RenderableType:
    """The names of a graph's layers, which rules may name after "layer:"."""
    if not graph.layers:
        return Text("Names tell of no layers.")
    table = Table(title=f"Layers ({len(graph.layers)})", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("layer", "ops", "variables"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for name, ops in graph.layers.items():
        table.add_row(Text(name), str(len(ops)), format_bytes(int(graph.persistent_bytes[ops].sum())))
    return table


def placed_layers(rows: Sequence[LayerFacts]) -> Table:
    """Where layers are, and what they take there."""
    table = Table(title=LAYERS, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in LAYER_HEADINGS:
        table.add_column(heading, justify="left" if heading in ("layer", "devices") else "right")
    for row in rows:
        table.add_row(*map(Text, row.cells()))
    return table


def _baselines(placement: Placement) -> Table:
    words = wording(placement.cost.objective, placement.cost.source)
    table = Table(title=words.others, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("placement")
    table.add_column(words.column, justify="right")
    table.add_column("against this one")
    table.add_row(Text(f"this one, by {placement.placer}"), format_seconds(placement.cost.step_s), "", style="bold")
    for name, cost in baseline_order(placement):
        against = misfit(cost, placement.device_names) or versus(placement, cost)
        table.add_row(Text(name), format_seconds(cost.step_s) if cost.feasible else "-", Text(against))
    return table
