"""Units in about as many layers as a method asks for, by scopes: what placing by hand and grouping by scope start from.

`tfplace.group.layer_ops` tells the layers that the model's author has named, however many there are.
"""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.passes import BACKWARD, REWRITTEN, is_backward
from tfplace.core.problem import Problem
from tfplace.group.flow import flow, mean_transfer_s

_MOST_LAYERS = 400
_WHOLE = 0.8
"""A scope with this part of all seconds is no layer but what holds the layers."""


def layers(problem: Problem, at_least: int, devices: IntArray, *, fewer: bool = False) -> IntArray:
    """[U] the layer of each unit, numbered in the order of the forward pass.

    A layer is what a name scope says it is. Backward ops carry the scope of their layer inside their own; ops of
    variables and optimizers join the layer whose variable or gradient they touch. Where names tell nothing, layers are
    chunks of units in the order in which an unlimited machine would start them.

    Args:
      problem: what is placed.
      at_least: the scopes are looked at deep enough to tell this many layers apart.
      devices: on which the order of the forward pass is that of their mean seconds.
      fewer: whether fewer layers that names tell apart are better than chunks.
    """
    src, dst, _ = unit_edges(problem)
    start = earliest_start(problem, devices)
    named = _by_scope(problem, at_least, fewer)
    if named is None:
        return _chunks(problem, start)
    return _in_order(problem, named, join_neighbours(named, src, dst), start)


def _by_scope(problem: Problem, at_least: int, fewer: bool) -> IntArray | None:
    """[U] an id of the layer in its members' scopes, -1 where there is none; None if names tell too little."""
    backward = [is_backward(name) for name in problem.graph.base_names]
    parts = scope_parts(problem)
    placed = (problem.grouping.unit_of >= 0).tolist()  # constants are copied to their readers and are in no layer
    most: tuple[list[str], list[str]] = [], []
    for depth in range(1, max(map(len, parts)) + 1):
        scopes = ["/".join(p[:depth]) if len(p) >= depth else "" for p in parts]
        known = {s for s, b, u in zip(scopes, backward, placed, strict=True) if not b and s and u}
        if any(backward):  # scopes without a gradient are no layers: optimizers, losses, metrics
            known &= {s for s, b in zip(scopes, backward, strict=True) if b}
        if len(known) >= max(at_least, 2) and _heaviest_share(problem, scopes, known) < _WHOLE:
            return vote(problem, scopes, sorted(known))
        if len(known) > len(most[1]):
            most = scopes, sorted(known)
    return vote(problem, *most) if fewer and len(most[1]) >= 2 else None


def _heaviest_share(problem: Problem, scopes: list[str], known: set[str]) -> float:
    """The largest part that one scope has of the seconds of all known ones: that of the model, beside its loss."""
    seconds = dict.fromkeys(known, 0.0)
    for scope, taken in zip(scopes, problem.costs.compute_s.mean(axis=1).tolist(), strict=True):
        if scope in known:
            seconds[scope] += taken
    return max(seconds.values()) / max(sum(seconds.values()), 1e-300)


def scope_parts(problem: Problem) -> list[list[str]]:
    """[V] the scope of each op, part by part from the outside in, without what marks the backward pass."""
    names = problem.graph.base_names
    parts = {name: name_parts(name)[:-1] for name in set(names)}  # slices share them
    return [parts[name] for name in names]


def name_parts(name: str) -> list[str]:
    """The parts of an op's name from the outside in, without what marks the backward pass.

    >>> name_parts("gradient_tape/net/dense/MatMul")
    ['net', 'dense', 'MatMul']
    """
    return BACKWARD.sub("", REWRITTEN.sub("", name)).split("/")


