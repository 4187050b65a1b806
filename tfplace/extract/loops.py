"""Loops of a flat graph: which ops run more than once, how often, and which edges close a loop.

A lowered `tf.while_loop` is a frame: values enter by Enter, circulate by Merge, Switch and NextIteration while LoopCond
says so, and leave by Exit (Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys 2018, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.extract.nodes import Nodes

_PASS_THROUGH = {"Identity", "Enter", "RefEnter", "Cast", "StopGradient", "Snapshot"}


@dataclass(frozen=True)
class Loops:
    """How often ops run.

    Attributes:
      trips: [V] executions in one step.
      unknown: LoopCond ops whose iterations could not be told; their loops are counted once.
    """

    trips: FloatArray
    unknown: tuple[int, ...]


def find_loops(nodes: Nodes, values: Mapping[tuple[str, int], Sequence[int]]) -> Loops:
    """Counts executions.

    Args:
      nodes: the flat graph.
      values: integer tensors known before the run, (op name, slot) -> elements.
    """
    frame_of, parent = _frames(nodes)
    counts: dict[str, float] = {}
    unknown: list[int] = []
    pending = [v for v, op in enumerate(nodes.types) if op == "LoopCond"]
    # A gradient loop runs as often as the forward loop whose counter it reads, so forward loops must come first.
    while pending:
        solved = [(v, _limit(nodes, v, values, frame_of, counts)) for v in pending]
        done = {v: n for v, n in solved if n is not None}
        if not done:
            unknown = [v for v in pending if frame_of[v]]
            break
        for v, n in done.items():
            counts[frame_of[v]] = n
        pending = [v for v in pending if v not in done]
    return Loops(_trips(nodes, frame_of, parent, counts), tuple(unknown))


def _frames(nodes: Nodes) -> tuple[list[str], dict[str, str]]:
    """The innermost frame of each op ("" outside loops), and each frame's parent."""
    frame_of = [""] * len(nodes)
    parent: dict[str, str] = {"": ""}
    seen = np.zeros(len(nodes), bool)
    for v in nodes.order:
        frame = ""
        for u in nodes.forward_producers(v):
            if seen[u]:
                outside = nodes.types[u] in ("Exit", "RefExit")
                inherited = parent[frame_of[u]] if outside else frame_of[u]
                if _depth(inherited, parent) > _depth(frame, parent):
                    frame = inherited
        if nodes.types[v] in ("Enter", "RefEnter"):
            name = nodes.defs[v].attr["frame_name"].s.decode()
            parent.setdefault(name, frame)
            frame = name
        frame_of[v] = frame
        seen[v] = True
    return frame_of, parent


def _depth(frame: str, parent: Mapping[str, str]) -> int:
    depth = 0
    while frame:
        frame, depth = parent[frame], depth + 1
    return depth


def _trips(nodes: Nodes, frame_of: Sequence[str], parent: Mapping[str, str], counts: Mapping[str, float]) -> FloatArray:
    total: dict[str, float] = {"": 1.0}

    def trips(frame: str) -> float:
        if frame not in total:
            total[frame] = counts.get(frame, 1.0) * trips(parent[frame])
        return total[frame]

    out = np.ones(len(nodes))
    for v, frame in enumerate(frame_of):
        once = nodes.types[v] in ("Enter", "RefEnter", "Exit", "RefExit")
        out[v] = trips(parent[frame]) if once else trips(frame)
    return out


def _limit(
    nodes: Nodes,
    loop_cond: int,
    values: Mapping[tuple[str, int], Sequence[int]],
    frame_of: Sequence[str],
    counts: Mapping[str, float],
) -> float | None:
    """Iterations of a loop: the smallest of the limits its condition compares a counter with; None if none is known."""
    limits: list[float] = []
    stack = [u for u, _ in nodes.data_inputs[loop_cond]]
    while stack:
        v = stack.pop()
        if nodes.types[v] in ("LogicalAnd", *_PASS_THROUGH):
            stack += [u for u, _ in nodes.data_inputs[v]]
        elif nodes.types[v] in ("Less", "Greater") and len(nodes.data_inputs[v]) == 2:
            bound = nodes.data_inputs[v][1 if nodes.types[v] == "Less" else 0]
            limit = _value(nodes, bound, values, frame_of, counts)
            if limit is not None:
                limits.append(limit)
    return min(limits) if limits else None


def _value(
    nodes: Nodes,
    tensor: tuple[int, int],
    values: Mapping[tuple[str, int], Sequence[int]],
    frame_of: Sequence[str],
    counts: Mapping[str, float],
) -> float | None:
    """A loop limit: a known number, or the final counter of a loop whose iterations are known."""
    for _ in range(len(nodes)):
        op, slot = tensor
        known = values.get((nodes.names[op], slot))
        if known is not None and len(known) == 1:
            return max(float(known[0]), 0.0)
        if nodes.types[op] in ("Exit", "RefExit"):
            return counts.get(frame_of[op])
        # A limit may circulate unchanged as a loop variable: its Merge passes on what entered.
        if nodes.types[op] not in {*_PASS_THROUGH, "Merge"} or not nodes.data_inputs[op]:
            return None
        tensor = nodes.data_inputs[op][0]
    return None
