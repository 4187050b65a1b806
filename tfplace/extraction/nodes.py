"""Nodes: a flat GraphDef with its inputs parsed, in a topological order."""

from __future__ import annotations

import heapq
from functools import cached_property
from typing import Any

from tfplace.errors import SourceError, UnknownOpsError
from tfplace.extraction.tf_internals import op_def

LOOP_BACK = frozenset({"NextIteration", "RefNextIteration"})


class Nodes:
    """The nodes of a flat `GraphDef`, indexed in a deterministic topological order (loop back edges left out).

    Attributes:
      defs: [V] `NodeDef`s.
      names: [V].
      types: [V] op types.
      index: name -> position.
      data_inputs: [V] lists of (producer, output slot), by input position.
      control_inputs: [V] lists of producers, ascending, without repeats.
    """

    def __init__(self, graph_def: Any) -> None:
        if not graph_def.node:
            raise SourceError("a graph without ops", "a graph with at least one op")
        unregistered = sorted({n.op for n in graph_def.node if op_def(n.op) is None} - set(_functions(graph_def)))
        if unregistered:
            raise UnknownOpsError(unregistered)
        raw = {node.name: node for node in graph_def.node}
        order = _topological(raw)
        self.defs = [raw[name] for name in order]
        self.names = order
        self.types = [node.op for node in self.defs]
        self.index = {name: v for v, name in enumerate(order)}
        self.data_inputs: list[list[tuple[int, int]]] = []
        self.control_inputs: list[list[int]] = []
        for node in self.defs:
            data, control = [], set()
            for text in node.input:
                producer, slot = parse_input(text)
                if slot < 0:
                    control.add(self.index[producer])
                else:
                    data.append((self.index[producer], slot))
            self.data_inputs.append(data)
            self.control_inputs.append(sorted(control))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def order(self) -> range:
        """All positions: the order is topological already."""
        return range(len(self.names))

    def is_back_edge(self, producer: int, consumer: int) -> bool:
        """Whether the edge closes a loop."""
        return self.types[producer] in LOOP_BACK and self.types[consumer] in ("Merge", "RefMerge")

    def producers(self, v: int) -> list[int]:
        """Producers of v's data inputs, then of its control inputs."""
        return [*(u for u, _ in self.data_inputs[v]), *self.control_inputs[v]]

    def forward_producers(self, v: int) -> list[int]:
        """Producers of v's data and control inputs, loop back edges left out."""
        return [u for u in self.producers(v) if not self.is_back_edge(u, v)]

    @cached_property
    def consumers(self) -> list[list[tuple[int, int, int]]]:
        """[V] lists of (output slot, consumer, input position)."""
        out: list[list[tuple[int, int, int]]] = [[] for _ in self.names]
        for v, inputs in enumerate(self.data_inputs):
            for position, (u, slot) in enumerate(inputs):
                out[u].append((slot, v, position))
        return out

    @cached_property
    def control_consumers(self) -> list[list[int]]:
        """[V] lists of the consumers that wait for an op."""
        out: list[list[int]] = [[] for _ in self.names]
        for v, inputs in enumerate(self.control_inputs):
            for u in inputs:
                out[u].append(v)
        return out


def parse_input(text: str) -> tuple[str, int]:
    """A NodeDef input as (producer, output slot); slot -1 for a control input.

    Raises:
      SourceError: it is none.

    >>> parse_input("^a"), parse_input("b:2"), parse_input("c")
    (('a', -1), ('b', 2), ('c', 0))
    """
    control = text.startswith("^")
    name, colon, slot = text.removeprefix("^").partition(":")
    if not name or (colon and (control or not slot.isascii() or not slot.isdecimal() or len(slot) > 9)):
        raise SourceError(f"input {text[:80]!r}", "'op', 'op:number' or '^op'")
    return name, -1 if control else int(slot or 0)


def _functions(graph_def: Any) -> list[str]:
    return [f.signature.name for f in graph_def.library.function]


def _topological(raw: dict[str, Any]) -> list[str]:
    """Kahn's algorithm; of the ready ops the one that stands first in the GraphDef goes first."""
    names = list(raw)
    position = {name: i for i, name in enumerate(names)}
    waiting = dict.fromkeys(names, 0)
    consumers: dict[str, list[str]] = {name: [] for name in names}
    for name, node in raw.items():
        for text in node.input:
            producer, _ = parse_input(text)
            if producer not in raw:
                raise SourceError(f"op {name!r} with input {text!r}, which is not in the graph", "a complete graph")
            if raw[producer].op in LOOP_BACK and node.op in ("Merge", "RefMerge"):
                continue
            waiting[name] += 1
            consumers[producer].append(name)
    ready = [position[name] for name, n in waiting.items() if n == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for consumer in consumers[name]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, position[consumer])
    if len(order) < len(names):
        stuck = next(name for name in names if waiting[name] > 0)
        raise SourceError(f"a graph with a cycle through {stuck!r}", "a graph whose only cycles are tf.while_loop's")
    return order
