"""Memory of each device over the step, and what holds it at the peak."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from tfplace.core.timeline import Timeline
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.colours import device_colours
from tfplace.report.page.elements import legend, note
from tfplace.report.peak_memory import PeakMemory
from tfplace.report.step_memory import KINDS

_COLUMNS, _HEIGHT = 240, 60

_FAR = 4.0
"""A limit of more than so many peaks is told and not drawn: it would leave nothing to be seen of the memory."""

_SHOWN = 12

_COLOURS = ("#5d7693", "#93a5bb", "#b9c4d0", "#c9ab5e", "#3f8f83", "#a06a96", "#b0764a", "#8a8a8a")
"""Of `KINDS`: duller than those of devices, which are something else."""


def memory_view(timeline: Timeline, peaks: Sequence[PeakMemory]) -> str:
    """A picture for each device that holds something, those nearest their limits first."""
    used = sorted((d for d, peak in enumerate(peaks) if peak.peak_bytes), key=lambda d: -peaks[d].part)
    if not used:
        return ""
    shown = used[:_SHOWN]
    colours = device_colours(timeline.device_names)
    each = "".join(f"<div>{_device(timeline, d, peaks[d], colours[d])}</div>" for d in shown)
    kinds = [kind for kind in KINDS if any(peaks[d].by_kind.get(kind) for d in shown)]
    rest = [peaks[d] for d in used[_SHOWN:]]
    more = (
        note(f"{len(rest)} more devices hold {format_bytes(max(p.peak_bytes for p in rest))} at most.") if rest else ""
    )
    return f'{legend(kinds, [_colour(kind) for kind in kinds])}<div class="grid">{each}</div>{more}'


def _colour(kind: str) -> str:
    return _COLOURS[KINDS.index(kind)]


def _device(timeline: Timeline, d: int, peak: PeakMemory, colour: str) -> str:
    over = ' <span class="over">too much</span>' if peak.peak_bytes > peak.limit_bytes else ""
    name = escape(peak.device)
    held = "".join(
        f'<span style="width:{100 * size / peak.peak_bytes:.2f}%;background:{_colour(kind)}" '
        f'title="{kind} {format_bytes(size)}"></span>'
        for kind, size in peak.by_kind.items()
        if size
    )
    items = "".join(
        f"<li>{format_bytes(one.size_bytes)} {one.kind}: {escape(one.name)}"
        f"{'' if one.shape is None else escape(str(list(one.shape)))}</li>"
        for one in peak.largest
    )
    return (
        f"<h3>{name}: {format_bytes(peak.peak_bytes)} of {format_bytes(peak.limit_bytes)}{over}</h3>"
        f"{_curve(timeline, d, peak, colour)}"
        f'<div class="stack" aria-hidden="true">{held}</div>'
        f"<p>At the peak: {escape(peak.kinds(len(KINDS)))}.</p>"
        f'<details><summary>The largest on {name} at the peak</summary><ol class="largest">{items}</ol></details>'
    )


def _curve(timeline: Timeline, d: int, peak: PeakMemory, colour: str) -> str:
    """Memory in use over the step, as the most in each slice of it."""
    mine = timeline.memory_device == d
    when, size = timeline.memory_s[mine], timeline.memory_bytes[mine]
    end = max(timeline.finish_s.max(initial=0.0), timeline.moved_finish_s.max(initial=0.0), 1e-12)
    column = np.clip((when / end * _COLUMNS).astype(np.int64), 0, _COLUMNS - 1)
    high = np.zeros(_COLUMNS)
    np.maximum.at(high, column, size)
    last = np.searchsorted(when, np.arange(_COLUMNS) * end / _COLUMNS, side="right") - 1
    before = np.where(last >= 0, size[np.maximum(last, 0)] if len(size) else 0, 0)
    high = np.maximum(high, before)
    near = peak.limit_bytes <= _FAR * peak.peak_bytes
    top = 1.06 * max(peak.peak_bytes, peak.limit_bytes if near else 0, 1)
    heights = np.round(_HEIGHT * (1 - high / top), 1)
    changes = np.flatnonzero(np.concatenate([[True], heights[1:] != heights[:-1]]))
    points = "".join(f"H{i}V{heights[i]:g}" for i in changes.tolist())
    at = int(np.argmax(high))
    limit = _HEIGHT * (1 - peak.limit_bytes / top)
    line = (
        f'<path d="M0 {limit:.1f}H{_COLUMNS}" stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 3" '
        'fill="none" vector-effect="non-scaling-stroke"><title>limit</title></path>'
        if near
        else ""
    )
    said = (
        f"Memory of {peak.device} over the step: at most {format_bytes(peak.peak_bytes)}, "
        f"{format_seconds(at * end / _COLUMNS)} after its start, of {format_bytes(peak.limit_bytes)}"
    )
    mark = (
        f'<path d="M{at} {heights[at]:g}V{_HEIGHT}" stroke="currentColor" stroke-width="1.5" fill="none" '
        'vector-effect="non-scaling-stroke"><title>peak</title></path>'
    )
    far = "dashed: the limit" if near else f"limit: {format_bytes(peak.limit_bytes)}, far above"
    return (
        f'<svg viewBox="0 0 {_COLUMNS} {_HEIGHT}" height="90" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(said)}"><path d="M0 {_HEIGHT}{points}H{_COLUMNS}V{_HEIGHT}Z" fill="{colour}"/>'
        f"{line}{mark}</svg>"
        f'<div class="axis" aria-hidden="true"><span>0</span><span>{far}</span><span>{format_seconds(end)}</span></div>'
    )
