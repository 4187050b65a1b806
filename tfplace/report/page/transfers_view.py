"""What devices send to one another in a step."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.timeline import Timeline
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.page.elements import Cell, note, table

_MOST = 12
"""A matrix of more devices is listed by pairs, of which the largest are shown."""

_PAIRS = 40


class Traffic(NamedTuple):
    """What is sent from device to device.

    Attributes:
      size_bytes: [D, D].
      transfers: [D, D] how many.
      seconds: [D, D] that they take, one after the other.
    """

    size_bytes: LongArray
    transfers: LongArray
    seconds: FloatArray


def traffic(timeline: Timeline) -> Traffic:
    """Of all transfers of a step."""
    shape = (len(timeline.device_names),) * 2
    size, count, seconds = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    pair = (timeline.moved_src, timeline.moved_dst)
    np.add.at(size, pair, timeline.moved_bytes)
    np.add.at(count, pair, 1)
    np.add.at(seconds, pair, timeline.moved_finish_s - timeline.moved_start_s)
    return Traffic(size, count, seconds)


def transfers_view(timeline: Timeline) -> str:
    """A matrix from sender to receiver, or a list of pairs if there are many devices."""
    sent, names = traffic(timeline), timeline.device_names
    if not sent.transfers.any():
        return note("No device sends anything to another.")
    used = np.flatnonzero((sent.transfers.sum(axis=0) + sent.transfers.sum(axis=1)) > 0).tolist()
    total = f"{format_bytes(int(sent.size_bytes.sum()))} in {int(sent.transfers.sum()):,} transfers"
    if len(used) > _MOST:
        return _pairs(sent, names, total)
    most = max(int(sent.size_bytes.max()), 1)
    rows = [[Cell(escape(names[a])), *(_cell(sent, a, b, most) for b in used)] for a in used]
    headings = ("from \\ to", *(names[b] for b in used))
    caption = f"{total}, from the device of the row to that of the column"
    return f'<div class="matrix">{table(caption, headings, rows)}</div>'


def _cell(sent: Traffic, a: int, b: int, most: int) -> Cell:
    if not sent.transfers[a, b]:
        return Cell("-", kind="none")
    size, seconds = int(sent.size_bytes[a, b]), float(sent.seconds[a, b])
    told = f"{format_bytes(size)}<br><small>{int(sent.transfers[a, b]):,} in {format_seconds(seconds)}</small>"
    return Cell(f'<span style="--share:{size / most:.2f}">{told}</span>')


def _pairs(sent: Traffic, names: tuple[str, ...], total: str) -> str:
    pairs = np.argwhere(sent.transfers > 0)
    order = np.argsort(-sent.size_bytes[pairs[:, 0], pairs[:, 1]], kind="stable")
    rows = [
        (
            Cell(escape(f"{names[a]} to {names[b]}")),
            Cell(format_bytes(int(sent.size_bytes[a, b])), int(sent.size_bytes[a, b])),
            Cell(f"{int(sent.transfers[a, b]):,}", int(sent.transfers[a, b])),
            Cell(format_seconds(float(sent.seconds[a, b])), float(sent.seconds[a, b])),
        )
        for a, b in pairs[order[:_PAIRS]].tolist()
    ]
    more = f"; the largest {_PAIRS} of {len(pairs)} pairs" if len(pairs) > _PAIRS else ""
    return table(
        total + more, ("devices", "bytes", "transfers", "seconds"), rows, key="transfers-table", scrolls="tall"
    )
