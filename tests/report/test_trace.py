import itertools
import json

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
