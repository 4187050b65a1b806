"""The step as data for the page's script: compact, since a step may have tens of thousands of ops."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.report.colours import device_colours
from tfplace.report.simulated_step import SimulatedStep

MOST_OPS, MOST_TRANSFERS = 20_000, 8_000
"""More would make the page larger than the browser of a telephone likes; those that take longest are kept."""

_PER_S = 1e9


def step_data(step: SimulatedStep) -> tuple[str, int]:
    """JSON for a script element, and how many ops and transfers were left out, since they take least.

    Times are whole nanoseconds. Ops are in the order of devices and starts; "gap" is from the end of the op before on
    the same device. Names are front-coded: how many characters are those of the name before, and the rest.
    """
    timeline = step.timeline
    took = np.where(timeline.replicated, 0.0, timeline.finish_s - timeline.start_s)
    ops = _longest(took, step.op_critical, MOST_OPS)
    ops = ops[np.lexsort((timeline.start_s[ops], timeline.op_device[ops]))]
    moving = timeline.moved_finish_s - timeline.moved_start_s
    moves = _longest(moving, step.moved_critical, MOST_TRANSFERS)
    moves = moves[np.lexsort((timeline.moved_start_s[moves], timeline.moved_src[moves]))]
    index = {name: v for v, name in enumerate(timeline.op_names)}
    senders = np.array([index[timeline.moved[m]] for m in moves.tolist()], np.int64)
    named = np.unique(np.concatenate([ops, senders])).astype(np.int64)
    kinds = sorted(set(timeline.op_types))
    kind = {name: i for i, name in enumerate(kinds)}
    start, end = _whole(timeline.start_s[ops]), _whole(timeline.finish_s[ops])
    data: dict[str, Any] = {
        "end": int(_whole(np.array([step.end_s]))[0]),
        "hasPath": step.has_path,
        "devices": timeline.device_names,
        "colours": device_colours(timeline.device_names),
        "layers": step.layer_names,
        "types": kinds,
        "names": _front_coded([timeline.op_names[v] for v in named.tolist()]),
        "ops": {
            "name": np.searchsorted(named, ops).tolist(),
            "type": [kind[timeline.op_types[v]] for v in ops.tolist()],
            "layer": step.op_layer[ops].tolist(),
            "device": _runs(timeline.op_device[ops]),
            "gap": _gaps(timeline.op_device[ops], start, end),
            "took": (end - start).tolist(),
            "bytes": step.op_bytes[ops].tolist(),
            "critical": np.flatnonzero(step.op_critical[ops]).tolist(),
        },
        "moves": {
            "name": np.searchsorted(named, senders).tolist(),
            "src": timeline.moved_src[moves].tolist(),
            "dst": timeline.moved_dst[moves].tolist(),
            "start": _whole(timeline.moved_start_s[moves]).tolist(),
            "took": (_whole(timeline.moved_finish_s[moves]) - _whole(timeline.moved_start_s[moves])).tolist(),
            "bytes": timeline.moved_bytes[moves].tolist(),
            "critical": np.flatnonzero(step.moved_critical[moves]).tolist(),
        },
    }
    left_out = int(np.count_nonzero(took > 0) + np.count_nonzero(moving > 0)) - len(ops) - len(moves)
    return script_json(data), left_out


def script_json(data: Any) -> str:
    """JSON that no HTML parser takes for the end of its element."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _longest(seconds: FloatArray, kept: BoolArray, most: int) -> IntArray:
    """What takes time: all of it, or the longest, and what is to be kept."""
    some = np.flatnonzero(seconds > 0)
    if len(some) > most:
        rank = np.argsort(-np.where(kept[some], np.inf, seconds[some]), kind="stable")
        some = np.sort(some[rank[:most]])
    found: IntArray = some.astype(np.int64)
    return found


def _whole(seconds: FloatArray) -> Any:
    return np.round(seconds * _PER_S).astype(np.int64)


def _gaps(device: IntArray, start: Any, end: Any) -> list[int]:
    same = np.concatenate([[False], device[1:] == device[:-1]])
    before = np.where(same, np.concatenate([[0], end[:-1]]), 0)
    gaps: list[int] = (start - before).tolist()
    return gaps


def _runs(values: IntArray) -> list[list[int]]:
    """[value, how often in a row]."""
    changes = np.flatnonzero(np.concatenate([[len(values) > 0], values[1:] != values[:-1], [True]]))
    return [[int(values[a]), int(b - a)] for a, b in itertools.pairwise(changes)]


def _front_coded(names: Sequence[str]) -> dict[str, list[Any]]:
    shared, rest, before = [], [], ""
    for name in names:
        same = next((i for i, (x, y) in enumerate(zip(before, name, strict=False)) if x != y), -1)
        same = min(len(before), len(name)) if same < 0 else same
        shared.append(same)
        rest.append(name[same:])
        before = name
    return {"shared": shared, "rest": rest}
