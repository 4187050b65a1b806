"""A placement for the same step with another batch size, such as the last batch of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.graph import OpGraph
from tfplace.core.placement import FREE, Placement
from tfplace.errors import PlacementError
from tfplace.extraction.function import FunctionOrigin


def placement_for_other_batch(placement: Placement, placed: OpGraph, graph: OpGraph) -> Placement:
    """Devices and phases of the ops that both graphs have; variables stay, other ops go where their slice is.

    What it costs is not told anew: cost and bound are those of the placement that is given.

    Args:
      placement: of the first graph.
      placed: that graph.
      graph: the same program's step with another batch size, in as many slices or fewer.

    Raises:
      PlacementError: one of them is of no program in this process.
    """
    device = dict(zip(placement.op_names, placement.op_device.tolist(), strict=True))
    home = {id(v): device[op] for op, v in _variables(placed).items()}
    bonds: dict[int, int] = {}
    handles: dict[str, int] = {}
    for op, variable in _variables(graph).items():
        handles[op] = home.get(id(variable), 0)
        bond = int(graph.resource[graph.index[op]])
        if bond >= 0:
            bonds[bond] = handles[op]
    first = _slice_devices(placement, placed)
    chosen = np.zeros(graph.num_ops, np.int32)
    for v, name in enumerate(graph.op_names):
        k = -1 if graph.slices is None else int(graph.slices.slice_of[v])
        known = device.get(name, device.get(f"slice0/{name}", first[k] if k >= 0 else first[0]))
        chosen[v] = bonds.get(int(graph.resource[v]), handles.get(name, known))
    phases = None if graph.slices is None else _phases(placement, graph)
    return replace(
        placement,
        op_names=graph.op_names,
        op_device=chosen,
        phases=phases,
        order=FREE if phases is None else placement.order,
        graph_fingerprint=graph.fingerprint,
        problem_fingerprint="",
        problem=None,
    )


def _phases(placement: Placement, graph: OpGraph) -> IntArray | None:
    """[V] the phases of the ops by name, -1 for those of the other graph alone; None where none are kept."""
    if placement.phases is None:
        return None
    known = dict(zip(placement.op_names, placement.phases.tolist(), strict=True))
    return np.array([known.get(name, -1) for name in graph.op_names], np.int32)


def _variables(graph: OpGraph) -> Mapping[str, object]:
    if not isinstance(graph.origin, FunctionOrigin):
        raise PlacementError(f"graph {graph.name!r} without a program", "a graph extracted in this process")
    return graph.origin.variables()


def _slice_devices(placement: Placement, graph: OpGraph) -> list[int]:
    """The device that has most ops of each slice; of all ops for a step that is not split."""
    count = len(placement.device_names)
    if graph.slices is None:
        return [int(np.bincount(placement.op_device, minlength=count).argmax())]
    of = graph.slices.slice_of
    return [int(np.bincount(placement.op_device[of == k], minlength=count).argmax()) for k in range(of.max() + 1)]
