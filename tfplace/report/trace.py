"""Timelines as Chrome trace events, which https://ui.perfetto.dev opens.

For each timeline three processes: "devices" with a track per device, "transfers" with a track per ordered pair of
devices that moved something, and "memory" with a counter per device. A simulated and a measured timeline in one file
are side by side on one clock. Measured ops of a device can overlap; those that do get further tracks of their device.
Times are in microseconds with nanosecond steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfplace.core.timeline import Timeline
from tfplace.files import write_whole

Event = dict[str, Any]
_Span = tuple[int, int]  # nanoseconds

_KINDS = ("devices", "transfers", "memory")


def trace_events(*timelines: Timeline) -> list[Event]:
    """Every op, transfer and memory change of the timelines, and the names of the tracks."""
    events: list[Event] = []
    for i, timeline in enumerate(timelines):
        devices, transfers, memory = (len(_KINDS) * i + k + 1 for k in range(len(_KINDS)))
        for pid, kind in ((devices, "devices"), (transfers, "transfers"), (memory, "memory")):
            events.append(_name("process_name", pid, 0, f"{kind} ({timeline.source})"))
        events += _op_events(timeline, devices)
        events += _transfer_events(timeline, transfers)
        events += _memory_events(timeline, memory)
    return events


def save_trace(path: str | Path, *timelines: Timeline) -> None:
    """Writes the trace, whole or not at all."""
    write_whole(path, json.dumps({"traceEvents": trace_events(*timelines), "displayTimeUnit": "ms"}))


def _op_events(timeline: Timeline, pid: int) -> list[Event]:
    rows: dict[str, list[tuple[_Span, str, Event]]] = {name: [] for name in timeline.device_names}
    for v in range(len(timeline.op_names)):
        if not timeline.replicated[v]:
            span = _nanoseconds(timeline.start_s[v]), _nanoseconds(timeline.finish_s[v])
            kind = timeline.op_types[v]
            device = timeline.device_names[timeline.op_device[v]]
            rows[device].append((span, timeline.op_names[v], {"cat": kind, "args": {"type": kind}}))
    return _tracks(pid, rows)


def _transfer_events(timeline: Timeline, pid: int) -> list[Event]:
    rows: dict[str, list[tuple[_Span, str, Event]]] = {}
    names = timeline.device_names
    for m, op in enumerate(timeline.moved):
        span = _nanoseconds(timeline.moved_start_s[m]), _nanoseconds(timeline.moved_finish_s[m])
        pair = f"{names[timeline.moved_src[m]]} -> {names[timeline.moved_dst[m]]}"
        rows.setdefault(pair, []).append((span, op, {"args": {"bytes": int(timeline.moved_bytes[m])}}))
    return _tracks(pid, rows)


def _tracks(pid: int, rows: dict[str, list[tuple[_Span, str, Event]]]) -> list[Event]:
    """A track for each name, and further ones of that name for what overlaps: slices of a track must not."""
    names: list[Event] = []
    slices: list[Event] = []
    for name, row in rows.items():
        lanes = _lanes([span for span, _, _ in row])
        first = len(names)
        labels = [name, *(f"{name} (+{lane})" for lane in range(1, max(lanes, default=0) + 1))]
        names += [_name("thread_name", pid, first + lane, label) for lane, label in enumerate(labels)]
        for (span, text, more), lane in zip(row, lanes, strict=True):
            slices.append(_slice(text, pid, first + lane, span) | more)
    return names + slices


def _lanes(spans: Sequence[_Span]) -> list[int]:
    """The first lane that is free at each span's start, spans taken by their start."""
    free: list[int] = []
    out = [0] * len(spans)
    for i in sorted(range(len(spans)), key=spans.__getitem__):
        start, finish = spans[i]
        lane = next((k for k, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [finish]
        out[i] = lane
    return out


def _memory_events(timeline: Timeline, pid: int) -> list[Event]:
    rows: Iterable[tuple[float, int, int]] = zip(
        timeline.memory_s.tolist(), timeline.memory_device.tolist(), timeline.memory_bytes.tolist(), strict=True
    )
    return [
        {
            "ph": "C",
            "pid": pid,
            "name": timeline.device_names[device],
            "ts": _nanoseconds(time) / 1000,
            "args": {"bytes": size},
        }
        for time, device, size in rows
    ]


def _slice(name: str, pid: int, tid: int, span: _Span) -> Event:
    # Both ends are rounded, not the length: neighbors that touch must not overlap, or the viewer drops one.
    start, finish = span
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start / 1000, "dur": (finish - start) / 1000}


def _name(what: str, pid: int, tid: int, text: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": text}}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
