"""Why a plan says what it says: two rows' critical paths, changes that were simulated, and where the layers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.explanation import Explanation, LayerUse, Side
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.plan import SEARCHED, Plan, PlanRow
from tfplace.report.waiting import path_of

ELSEWHERE = "(no layer)"
"""Ops of a loss, of metrics and of the batch, and what several layers share."""


def explain(plan: Plan) -> Explanation:
    """See `Plan.explain`.

    Raises:
      InputError: the plan was loaded from files.
    """
    # With numba, which a report without an explanation can do without.
    from tfplace.search.what_if import what_ifs

    row = plan.chosen
    changes, left_out = what_ifs(plan, row)
    other = None if row is None else _against(plan, row)
    return Explanation(
        chosen=None if row is None else _side(row),
        against=None if other is None else _side(other),
        changes=tuple(changes),
        left_out=tuple(left_out),
        layers=() if row is None or row.placement is None else layer_uses(row.placement),
    )


def _against(plan: Plan, row: PlanRow) -> PlanRow | None:
    """The best row of another way that needs no search."""
    others = [one for one in plan.rows if one.way not in (row.way, SEARCHED) and one.cost.feasible and not one.obstacle]
    able = [one for one in others if one.same_numbers or not plan.exact]
    return min(able, key=lambda one: one.cost.step_s, default=None)


def _side(row: PlanRow) -> Side:
    layers = {} if row.placement is None else _layer_seconds(row.placement)
    return Side(row.name, row.cost.step_s, row.waits, layers, row.bottleneck)


def _layer_seconds(placement: Placement) -> Mapping[str, float]:
    """Layer -> seconds of the critical path in which its ops compute, the longest first.

    The seconds of a cluster of a compiled step are shared by its ops as their costs are.
    """
    path = path_of(placement)
    if path is None or placement.problem is None:
        return {}
    graph = placement.problem.graph
    computes = path.src == path.dst
    of_vertex = np.zeros(graph.num_ops if path.vertex is None else int(path.vertex.max()) + 1)
    np.add.at(of_vertex, path.op[computes], path.seconds[computes])
    vertex = np.arange(graph.num_ops) if path.vertex is None else path.vertex
    costs = placement.problem.costs.compute_s[np.arange(graph.num_ops), placement.op_device]
    costs = np.where(graph.replicable, 0.0, costs)
    whole = np.bincount(vertex, costs, len(of_vertex))
    share = np.divide(costs, whole[vertex], out=np.zeros(graph.num_ops), where=whole[vertex] > 0)
    names, layer = innermost_layers(graph)
    seconds = np.bincount(layer, of_vertex[vertex] * share, len(names))
    order = np.argsort(-seconds, kind="stable")
    return {names[i]: float(seconds[i]) for i in order.tolist() if seconds[i] > 0}


def innermost_layers(graph: OpGraph) -> tuple[list[str], IntArray]:
    """Names of the layers, and [V] the innermost one of each op, the last for those of none."""
    names = [*graph.layers, ELSEWHERE]
    layer = np.full(graph.num_ops, len(names) - 1, np.int32)
    for i, ops in enumerate(graph.layers.values()):  # an outer layer comes before those within
        layer[ops] = i
    return names, layer


def layer_uses(placement: Placement) -> tuple[LayerUse, ...]:
    """Where the layers are, in the order of the forward pass; neighbors on the same devices are told together."""
    problem = placement.problem
    if problem is None or not problem.graph.layers:
        return ()
    graph, device = problem.graph, placement.op_device
    seconds = np.where(graph.replicable, 0.0, problem.costs.compute_s[np.arange(graph.num_ops), device])
    names, layer = innermost_layers(graph)
    found: list[LayerUse] = []
    for i, name in enumerate(names[:-1]):
        ops = np.flatnonzero((layer == i) & ~graph.replicable).astype(np.int32)
        if not len(ops):
            continue
        use = _use(placement, name, ops, float(seconds[ops].sum()))
        if found and found[-1].devices == use.devices:
            use = _together(found.pop(), use, placement.device_names)
        found.append(use)
    return tuple(found)


def _use(placement: Placement, name: str, ops: IntArray, seconds: float) -> LayerUse:
    """A layer with so many seconds by itself."""
    assert placement.problem is not None
    slices, device = placement.problem.graph.slices, placement.op_device
    if slices is None:
        devices: dict[str, tuple[int, ...]] = dict.fromkeys(_names(placement, device[ops]), ())
        return LayerUse((name,), devices, (), seconds)
    slice_of = slices.slice_of[ops]
    pairs = np.unique(np.stack([device[ops], slice_of])[:, slice_of >= 0], axis=1)
    devices = {}
    for d, k in pairs.T.tolist():
        where = placement.device_names[d]
        devices[where] = (*devices.get(where, ()), k)
    return LayerUse((name,), devices, _names(placement, device[ops][slice_of < 0]), seconds)


def _names(placement: Placement, devices: IntArray) -> tuple[str, ...]:
    return tuple(placement.device_names[d] for d in np.unique(devices).tolist())


def _together(first: LayerUse, second: LayerUse, device_names: Sequence[str]) -> LayerUse:
    """Two layers on the same devices, as one."""
    owners = tuple(name for name in device_names if name in {*first.owners, *second.owners})
    return LayerUse((*first.layers, *second.layers), first.devices, owners, first.seconds + second.seconds)
