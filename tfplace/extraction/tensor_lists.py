"""How much memory TensorLists take when they are full.

A list holds tensors, not copies: what is pushed twice, to one list or to two, lies in memory once, and what a loop
reads in every turn (a variable, or anything made before it) once for all turns. A loop's gradient pushes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfplace.core.buffers import READS, aliased_input, writes_rows
from tfplace.extraction.nodes import LOOP_BACK, Nodes
from tfplace.extraction.shapes import LIST_POP, LIST_PUSH, Properties, element_bytes, list_families

_NEW_LISTS = {"TensorListReserve", "EmptyTensorList", "TensorListFromTensor"}


def list_bytes(nodes: Nodes, properties: Properties, trips: Any) -> dict[str, int]:
    """Bytes that each TensorList holds when full, by the names of the ops on it.

    Of a tensor that several lists hold, only one counts it: one that is popped from, since that is held the longest. A
    list that is made anew in each turn of an outer loop has its share of them.

    Args:
      nodes: the flat graph.
      properties: of its tensors.
      trips: [V] executions of each op.
    """
    families = {id(family): family for family in list_families(nodes).values()}
    popped = {key for key, family in families.items() if any(nodes.types[v] in LIST_POP for v in family)}
    buffers = _Buffers(nodes)
    counted: set[tuple[int, int]] = set()
    full: dict[str, int] = {}
    for key in sorted(families, key=lambda key: key not in popped):  # stable
        family = families[key]
        known = [nodes.names[v] for v in family if nodes.names[v] in properties.list_element]
        if not known:
            continue
        element = properties.list_element[known[0]]
        size = int(np.prod(element.shape or (), dtype=np.int64)) * element_bytes(element.dtype)
        made = max((float(trips[v]) for v in family if nodes.types[v] in _NEW_LISTS), default=1.0)
        pushes = [v for v in family if nodes.types[v] in LIST_PUSH]
        if pushes:
            held = 0.0
            for v in pushes:
                source = buffers.of(nodes.data_inputs[v][LIST_PUSH[nodes.types[v]]])
                if source is not None and source not in counted:
                    counted.add(source)
                    held += min(float(trips[source[0]]), float(trips[v]))
        else:
            held = max(float(trips[v]) for v in family)
        full |= dict.fromkeys(known, int(size * held / made))
    return full


class _Buffers:
    """Where the memory of tensors was allocated, loops included."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._found: dict[tuple[int, int], tuple[int, int] | None] = {}
        writers = (v for v, kind in enumerate(nodes.types) if writes_rows(kind))
        self._written = {self._handle(t) for v in writers for t in nodes.data_inputs[v]}

    def of(self, tensor: tuple[int, int]) -> tuple[int, int] | None:
        """The output that a tensor is, or is passed on from; None if that is a variable, which has memory already."""
        path: dict[tuple[int, int], None] = {}
        start = tensor
        while start not in self._found and start not in path:
            path[start] = None
            op, slot = start
            if self._nodes.types[op] in ("Merge", "RefMerge"):
                start = self._turned(op, path)
                continue
            if self._nodes.types[op] == READS:
                copies = self._handle(self._nodes.data_inputs[op][0]) in self._written
                self._found[start] = start if copies else None
                break
            position = aliased_input(self._nodes.types[op], slot)
            if position is None or position >= len(self._nodes.data_inputs[op]):
                self._found[start] = start
                break
            start = self._nodes.data_inputs[op][position]
        found = self._found.get(start, start)
        self._found |= dict.fromkeys(path, found)
        return found

    def _turned(self, merge: int, path: Mapping[tuple[int, int], None]) -> tuple[int, int]:
        """What a loop variable was made by in the turn before; what entered the loop, if no turn changes it."""
        inputs = self._nodes.data_inputs[merge]
        back = [t for t in inputs if self._nodes.types[t[0]] in LOOP_BACK]
        entering = [t for t in inputs if t not in back]
        if not back:
            return entering[0]
        return entering[0] if self._comes_back(back[0], merge) else back[0]

    def _comes_back(self, tensor: tuple[int, int], merge: int) -> bool:
        """Whether a tensor is what the op merges, passed on."""
        seen = set()
        while tensor not in seen:
            seen.add(tensor)
            op, slot = tensor
            if op == merge:
                return True
            position = aliased_input(self._nodes.types[op], slot)
            if position is None or position >= len(self._nodes.data_inputs[op]):
                return False
            tensor = self._nodes.data_inputs[op][position]
        return False

    def _handle(self, tensor: tuple[int, int]) -> tuple[int, int]:
        """Where the handle comes from that a tensor is."""
        seen = set()
        while tensor not in seen:
            seen.add(tensor)
            position = aliased_input(self._nodes.types[tensor[0]], tensor[1])
            if position is None or not self._nodes.data_inputs[tensor[0]]:
                break
            tensor = self._nodes.data_inputs[tensor[0]][position]
        return tensor
