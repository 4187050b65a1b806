"""The model's layers in the color of their devices, and a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.core.placement import Placement
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.colours import device_colours
from tfplace.report.explaining import innermost_layers
from tfplace.report.layer_facts import LAYER_HEADINGS, LAYERS, LayerFacts, layer_facts
from tfplace.report.page.elements import Cell, colour_key, legend, table

_HEIGHT, _BAND = 60, 8

_CAPTION = (
    "<figcaption>Height: seconds of the layer, forward and back. Below: the device on which it computes most."
    "</figcaption>"
)


def layers_view(placement: Placement) -> str:
    """The picture, a filter and the table; nothing where names tell of no layers."""
    rows = layer_facts(placement)
    if not rows:
        return ""
    names, colours = placement.device_names, device_colours(placement.device_names)
    by_name = dict(zip(names, colours, strict=True))
    cells = [_cells(row, by_name) for row in rows]
    filtered = (
        '<div class="tools" id="layers-tools" hidden><label>Filter <input type="search" id="layers-filter" '
        'placeholder="layer or device" autocomplete="off" aria-controls="layers-table"></label>'
        f'<span role="status" id="layers-count">{len(rows)} layers</span></div>'
    )
    listed = table(LAYERS, LAYER_HEADINGS, cells, key="layers-table", scrolls="tall")
    used = [d for d in range(len(names)) if (placement.op_device == d).any()]
    keys = legend([names[d] for d in used], [colours[d] for d in used])
    return f"{keys}<figure>{layers_picture(placement)}{_CAPTION}</figure>{filtered}{listed}"


def layers_picture(placement: Placement) -> str:
    """A column for each innermost layer in the order of the forward pass: its ops' seconds, forward and back.

    Below each, a field in the color of the device on which it computes most.
    """
    assert placement.problem is not None
    graph, device = placement.problem.graph, placement.op_device
    names, layer = innermost_layers(graph)
    seconds = placement.problem.costs.compute_s[np.arange(graph.num_ops), device]
    seconds = np.where(graph.replicable, 0.0, seconds)
    table_s = np.zeros((len(names), len(placement.device_names)))
    np.add.at(table_s, (layer, device), seconds)
    shown = np.flatnonzero(np.bincount(layer[~graph.replicable], minlength=len(names)))
    most = max(float(table_s.sum(axis=1).max(initial=0.0)), 1e-12)
    columns = "".join(
        _column(x, names[i], table_s[i] / most * _HEIGHT, table_s[i].sum(), placement.device_names)
        for x, i in enumerate(shown.tolist())
    )
    said = f"Seconds of {len(shown)} layers by device, in the order of the forward pass; the table below has them"
    return (
        f'<svg viewBox="0 0 {max(len(shown), 1)} {_HEIGHT + _BAND + 2}" height="120" preserveAspectRatio="none" '
        f'role="img" aria-label="{said}">{columns}</svg>'
    )


def _column(x: int, name: str, heights: FloatArray, seconds: float, devices: Sequence[str]) -> str:
    colours, y, out = device_colours(devices), float(_HEIGHT), []
    for d in np.flatnonzero(heights).tolist():
        y -= float(heights[d])
        out.append(f'<rect x="{x}.04" y="{y:.2f}" width=".92" height="{heights[d]:.2f}" fill="{colours[d]}"/>')
    most = int(np.argmax(heights))
    where = ", ".join(devices[d] for d in np.argsort(-heights, kind="stable").tolist() if heights[d] > 0)
    out.append(f'<rect x="{x}" y="{_HEIGHT + 2}" width="1" height="{_BAND}" fill="{colours[most]}"/>')
    return (
        f"<g><title>{escape(name)}: {format_seconds(seconds)}, {escape(where or 'no time')}</title>{''.join(out)}</g>"
    )


def _cells(row: LayerFacts, colours: dict[str, str]) -> Sequence[Cell]:
    _, ops, where, *_ = row.cells()
    keys = "".join(colour_key(colours[name]) for name in row.devices)
    compute, variables, kept = (row.total(what) for what in ("compute_s", "variable_bytes", "kept_bytes"))
    return (
        Cell(escape(row.name)),
        Cell(ops, row.total("ops")),
        Cell(
            keys + escape(", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in where.split(", "))), kind="text"
        ),
        Cell(format_seconds(compute), compute),
        Cell(format_bytes(variables), variables),
        Cell(format_bytes(kept), kept),
    )
