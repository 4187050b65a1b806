"""Loops of a flat graph put back together: what a `tf.while_loop` was before it was lowered.

A lowered loop has for each of its variables an Enter, a Merge (of the first value and the next), a Switch (by the
condition: into the body, or out) and mostly an Exit; what never changes has a constant Enter alone (Yu et al., "Dynamic
Control Flow in Large-Scale Machine Learning", EuroSys 2018, section 4.2). XLA compiles loops, but not these ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.graph import OpGraph
from tfplace.core.xla_ops import COMPILABLE, LISTS

LOOP_OPS = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})
"""What a loop is lowered to."""

_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceStridedSliceAssign", "Rng")


@dataclass(frozen=True)
class LoopVariable:
    """What changes from turn to turn; names of ops.

    Attributes:
      enter: gives the first value.
      merge: gives the value before the condition.
      switch: gives the value to the body.
      next: gives the next value.
      exit: gives the last value; None where nobody reads it.
    """

    enter: str
    merge: str
    switch: str
    next: str
    exit: str | None


@dataclass(frozen=True)
class WhileLoop:
    """A loop by the names of its ops.

    Attributes:
      variables: what changes.
      invariants: Enter ops of what does not.
      condition: its LoopCond.
      ops: all of it.
    """

    variables: tuple[LoopVariable, ...]
    invariants: tuple[str, ...]
    condition: str
    ops: tuple[str, ...]

    @property
    def enters(self) -> tuple[str, ...]:
        """The Enter ops, of variables first."""
        return (*(one.enter for one in self.variables), *self.invariants)


def while_loop(graph: OpGraph, ops: Sequence[int]) -> WhileLoop | str:
    """The loop that these ops are, or why XLA cannot compile them as one.

    Args:
      graph: the graph.
      ops: all of an outermost loop.
    """
    types, names = graph.op_types, graph.op_names
    kinds: dict[str, list[int]] = {kind: [v for v in ops if types[v] == kind] for kind in LOOP_OPS}
    if len({graph.op_attrs[v].get("frame_name") for v in kinds["Enter"]}) != 1 or len(kinds["LoopCond"]) != 1:
        return "in a loop with loops in it"
    if found := [types[v] for v in ops if types[v] not in LOOP_OPS and not _can_be_inside(graph, v)]:
        return f"in a loop with {min(found)}"
    condition = kinds["LoopCond"][0]
    invariants = [v for v in kinds["Enter"] if graph.op_attrs[v].get("is_constant")]
    reads = {v: [int(graph.tensor_op[t]) for t in graph.inputs[v]] for kind in LOOP_OPS for v in kinds[kind]}
    switch_of = {reads[v][0]: v for v in kinds["Switch"] if reads[v][1:] == [condition]}
    exit_of = {reads[v][0]: v for v in kinds["Exit"]}
    variables = []
    for merge in kinds["Merge"]:
        before, switch = reads[merge], switch_of.get(merge)
        if [types[u] for u in before] != ["Enter", "NextIteration"] or switch is None:
            return "in a loop with branches"
        end = exit_of.get(switch)
        enter, merged, into, following = (names[v] for v in (before[0], merge, switch, before[1]))
        variables.append(LoopVariable(enter, merged, into, following, None if end is None else names[end]))
    if len(variables) + len(invariants) != len(kinds["Enter"]) or len(variables) != len(kinds["Switch"]):
        return "in a loop with branches"
    if len(exit_of) != len(kinds["Exit"]) or _mixes(graph, ops, condition):
        return "in a loop whose condition and body share ops"
    return WhileLoop(
        tuple(variables), tuple(names[v] for v in invariants), names[condition], tuple(names[v] for v in ops)
    )


def _mixes(graph: OpGraph, ops: Sequence[int], condition: int) -> bool:
    """Whether something of a loop's body reads what its condition is computed from."""
    of_condition: set[int] = set()
    todo = [condition]
    while todo:
        v = todo.pop()
        if v not in of_condition and not graph.replicable[v] and graph.op_types[v] != "Enter":
            of_condition.add(v)
            todo += [] if graph.op_types[v] == "Merge" else [int(graph.tensor_op[t]) for t in graph.inputs[v]]
    body = [v for v in ops if v not in of_condition and graph.op_types[v] not in LOOP_OPS]
    merges = {v for v in ops if graph.op_types[v] == "Merge"}
    return any(int(graph.tensor_op[t]) in of_condition | merges for v in body for t in graph.inputs[v])


def _can_be_inside(graph: OpGraph, v: int) -> bool:
    kind = graph.op_types[v]
    tensors = [*graph.inputs[v], *range(graph.op_tensors[v], graph.op_tensors[v + 1])]
    texts = any(graph.tensor_dtype[t] == "string" or graph.tensor_shape[t] is None for t in tensors)
    return not texts and (graph.replicable[v] or kind in LISTS or (kind in COMPILABLE and not kind.startswith(_WRITES)))


def loops_of(graph: OpGraph, loop: np.ndarray) -> dict[int, list[int]]:
    """Outermost loop -> its ops; `loop` [V] as in `ControlFlow`."""
    out: dict[int, list[int]] = {}
    for v in np.flatnonzero(loop >= 0).tolist():
        out.setdefault(int(loop[v]), []).append(v)
    return out
