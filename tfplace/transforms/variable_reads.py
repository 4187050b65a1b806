"""Reads of variables: once for all, and before a loop instead of in it, so that neither need be where they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from tfplace.extraction.nodes import Nodes, parse_input

_CARRIES = ("Enter", "Identity")
_HANDLES = ("Placeholder", "VarHandleOp")
_RESOURCE = tf.resource.as_datatype_enum


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
        if before and _written_after(nodes, nodes.data_inputs[v][0][0], v):
            before = ()  # it has one value until then
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


def merge_reads(graph_def: Any, keep: Collection[str]) -> dict[str, str]:
    """Reads a variable that the step only reads once for all its readers, in place.

    Optimizers read the learning rate for every variable that they update; wherever those are owned, that is a message.

    Args:
      graph_def: a flat graph.
      keep: names of reads that must stay.

    Returns:
      Reads that were left out, and the one that is read instead.
    """
    nodes = Nodes(graph_def)
    same: dict[str, str] = {}
    for v in nodes.order:
        if nodes.types[v] not in _HANDLES or nodes.defs[v].attr["dtype"].type != _RESOURCE:
            continue
        readers = [reader for _, reader, _ in nodes.consumers[v]]
        if any(nodes.types[r] != "ReadVariableOp" or nodes.control_inputs[r] for r in readers):
            continue
        first = {nodes.defs[r].attr["dtype"].type: nodes.names[r] for r in reversed(readers)}
        same |= {nodes.names[r]: first[nodes.defs[r].attr["dtype"].type] for r in readers}
    others = {name: kept for name, kept in same.items() if name != kept and name not in keep}
    for node in graph_def.node:
        for i, text in enumerate(node.input):
            name, slot = parse_input(text)
            if name in others:
                node.input[i] = others[name] if slot >= 0 else f"^{others[name]}"
    kept_nodes = [node for node in graph_def.node if node.name not in others]
    if others:
        del graph_def.node[:]
        graph_def.node.extend(kept_nodes)
    return others


def _written_after(nodes: Nodes, handle: int, v: int) -> bool:
    """Whether whatever writes to a variable comes after an op."""
    seen, ahead = {v}, [v]
    while ahead:
        u = ahead.pop()
        for reader in (*(r for _, r, _ in nodes.consumers[u]), *nodes.control_consumers[u]):
            if reader not in seen:
                seen.add(reader)
                ahead.append(reader)
    return all(reader in seen or _only_reads(nodes, reader) for _, reader, _ in nodes.consumers[handle])


def _only_reads(nodes: Nodes, reader: int) -> bool:
    """Whether an op that is given a handle reads it, or brings it into a loop that does nothing but read it."""
    if nodes.types[reader] == "Enter":
        return bool(_inside(nodes, reader)[1])
    return nodes.types[reader] in ("ReadVariableOp", "VariableShape")


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
