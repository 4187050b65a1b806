"""Moves reads of variables out of loops, so that a loop need not run where its variables are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tfplace.extraction.nodes import Nodes

_CARRIES = ("Enter", "Identity")
_HANDLES = ("Placeholder", "VarHandleOp")


def hoist_reads(graph_def: Any) -> int:
    """Reads what a loop only reads once before the loop, in place.

    Keras's recurrent layers read their kernels in every iteration. A read is bound to the variable's device, so a loop
    elsewhere would be sent the kernel in every iteration. What brought the handle into the loop brings the value
    instead, under the same name, as other ops of the loop may wait for it.

    Args:
      graph_def: a flat graph.

    Returns:
      How many reads were moved.
    """
    if not any(node.op == "Enter" for node in graph_def.node):
        return 0
    nodes = Nodes(graph_def)
    values: dict[tuple[str, tuple[str, ...]], str] = {}
    moved = 0
    for v in nodes.order:
        if nodes.types[v] != "Enter" or nodes.types[nodes.data_inputs[v][0][0]] not in _HANDLES:
            continue
        carriers, reads = _inside(nodes, v)
        dtypes = {nodes.defs[read].attr["dtype"].type for read in reads}
        if len(dtypes) != 1:
            continue  # it is not only read, or not at all
        dtype = dtypes.pop()
        handle = nodes.names[nodes.data_inputs[v][0][0]]
        before = tuple(text for text in nodes.defs[v].input if text.startswith("^"))
        if (handle, before) not in values:
            read = graph_def.node.add()
            read.CopyFrom(nodes.defs[reads[0]])
            read.name = _free(f"{handle.removesuffix('/resource')}/before_loop", nodes, values.values())
            del read.input[:]
            read.input.extend([handle, *before])
            values[handle, before] = read.name
        nodes.defs[v].input[0] = values[handle, before]
        for carrier in carriers:
            nodes.defs[carrier].attr["T"].type = dtype
        for v_read in reads:
            node = nodes.defs[v_read]
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
        moved += len(reads)
    return moved


def _inside(nodes: Nodes, v: int) -> tuple[list[int], list[int]]:
    """The ops that carry a handle on from where it enters a loop, and those that read it; none if others use it."""
    carriers, reads, ahead = [v], [], [v]
    while ahead:
        u = ahead.pop()
        if nodes.types[u] == "Enter" and not nodes.defs[u].attr["is_constant"].b:
            return [], []
        for _, reader, _ in nodes.consumers[u]:
            if nodes.types[reader] == "ReadVariableOp":
                reads.append(reader)
            elif nodes.types[reader] in _CARRIES:
                carriers.append(reader)
                ahead.append(reader)
            else:
                return [], []
    return carriers, reads


def _free(name: str, nodes: Nodes, taken: Collection[str]) -> str:
    while name in nodes.index or name in taken:
        name += "_"
    return name
