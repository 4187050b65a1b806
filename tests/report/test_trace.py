import itertools
import json
from dataclasses import replace

import numpy as np

from tests.report.cases import timeline
from tfplace.report.trace import trace_events


def named(events, what):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == what}


def test_one_track_per_device_and_pair():
    events = trace_events(timeline())
    assert set(named(events, "thread_name").values()) == {"GPU:0", "GPU:1", "GPU:0 -> GPU:1"}
    assert len(named(events, "process_name")) == 3


def test_ops_and_transfers_are_slices_in_microseconds():
    events = [e for e in trace_events(timeline()) if e["ph"] == "X"]
    assert [e["name"] for e in events] == ["a", "b", "c", "a"]
    assert events[2]["ts"] == 666.667
    assert events[2]["args"] == {"type": "Relu"}
    assert events[3]["args"] == {"bytes": 4096}


def test_slices_of_one_track_do_not_overlap():
    tracks = {}
    for e in trace_events(timeline()):
        if e["ph"] == "X":
            tracks.setdefault((e["pid"], e["tid"]), []).append((round(e["ts"] * 1000), round(e["dur"] * 1000)))
    for slices in tracks.values():
        slices.sort()
        assert all(start + length <= after for (start, length), (after, _) in itertools.pairwise(slices))


def test_a_measured_timeline_is_shown_beside_the_simulated_on_tracks_of_its_own():
    overlapping = {"start_s": np.array([0.0, 0.0, 0.0, 0.002]), "finish_s": np.array([0.002, 0.0, 0.003, 0.004])}
    events = trace_events(timeline(), replace(timeline(), source="measured", **overlapping))
    processes = {name: pid for (pid, _), name in named(events, "process_name").items()}
    assert set(processes) == {
        f"{k} ({s})" for k in ("devices", "transfers", "memory") for s in ("simulated", "measured")
    }
    pid = processes["devices (measured)"]
    tracks = {tid: name for (p, tid), name in named(events, "thread_name").items() if p == pid}
    assert sorted(tracks.values()) == ["GPU:0", "GPU:0 (+1)", "GPU:1"]
    where = {e["name"]: tracks[e["tid"]] for e in events if e["ph"] == "X" and e["pid"] == pid}
    assert where == {"a": "GPU:0", "b": "GPU:0 (+1)", "c": "GPU:1"}


def test_memory_is_a_counter_per_device():
    counters = [e for e in trace_events(timeline()) if e["ph"] == "C"]
    assert [(e["name"], e["ts"], e["args"]) for e in counters] == [
        ("GPU:0", 0.0, {"bytes": 4096}),
        ("GPU:1", 333.333, {"bytes": 4096}),
    ]


def test_saved_file_is_a_trace(tmp_path):
    path = tmp_path / "trace.json"
    timeline().save(str(path))
    data = json.loads(path.read_text())
    assert data["traceEvents"] == trace_events(timeline())
    assert list(tmp_path.iterdir()) == [path]
