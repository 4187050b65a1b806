"""A timeline as Chrome trace events, which https://ui.perfetto.dev opens.

Three processes: "devices" with a track per device, "transfers" with a track per ordered pair of devices that moved
something, and "memory" with a counter per device. Times are in microseconds with nanosecond steps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfplace.core.timeline import Timeline

DEVICES, TRANSFERS, MEMORY = 1, 2, 3

Event = dict[str, Any]


def trace_events(timeline: Timeline) -> list[Event]:
    """Every op, transfer and memory change of the timeline, and the names of the tracks."""
    names = [_name("process_name", pid, 0, text) for pid, text in _PROCESSES.items()]
    return names + _op_events(timeline) + _transfer_events(timeline) + _memory_events(timeline)


def save_trace(timeline: Timeline, path: str | Path) -> None:
    """Writes the trace, whole or not at all."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"traceEvents": trace_events(timeline), "displayTimeUnit": "ms"}))
    part.replace(path)


_PROCESSES = {DEVICES: "devices (simulated)", TRANSFERS: "transfers (simulated)", MEMORY: "memory (simulated)"}


def _op_events(timeline: Timeline) -> list[Event]:
    events = [_name("thread_name", DEVICES, d, text) for d, text in enumerate(timeline.device_names)]
    rows = zip(
        timeline.op_names,
        timeline.op_types,
        timeline.op_device.tolist(),
        timeline.start_s.tolist(),
        timeline.finish_s.tolist(),
        timeline.replicated.tolist(),
        strict=True,
    )
    for op, kind, device, start, finish, replicated in rows:
        if not replicated:
            events.append(_slice(op, DEVICES, device, (start, finish), {"type": kind}) | {"cat": kind})
    return events


def _transfer_events(timeline: Timeline) -> list[Event]:
    devices = timeline.device_names
    tracks: dict[tuple[int, int], int] = {}
    events = []
    rows = zip(
        timeline.moved,
        timeline.moved_bytes.tolist(),
        zip(timeline.moved_src.tolist(), timeline.moved_dst.tolist(), strict=True),
        zip(timeline.moved_start_s.tolist(), timeline.moved_finish_s.tolist(), strict=True),
        strict=True,
    )
    for op, size, pair, times in rows:
        track = tracks.setdefault(pair, len(tracks))
        events.append(_slice(op, TRANSFERS, track, times, {"bytes": size}))
    names = [
        _name("thread_name", TRANSFERS, track, f"{devices[a]} -> {devices[b]}") for (a, b), track in tracks.items()
    ]
    return names + events


def _memory_events(timeline: Timeline) -> list[Event]:
    rows = zip(timeline.memory_s.tolist(), timeline.memory_device.tolist(), timeline.memory_bytes.tolist(), strict=True)
    return [
        {
            "ph": "C",
            "pid": MEMORY,
            "name": timeline.device_names[device],
            "ts": _nanoseconds(time) / 1000,
            "args": {"bytes": size},
        }
        for time, device, size in rows
    ]


def _slice(name: str, pid: int, tid: int, times: tuple[float, float], args: dict[str, Any]) -> Event:
    # Both ends are rounded, not the length: neighbours that touch must not overlap, or the viewer drops one.
    start, finish = map(_nanoseconds, times)
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (finish - start) / 1000,
        "args": args,
    }


def _name(what: str, pid: int, tid: int, text: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": text}}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
