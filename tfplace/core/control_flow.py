"""Loops and branches of a flat graph: which ops cannot wait, and for which nothing can.

A lowered `tf.while_loop` is entered by Enter and left by Exit, a branch by Switch and Merge (Yu et al., "Dynamic
Control Flow in Large-Scale Machine Learning", EuroSys 2018, section 3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import BoolArray, IntArray, freeze
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept

_SWITCHES = {"Switch", "RefSwitch", "_SwitchN"}
_MERGES = {"Merge", "RefMerge"}
_ENTERS = {"Enter", "RefEnter"}
_EXITS = {"Exit", "RefExit"}
_LOOP, _BRANCH = "l", "b"

ARGUMENTS = frozenset({"_Arg", "Placeholder", "PlaceholderWithDefault", "VarHandleOp", "VariableV2", "Variable"})
"""Arguments and state, which are there before the step: a function's arguments cannot wait for anything."""


class ControlFlow(NamedTuple):
    """Where ops are in a graph's loops and branches.

    Attributes:
      in_loop: [V] the op runs in turns of a loop, where it cannot wait for anything outside. Enter ops do not yet.
      always_ends: [V] the op gives its results once, whatever branch is taken, so that others can wait for it. Exit and
        Merge ops of an outermost loop or branch do.
      loop: [V] the outermost loop that the op belongs to, its Enter and Exit ops included; -1 for none.
    """

    in_loop: BoolArray
    always_ends: BoolArray
    loop: IntArray


@kept
def control_flow(graph: OpGraph) -> ControlFlow:
    """Finds loops and branches by the ops that they begin and end with."""
    inside, behind = _contexts(graph)
    in_loop = np.array([_LOOP in context for context in inside], bool)
    goes_on = np.array([_LOOP in context for context in behind], bool)
    of_loop = in_loop | goes_on
    edges = goes_on[graph.edge_src] & of_loop[graph.edge_dst]
    src, dst = graph.edge_src[edges], graph.edge_dst[edges]
    joined = coo_array((np.ones(len(src), np.int8), (src, dst)), shape=(graph.num_ops, graph.num_ops))
    loop = connected_components(joined.tocsr(), directed=False)[1]
    ends = np.array([not context for context in behind], bool)
    loops = np.where(of_loop, loop, -1).astype(np.int32)
    return ControlFlow(freeze(in_loop), freeze(ends), freeze(loops))


def idle_constants(graph: OpGraph, flow: ControlFlow) -> BoolArray:
    """[V] copied constants that need not wait for what their control inputs say.

    Grappler has a constant that it folded wait for what it was computed from. In a split step, that is the ops of all
    slices, which would meet there in every layer that normalizes. Left as they are: those in loops and branches, which
    run when their turn or branch does, and those of whole steps, where a constant in a file may be all that an
    assignment is run by.
    """
    if graph.slices is None:
        return np.zeros(graph.num_ops, bool)
    return graph.replicable & flow.always_ends & ~flow.in_loop


def _contexts(graph: OpGraph) -> tuple[list[str], list[str]]:
    """[V] the loops and branches that each op is in, outermost first, and [V] those that its outputs are in."""
    inside, behind = [""] * graph.num_ops, [""] * graph.num_ops
    if not (_SWITCHES | _ENTERS).intersection(graph.op_types):
        return inside, behind
    producers: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for u, v, back in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_back.tolist(), strict=True):
        if not back:
            producers[v].append(u)
    for v, kind in enumerate(graph.op_types):
        inside[v] = max((behind[u] for u in producers[v]), key=len, default="")
        behind[v] = _behind(kind, inside[v])
    return inside, behind


def _behind(kind: str, inside: str) -> str:
    if kind in _ENTERS:
        return inside + _LOOP
    if kind in _EXITS:
        return inside[: max(inside.rfind(_LOOP), 0)]
    if kind in _SWITCHES:
        return inside + _BRANCH
    return inside.removesuffix(_BRANCH) if kind in _MERGES else inside