def vote(problem: Problem, scopes: list[str], known: list[str]) -> IntArray:
    """[U] for each unit the known scope in which it spends the most seconds; the first member's if none takes any."""
    ids = {scope: i for i, scope in enumerate(known)}
    seconds = problem.costs.compute_s.mean(axis=1)
    scope = np.array([ids.get(name, -1) for name in scopes], np.int64)
    ops = np.flatnonzero((problem.grouping.unit_of >= 0) & (scope >= 0))
    key = problem.grouping.unit_of[ops].astype(np.int64) * max(len(ids), 1) + scope[ops]
    once, earliest, of = np.unique(key, return_index=True, return_inverse=True)
    spent = np.bincount(of.reshape(-1), seconds[ops], len(once))
    label = np.full(problem.num_units, -1, np.int32)
    last_first = np.lexsort((earliest, -spent))[::-1]  # of equal ones the first member's is written last
    label[once[last_first] // max(len(ids), 1)] = once[last_first] % max(len(ids), 1)
    return label


def unit_edges(problem: Problem) -> tuple[IntArray, IntArray, FloatArray]:
    """Edges between different units and seconds a transfer along each takes, least first."""
    edges = flow(problem)
    src, dst = problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst]
    seconds = mean_transfer_s(problem, edges)
    order = np.argsort(seconds, kind="stable")
    order = order[src[order] != dst[order]]
    return src[order], dst[order], seconds[order]


def join_neighbours(label: IntArray, src: IntArray, dst: IntArray) -> IntArray:
    """Gives units without a label that of the neighbor they share the heaviest edge with, as often as it takes.

    Args:
      label: [U], -1 for none.
      src: producing units, by weight of the edge, lightest first, so that the last assignment counts.
      dst: consuming units.
    """
    label = label.copy()
    while True:
        before = label.copy()
        for near, far in ((dst, src), (src, dst)):
            rows = (before[near] < 0) & (label[far] >= 0)
            label[near[rows]] = label[far[rows]]
        if np.array_equal(before, label):
            return label


def earliest_start(problem: Problem, devices: IntArray) -> FloatArray:
    """[V] when each op could start with a device of its own and free transfers."""
    edges = flow(problem)
    seconds = problem.costs.compute_s[:, devices].mean(axis=1)
    start = np.zeros(problem.graph.num_ops)
    order = np.argsort(edges.dst, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(edges.dst[order])) + 1):
        if len(rows):
            start[edges.dst[rows[0]]] = (start[edges.src[rows]] + seconds[edges.src[rows]]).max()
    return start


def _forward(problem: Problem) -> BoolArray:
    """[V] ops that neither compute gradients nor depend on any: updates of variables come late whatever their layer."""
    late = np.array([is_backward(name) for name in problem.graph.base_names])
    edges = flow(problem)
    order = np.argsort(edges.dst, kind="stable")
    for src, dst in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        late[dst] |= late[src]
    return ~late


def _in_order(problem: Problem, named: IntArray, label: IntArray, start: FloatArray) -> IntArray:
    """Renumbers labels by the last start of their forward ops; what has no label joins layer 0.

    The first start or the mean would tell little: what a layer does beside its input, such as drawing the mask of a
    dropout, may start at once. Only units that names put into a layer count, not those that joined one.
    """
    unit_of = problem.grouping.unit_of
    ops = np.flatnonzero((unit_of >= 0) & _forward(problem))
    ops = ops[named[unit_of[ops]] >= 0]
    last = np.full(int(label.max()) + 1, -np.inf)
    np.maximum.at(last, label[unit_of[ops]], start[ops])
    place = np.empty(len(last), np.int32)
    place[np.argsort(last, kind="stable")] = np.arange(len(last))
    return np.where(label >= 0, place[label], 0).astype(np.int32)


def _chunks(problem: Problem, start: FloatArray) -> IntArray:
    """[U] layers of about equally many units, in the order of their first op's start."""
    first = np.array([start[ops].min() for ops in problem.grouping.members])
    place = np.empty(problem.num_units, np.int32)
    place[np.argsort(first, kind="stable")] = np.arange(problem.num_units)
    return (place * min(_MOST_LAYERS, problem.num_units) // problem.num_units).astype(np.int32)
