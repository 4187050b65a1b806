"""The timeline: a still picture for those without the script, its controls, and the longest parts as a table."""

from __future__ import annotations

from html import escape

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.core.timeline import Timeline
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.colours import device_colours
from tfplace.report.page.elements import Cell, note, table
from tfplace.report.simulated_step import SimulatedStep

_COLUMNS = 400
"""Of the still picture: what is shorter is drawn as part of one."""

_LISTED = 12

_STILL = "In color: the device computes. Below: it sends or receives."
_WHAT = "Ops of each device are above; the thin row below is what it sends, in the color of the device that gets it."
_PATH = "The critical path is drawn in full color with a line under it, everything else is pale."

_HELP = (
    "Drag to move, Ctrl and wheel or two fingers to zoom. Keys: <kbd>←</kbd> <kbd>→</kbd> the op before or after, "
    "<kbd>↑</kbd> <kbd>↓</kbd> another device, <kbd>+</kbd> <kbd>-</kbd> zoom, <kbd>0</kbd> the whole step, "
    "<kbd>c</kbd> the next op on the critical path, <kbd>Esc</kbd> none."
)


def timeline_view(step: SimulatedStep, left_out: int) -> str:
    """The section's HTML.

    Args:
      step: what is shown.
      left_out: how many short ops and transfers the script does not get.
    """
    still = f'<figure id="timeline-still">{timeline_picture(step.timeline)}<figcaption>{_STILL}</figcaption></figure>'
    what = f"{_WHAT} {_PATH}" if step.has_path else _WHAT
    what += f" {left_out:,} short ops and transfers are left out." if left_out else ""
    return f"{still}{_controls(what)}{_path(step)}"


def _controls(what: str) -> str:
    buttons = (
        ("in", "Zoom in"),
        ("out", "Zoom out"),
        ("earlier", "Earlier"),
        ("later", "Later"),
        ("all", "Whole step"),
        ("next", "Next on the critical path"),
    )
    made = "".join(f'<button type="button" data-do="{key}">{text}</button>' for key, text in buttons)
    return (
        f'<div id="timeline-view" hidden>{note(what)}'
        f'<div class="tools" role="toolbar" aria-label="Timeline">{made}'
        '<label>Find <input type="search" id="find" placeholder="op or layer" autocomplete="off"></label></div>'
        '<div class="board"><canvas id="timeline-canvas" tabindex="0" role="application" '
        'aria-roledescription="timeline" aria-label="Timeline of the step" aria-describedby="timeline-help">'
        '</canvas><div class="tip" id="tip" aria-hidden="true" hidden></div></div>'
        '<p class="picked" id="picked" role="status">Point at an op or transfer, or select it with the keys.</p>'
        f'<p class="quiet" id="timeline-help">{_HELP}</p></div>'
    )


def _path(step: SimulatedStep) -> str:
    """The longest ops and transfers of the critical path."""
    timeline = step.timeline
    took, names = timeline.finish_s - timeline.start_s, timeline.device_names
    rows = [
        (float(took[v]), timeline.op_names[v], step.layer_names[step.op_layer[v]], names[timeline.op_device[v]], "")
        for v in np.flatnonzero(step.op_critical).tolist()
    ]
    moved = timeline.moved_finish_s - timeline.moved_start_s
    rows += [
        (
            float(moved[m]),
            timeline.moved[m],
            "",
            f"{names[timeline.moved_src[m]]} to {names[timeline.moved_dst[m]]}",
            format_bytes(int(timeline.moved_bytes[m])),
        )
        for m in np.flatnonzero(step.moved_critical).tolist()
    ]
    if not rows:
        return note("The critical path of this step is not known.")
    longest = sorted(rows, key=lambda row: -row[0])[:_LISTED]
    cells = [
        (
            Cell(escape(name)),
            Cell(escape(layer), kind="text"),
            Cell(escape(where), kind="text"),
            Cell(format_seconds(seconds)),
            Cell(size),
        )
        for seconds, name, layer, where, size in longest
    ]
    shown = f"The {len(longest)} longest of {len(rows):,} ops and transfers on the critical path"
    listed = table(shown, ("op", "layer", "device", "seconds", "sent"), cells)
    return f"<details><summary>{shown}</summary>{listed}</details>"


