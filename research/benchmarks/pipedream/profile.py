"""Reads PipeDream's layer profiles and lists the states between which their stages are cut."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfplace.errors import SourceError
from tfplace.schedule.pipeline.replicated import States

_NODE = re.compile(
    r"(?P<id>\S+) -- (?P<kind>.*) -- forward_compute_time=(?P<forward>\S+), backward_compute_time=(?P<backward>\S+), "
    r"activation_size=(?P<activation>[^,]+), parameter_size=(?P<parameter>\S+?)( -- stage_id=\d+)?"
)
_EDGE = re.compile(r"(\S+) -- (\S+)")
_EXPECTED = (
    "lines 'ID -- DESCRIPTION -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, "
    "parameter_size=BYTES', and indented lines 'ID -- ID'"
)


@dataclass(frozen=True)
class Node:
    """An op of a profile.

    Attributes:
      kind: its description, such as "ReLU(inplace)".
      seconds: forward and backward.
      activation_bytes: of its outputs.
      parameter_bytes: of its weights.
    """

    kind: str
    seconds: float
    activation_bytes: float
    parameter_bytes: float


@dataclass(frozen=True)
class LayerProfile:
    """Ops of a model, measured on one device.

    Attributes:
      nodes: [V] in the file's order.
      edges: (producer, consumer) by index.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]


def read_profile(path: Path) -> LayerProfile:
    """A file in the format of github.com/msr-fiddle/pipedream.

    Raises:
      SourceError: it is not there, a line is damaged, an edge has an unknown end, or the edges have a cycle.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{str(path)!r} ({error})", "a text file of a layer profile") from error
    index: dict[str, int] = {}
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        where = f"{line.strip()!r} in line {number} of {str(path)!r}"
        if not line.strip():
            continue
        if not line[0].isspace():
            name, node = _node(line.strip(), where)
            if name in index:
                raise SourceError(f"a second {name!r}: {where}", "one line per node")
            index[name] = len(nodes)
            nodes.append(node)
            continue
        ends = _EDGE.fullmatch(line.strip())
        if ends is None or not {*ends.groups()} <= index.keys():
            raise SourceError(f"an edge {where}", "'ID -- ID' of nodes in lines before")
        edges.append((index[ends[1]], index[ends[2]]))
    if not nodes:
        raise SourceError(f"{str(path)!r} without nodes", _EXPECTED)
    _predecessors(len(nodes), edges, str(path))
    return LayerProfile(tuple(nodes), tuple(edges))


def _node(line: str, where: str) -> tuple[str, Node]:
    found = _NODE.fullmatch(line)
    try:
        if found is None:
            raise ValueError
        outputs = [float(size) for size in found["activation"].strip("[]").split(";")]
        forward, backward, parameters = (float(found[what]) for what in ("forward", "backward", "parameter"))
        if not np.all(np.isfinite([forward, backward, parameters, *outputs])):
            raise ValueError
        if min(forward, backward, parameters, *outputs) < 0:
            raise ValueError
    except ValueError:
        raise SourceError(where, _EXPECTED, "Numbers are finite and at least 0.") from None
    return found["id"], Node(found["kind"], (forward + backward) / 1e3, sum(outputs), parameters)


def states_of(profile: LayerProfile) -> States:
    """The states of PipeDream's programme: each is an antichain of ops with all that comes before them.

    They begin with the first op without predecessors; each other one adds a direct successor of an op in it, with all
    that comes before that one. Inputs, and outputs of a tuple that nothing reads, are left out. A state's output is
    what its last ops make, and what any other op makes that has a reader elsewhere than before the same last op, though
    all its readers may be in the state; that is more than what is sent.
    """
    nodes, edges = _kept(profile)
    before = _predecessors(len(nodes), edges, "a profile")
    after: list[list[int]] = [[] for _ in nodes]
    for a, b in edges:
        after[a].append(b)
    entered = {b for _, b in edges}
    first = next(v for v in range(len(nodes)) if v not in entered)
    found, queue = {1 << first: None}, [1 << first]
    for state in queue:  # grows meanwhile
        for b in {b for a in _members(state) for b in after[a] if not state >> b & 1}:
            larger = state | before[b] | 1 << b
            if larger not in found:
                found[larger] = None
                queue.append(larger)
    sets = sorted(found, key=int.bit_count)
    columns = np.array([(n.seconds, n.parameter_bytes, n.activation_bytes) for n in nodes])
    member = np.array([[state >> v & 1 for v in range(len(nodes))] for state in sets], np.float64)
    output = [_output(state, before, after) for state in sets]
    common = member @ member.T
    size = member.sum(axis=1)
    return States(
        seconds=member @ columns[:, 0],
        parameter_bytes=member @ columns[:, 1],
        output_bytes=np.array([columns[made, 2].sum() for made in output]),
        within=(common == size[:, None]) & (size[:, None] < size),
    )


def _output(state: int, before: list[int], after: list[list[int]]) -> list[int]:
    members = _members(state)
    inner = 0
    for v in members:
        inner |= before[v]
    out = {v for v in members if not inner >> v & 1}
    for last in tuple(out):
        out |= {v for v in _members(before[last]) if any(b != last and not before[last] >> b & 1 for b in after[v])}
    return sorted(out)


def _kept(profile: LayerProfile) -> tuple[list[Node], list[tuple[int, int]]]:
    read, entered = {a for a, _ in profile.edges}, {b for _, b in profile.edges}
    inputs = {v for v, n in enumerate(profile.nodes) if v not in entered and n.kind.startswith("Input")}
    unread = {v for v, n in enumerate(profile.nodes) if v not in read and n.kind.startswith("__getitem__")}
    kept = [v for v in range(len(profile.nodes)) if v not in inputs | unread]
    index = {v: i for i, v in enumerate(kept)}
    edges = [(index[a], index[b]) for a, b in profile.edges if a in index and b in index]
    return [profile.nodes[v] for v in kept], edges


def _members(state: int) -> list[int]:
    return [v for v in range(state.bit_length()) if state >> v & 1]


def _predecessors(count: int, edges: list[tuple[int, int]] | tuple[tuple[int, int], ...], where: str) -> list[int]:
    """[V] all that comes before each node, as the bits of a number.

    Raises:
      SourceError: the edges have a cycle.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waiting, before = [0] * count, [0] * count
    for a, b in edges:
        after[a].append(b)
        waiting[b] += 1
    ready = [v for v in range(count) if not waiting[v]]
    for a in ready:  # grows meanwhile
        for b in after[a]:
            before[b] |= before[a] | 1 << a
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    if len(ready) < count:
        raise SourceError(f"edges with a cycle in {where}", "edges from earlier to later ops")
    return before
