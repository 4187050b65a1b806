"""Loops of a flat graph: which ops run more than once, how often, and which edges close a loop.

A lowered `tf.while_loop` is a frame: values enter by Enter, circulate by Merge, Switch and NextIteration while LoopCond
says so, and leave by Exit (Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys 2018, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.extraction.nodes import LOOP_BACK, Nodes

_PASS_THROUGH = {"Identity", "Enter", "RefEnter", "Cast", "StopGradient", "Snapshot"}
_SWITCHES = {"Switch", "RefSwitch"}
_MERGES = {"Merge", "RefMerge"}
_SUMS = {"Add", "AddV2", "Sub"}
_COMPARISONS = {"Less": (True, 0), "LessEqual": (True, 1), "Greater": (False, 0), "GreaterEqual": (False, 1)}
"""Op type -> whether the first is to be the smaller, and what it may exceed the second by, plus one."""


@dataclass(frozen=True)
class _Course:
    """An integer over a loop's iterations."""

    start: int
    step: int = 0


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
    frame_of, parent = frames(nodes)
    counts: dict[str, float] = {}
    counting = _Counting(nodes, values, frame_of, counts)
    unknown: list[int] = []
    pending = [v for v, op in enumerate(nodes.types) if op == "LoopCond"]
    # A gradient loop runs as often as the forward loop whose counter it reads, so forward loops must come first.
    while pending:
        solved = [(v, counting.iterations(v)) for v in pending]
        done = {v: n for v, n in solved if n is not None}
        if not done:
            unknown = [v for v in pending if frame_of[v]]
            break
        for v, n in done.items():
            counts[frame_of[v]] = n
        pending = [v for v in pending if v not in done]
    return Loops(_trips(nodes, frame_of, parent, counts), tuple(unknown))


def frames(nodes: Nodes) -> tuple[list[str], dict[str, str]]:
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
            name = nodes.defs[v].attr["frame_name"].s.decode(errors="replace")
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


class _Counting:
    """How often loops run, from the counters and limits that their conditions compare.

    Args:
      nodes: the flat graph.
      values: integer tensors known before the run.
      frame_of: innermost frame of each op.
      counts: iterations of the frames that are known so far; read as it grows.
    """

    def __init__(
        self,
        nodes: Nodes,
        values: Mapping[tuple[str, int], Sequence[int]],
        frame_of: Sequence[str],
        counts: Mapping[str, float],
    ) -> None:
        self._nodes, self._values, self._frame_of, self._counts = nodes, values, frame_of, counts
        self._asked: set[int] = set()

    def iterations(self, loop_cond: int) -> float | None:
        """Iterations of a loop: the least that one of its condition's comparisons allows; None if none is known."""
        nodes = self._nodes
        known: list[float] = []
        stack = [u for u, _ in nodes.data_inputs[loop_cond]]
        while stack:
            v = stack.pop()
            if nodes.types[v] in ("LogicalAnd", *_PASS_THROUGH):
                stack += [u for u, _ in nodes.data_inputs[v]]
            elif nodes.types[v] in _COMPARISONS:
                count = self._until(v)
                if count is not None:
                    known.append(count)
        return min(known) if known else None

    def _until(self, comparison: int) -> float | None:
        """Iterations until a < b (a <= b, a > b, a >= b) ceases to be true; None if that is not known, or never."""
        less, margin = _COMPARISONS[self._nodes.types[comparison]]
        first, second = (self._course(t) for t in self._nodes.data_inputs[comparison][:2])
        if first is None or second is None:
            return None
        low, high = (first, second) if less else (second, first)
        gap, change = high.start - low.start + margin, high.step - low.step
        if gap <= 0:
            return 0.0
        return float(-(gap // change)) if change < 0 else None

    def _course(self, tensor: tuple[int, int]) -> _Course | None:
        """What an integer is at the first iteration of its loop, and by how much it grows with each."""
        nodes = self._nodes
        op, slot = tensor
        known = self._values.get((nodes.names[op], slot))
        if known is not None and len(known) == 1:
            return _Course(int(known[0]))
        if nodes.types[op] in ("Exit", "RefExit"):
            course, count = self._course(nodes.data_inputs[op][0]), self._counts.get(self._frame_of[op])
            return None if course is None or count is None else _Course(course.start + round(count) * course.step)
        if nodes.types[op] in _PASS_THROUGH | _SWITCHES and nodes.data_inputs[op]:
            return self._course(nodes.data_inputs[op][0])
        if nodes.types[op] in _MERGES:
            return self._circulating(op)
        return None

    def _circulating(self, merge: int) -> _Course | None:
        """The course of a loop variable; None if the op merges something else, or what it grows by is not known."""
        producers = self._nodes.data_inputs[merge]
        back = [u for u, _ in producers if self._nodes.types[u] in LOOP_BACK]
        entering = [t for t in producers if t[0] not in back]
        if len(back) != 1 or len(entering) != 1 or merge in self._asked:
            return None
        self._asked.add(merge)  # what it grows by may not depend on itself
        start = self._course(entering[0])
        step = self._growth(self._nodes.data_inputs[back[0]][0], merge)
        self._asked.remove(merge)
        return None if start is None or start.step or step is None else _Course(start.start, step)

    def _growth(self, tensor: tuple[int, int], merge: int) -> int | None:
        """By how much an integer exceeds the loop variable that it is computed from; None if that is not known."""
        nodes, op = self._nodes, tensor[0]
        total = 0
        while op != merge:
            inputs = nodes.data_inputs[op]
            if nodes.types[op] in _PASS_THROUGH | _SWITCHES and inputs:
                op = inputs[0][0]
                continue
            if nodes.types[op] not in _SUMS:
                return None
            terms = [self._course(t) for t in inputs]
            fixed = [i for i, term in enumerate(terms) if term is not None and not term.step]
            if len(fixed) != 1 or (nodes.types[op] == "Sub" and fixed != [1]):
                return None
            term = terms[fixed[0]]
            assert term is not None
            total += -term.start if nodes.types[op] == "Sub" else term.start
            op = inputs[1 - fixed[0]][0]
        return total
