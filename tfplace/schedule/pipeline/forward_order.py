"""Where the units of a split step stand along its forward pass, so that a stage of a pipeline is a range of places."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, numbered
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.flow import Flow, flow, spread_labels
from tfplace.group.forward import AFTER, BACKWARD, FORWARD, passes_of
from tfplace.group.slots import slots_of
from tfplace.schedule.pipeline.layer_order import components, layer_order, neighbors

_SCALAR = 8
"""Bytes: what is no larger may be the size of a variable by chance."""


def forward_places(problem: Problem, slices: Slices) -> IntArray:
    """[U] the place of each unit along the forward pass, from 0 on.

    All copies of an op, what adds them up or puts them together, a loop, and what is bound to one variable are one
    node. Nodes of the forward pass that depend on a slice are in one topological order that keeps branches and layers
    together, also layers that are unrolled in time. All else is where it is needed:

    - what they read that does not depend on a slice, such as variables and inputs, with its first reader,
    - an optimizer's slot with its weight,
    - a backward op with the last of: forward ops that it reads, backward ops that read it, and the variable that is
      updated by it; without the last two it would come too early where what it reads is an earlier op's result, as the
      gradient of a convolution's kernel does,
    - what follows on backward ops, such as an update, with the neighbor that it shares the most bytes with.

    Names only tell which ops are backward ones; see `tfplace.group.forward`.

    Args:
      problem: of a split step.
      slices: of its graph.
    """
    edges, part = flow(problem), passes_of(problem).copy()
    node = _nodes(problem, slices, edges)
    _between(part, edges)
    onward = (part[edges.src] == FORWARD) & (part[edges.dst] == FORWARD)
    body = np.where(_sliced(part, slices, edges) & (problem.grouping.unit_of >= 0), node, -1)
    place = np.full(int(node.max()) + 1, -1, np.int32)
    placed, there = layer_order(body, edges.src[onward], edges.dst[onward], _layer(problem))
    place[placed] = there
    _with_first_reader(place, node, part, edges)
    for slot, weight in slots_of(problem.graph).items():
        if place[node[slot]] < 0:
            place[node[slot]] = place[node[weight]]
    updating = _with_weight(problem, place, node, part, edges)
    _backward(place, node, part, edges, updating)
    spread_labels(place, node[edges.src], node[edges.dst], edges)
    return np.maximum(problem.gather(place[node]), 0).astype(np.int32)


def _between(part: IntArray, edges: Flow) -> None:
    """Makes ops that follow on backward ones and that backward ones follow on, such as sums of gradients, backward."""
    order = np.argsort(-edges.src, kind="stable")
    for a, b in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        if part[a] == AFTER and part[b] == BACKWARD:
            part[a] = BACKWARD


def _nodes(problem: Problem, slices: Slices, edges: Flow) -> IntArray:
    """[V] the node of each op."""
    graph, unit = problem.graph, problem.grouping.unit_of
    back = graph.edge_back
    src, dst = np.append(edges.src, graph.edge_src[back]), np.append(edges.dst, graph.edge_dst[back])
    loop = components(graph.num_ops, src, dst, "strong")
    original = numbered(slices.original)
    mine = np.flatnonzero(unit >= 0)
    labels = (unit[mine], original[mine], loop[mine])
    starts = np.cumsum([graph.num_ops, *(int(label.max(initial=-1)) + 1 for label in labels)])
    shared = np.concatenate([label + start for label, start in zip(labels, starts, strict=False)])
    return components(int(starts[-1]), np.tile(mine, 3), shared, "weak")[: graph.num_ops]


def _sliced(part: IntArray, slices: Slices, edges: Flow) -> BoolArray:
    """[V] forward ops that depend on a slice."""
    out: BoolArray = (part == FORWARD) & (slices.slice_of >= 0)
    order = np.argsort(edges.src, kind="stable")
    for a, b in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        if out[a] and part[b] == FORWARD:
            out[b] = True
    return out


def _layer(problem: Problem) -> IntArray:
    """[V] the innermost layer of each op, numbers of their own for ops in none."""
    graph = problem.graph
    out = np.arange(graph.num_ops, dtype=np.int32)
    for i, ops in enumerate(sorted(graph.layers.values(), key=len, reverse=True)):
        out[ops] = graph.num_ops + i
    return out


def _with_first_reader(place: IntArray, node: IntArray, part: IntArray, edges: Flow) -> None:
    """Gives nodes of forward ops without a place that of what first reads them."""
    first = np.where(place[node] >= 0, place[node], np.iinfo(np.int32).max)
    order = np.argsort(-edges.src, kind="stable")
    for a, b in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        if part[a] == FORWARD and part[b] == FORWARD:
            first[a] = min(first[a], first[b])
    found = np.full(len(place), np.iinfo(np.int32).max)
    np.minimum.at(found, node, first)
    free = (place < 0) & (found < np.iinfo(np.int32).max)
    place[free] = found[free]


def _with_weight(problem: Problem, place: IntArray, node: IntArray, part: IntArray, edges: Flow) -> IntArray:
    """[V] the place of the variable that an op's result updates, -1 for none.

    Results are followed back as long as they have as many bytes as the variable. Thus a gradient is with its weight,
    though all gradients may be read for their norm, too. Nodes of what follows on backward ops get the place.
    """
    sizes: dict[int, set[float]] = {}
    for variable in problem.graph.variables:
        if variable.size_bytes > _SCALAR:
            sizes.setdefault(int(node[variable.op]), set()).add(float(variable.size_bytes))
    reached: dict[int, tuple[int, float]] = {}  # op -> the place, bytes of the variable
    order = np.argsort(-edges.src, kind="stable")
    rows = (edges.src[order].tolist(), edges.dst[order].tolist(), edges.size_bytes[order].tolist())
    for a, b, size in zip(*rows, strict=True):
        at = int(place[node[b]])
        if part[a] != FORWARD and part[b] == AFTER and at >= 0 and size in sizes.get(int(node[b]), ()):
            reached.setdefault(a, (at, size))
        elif b in reached and reached[b][1] == size and part[a] != FORWARD:
            reached.setdefault(a, reached[b])
    out = np.full(len(node), -1, np.int32)
    for v, (at, _) in reached.items():
        out[v] = at
        if part[v] == AFTER and place[node[v]] < 0:
            place[node[v]] = at
    return out


def _backward(place: IntArray, node: IntArray, part: IntArray, edges: Flow, updating: IntArray) -> None:
    """Gives nodes of backward ops a place.

    Args:
      place: [N] of nodes.
      node: [V] of ops.
      part: [V] of the step.
      edges: between ops.
      updating: [V] the place of the variable that an op's result updates, or -1.
    """
    own, bare = place[node].tolist(), []
    before, after = neighbors(len(node), edges.dst, edges.src), neighbors(len(node), edges.src, edges.dst)
    for v in range(len(node) - 1, -1, -1):
        if part[v] == BACKWARD and own[v] < 0:
            read = [own[u] for u in before[v] if part[u] == FORWARD]
            own[v] = max([int(updating[v]), *read, *(own[u] for u in after[v] if part[u] == BACKWARD)])
            bare += [v] if not read and updating[v] < 0 else []
    taken, made = (np.bincount(ends, edges.size_bytes, len(node)) for ends in (edges.dst, edges.src))
    giver = np.full(len(node), -1, np.int32)  # of most of what an op takes
    order = np.argsort(edges.size_bytes, kind="stable")
    giver[edges.dst[order]] = edges.src[order]
    for v in bare[::-1]:
        if taken[v] >= made[v] and giver[v] >= 0:  # what there is less of is sent
            own[v] = max(own[v], own[giver[v]])
    found = np.full(len(place), -1, np.int32)
    mine = part == BACKWARD
    np.maximum.at(found, node[mine], np.array(own, np.int32)[mine])
    free = place < 0
    place[free] = found[free]