def timeline_picture(timeline: Timeline) -> str:
    """A row for each device: which part of each slice of the step it computes, and below it, sends or receives."""
    used = [d for d in range(len(timeline.device_names)) if _is_used(timeline, d)]
    ends = [timeline.finish_s.max(initial=0.0), timeline.moved_finish_s.max(initial=0.0)]
    end = max(*ends, 1e-12)
    edges = np.linspace(0.0, end, _COLUMNS + 1)
    colours = device_colours(timeline.device_names)
    rows = []
    for i, d in enumerate(used):
        mine = (timeline.op_device == d) & ~timeline.replicated
        moves = (timeline.moved_src == d) | (timeline.moved_dst == d)
        busy = busy_share(timeline.start_s[mine], timeline.finish_s[mine], edges)
        moving = busy_share(timeline.moved_start_s[moves], timeline.moved_finish_s[moves], edges)
        base = 36 * i + 28
        name = escape(timeline.device_names[d])
        rows.append(
            f'<text x="0" y="{base - 19}" font-size="9" fill="currentColor">{name}</text>'
            f'<path d="{_area(busy, base, -16)}" fill="{colours[d]}"><title>{name} computes</title></path>'
            f'<path d="{_area(moving, base + 1, 4)}" fill="currentColor"><title>{name} sends or receives</title></path>'
        )
    said = ", ".join(f"{timeline.device_names[d]} computes {_percent(timeline, d, end)} of the step" for d in used)
    foot = 36 * len(used) + 6
    text = f'y="{foot}" font-size="8" fill="currentColor"'
    axis = f'<text x="0" {text}>0</text><text x="{_COLUMNS}" {text} text-anchor="end">{format_seconds(end)}</text>'
    return (
        f'<svg viewBox="0 0 {_COLUMNS} {foot + 3}" role="img" aria-label="Timeline: {escape(said)}">'
        f"{''.join(rows)}{axis}</svg>"
    )


def _is_used(timeline: Timeline, d: int) -> bool:
    takes = (timeline.op_device == d) & ~timeline.replicated & (timeline.finish_s > timeline.start_s)
    return bool(takes.any() or (timeline.moved_src == d).any() or (timeline.moved_dst == d).any())


def _percent(timeline: Timeline, d: int, end_s: float) -> str:
    mine = (timeline.op_device == d) & ~timeline.replicated
    whole = busy_share(timeline.start_s[mine], timeline.finish_s[mine], np.linspace(0.0, end_s, _COLUMNS + 1))
    return f"{100 * whole.mean():.0f} %"


def _area(share: FloatArray, base: float, height: float) -> str:
    """The outline of steps of one unit width, without points where nothing changes."""
    heights = np.round(base + height * share, 1)
    changes = np.flatnonzero(np.concatenate([[True], heights[1:] != heights[:-1]]))
    points = "".join(f"H{i}V{heights[i]:g}" for i in changes.tolist())
    return f"M0 {base:g}{points}H{len(share)}V{base:g}Z"


def busy_share(begin: FloatArray, end: FloatArray, edges: FloatArray) -> FloatArray:
    """[len(edges) - 1] which part of each slice is within some span; where spans overlap it is 1 at most."""
    width = edges[1] - edges[0]
    done = np.zeros(len(edges))  # seconds within spans before each edge
    for sign, times in ((1.0, begin), (-1.0, end)):
        at = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
        left = np.bincount(at, (edges[at + 1] - times), len(edges) - 1)
        whole = np.bincount(at, minlength=len(edges) - 1)
        done[:-1] += sign * (left + width * (np.cumsum(whole) - whole))
    share: FloatArray = np.clip(done[:-1] / width, 0.0, 1.0)
    return share
