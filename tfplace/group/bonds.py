"""What binds two ops to one device: a variable, a colocation of the program, or a rule of the user."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfplace.core.buffers import variable_of
from tfplace.core.graph import OpGraph


@dataclass(frozen=True)
class Bond:
    """Two ops and what binds them.

    Attributes:
      first: the name of one op.
      last: of the other.
      by: what binds them, in words.
    """

    first: str
    last: str
    by: str


def binding(
    graph: OpGraph, together: Mapping[str, Sequence[int]], first: Sequence[int], last: Sequence[int]
) -> Bond | None:
    """How any op of `first` is bound to any of `last`, by the fewest steps.

    Args:
      graph: the ops.
      together: ops that the user's rules join, by the rule's text.
      first: op indices.
      last: op indices.

    Returns:
      None if an op is in both, or nothing binds them.
    """
    ends = set(last)
    if ends & set(first):
        return None
    sets = _sets(graph, together)
    of: dict[int, list[int]] = {}
    for i, (_, ops) in enumerate(sets):
        for v in ops:
            of.setdefault(v, []).append(i)
    came: dict[int, tuple[int, int]] = {}  # op -> (op before it, set that binds the two)
    queue, seen = deque(first), set(first)
    while queue:
        v = queue.popleft()
        if v in ends:
            return _told(graph, sets, came, v)
        for i in of.get(v, ()):
            for u in sets[i][1]:
                if u not in seen:
                    seen.add(u)
                    came[u] = v, i
                    queue.append(u)
    return None


def _told(graph: OpGraph, sets: list[tuple[str, list[int]]], came: Mapping[int, tuple[int, int]], end: int) -> Bond:
    words, v = [], end
    while v in came:
        v, i = came[v]
        words.append(sets[i][0])
    return Bond(graph.op_names[v], graph.op_names[end], " and ".join(dict.fromkeys(reversed(words))))


def _sets(graph: OpGraph, together: Mapping[str, Sequence[int]]) -> list[tuple[str, list[int]]]:
    """What each bond is, and its ops; variables first, as a resource may stand for several."""
    handle = variable_of(graph)
    users: dict[int, list[int]] = {variable.op: [variable.op] for variable in graph.variables}
    for v, tensors in enumerate(graph.inputs):
        for variable in {int(handle[t]) for t in tensors} & users.keys():
            if graph.resource[v] >= 0 and graph.resource[v] == graph.resource[variable]:
                users[variable].append(v)
    out = [(f"variable {variable.name!r}", users[variable.op]) for variable in graph.variables]
    for labels, what in ((graph.resource, "a resource"), (graph.colocation, "a colocation of the program")):
        groups: dict[int, list[int]] = {}
        for v, label in enumerate(labels.tolist()):
            if label >= 0:
                groups.setdefault(label, []).append(v)
        out += [(what, ops) for ops in groups.values()]
    return out + [(f"the rule {rule}", list(ops)) for rule, ops in together.items()]
