"""Who owns the variables of a split step, and who takes its slices, where several devices work with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.errors import InputError

_LOOKUPS = frozenset({"Gather", "GatherNd", "GatherV2"})
"""Op types that take rows from their first input; those that take them from a variable are bound to it anyway."""


def split_slices(graph: OpGraph, placer: str) -> Slices:
    """The slices of a split step.

    Args:
      graph: to be placed.
      placer: by which, for the error.

    Raises:
      InputError: the step is not split.
    """
    if graph.slices is None:
        raise InputError(
            f"{placer} for {graph.name!r}, whose batch is not split", "a step in slices", "Set slices=K (--slices=K)."
        )
    return graph.slices


def balanced_owners(
    problem: Problem,
    weight_of: IntArray,
    among: Callable[[int], IntArray],
    together: Mapping[int, int] = MappingProxyType({}),
) -> dict[int, int]:
    """Weight -> the device that owns it with its slots, both by the op that makes the handle; of those that stand once.

    The largest first, each to the device that holds least and has room.

    Args:
      problem: what is placed.
      weight_of: [V] of `tfplace.group.owners.weights_of_ops`.
      among: a weight -> devices of which one is to own it.
      together: weight -> one whose owner it is to have.
    """
    size: dict[int, int] = {}
    for variable in problem.graph.variables:
        weight = int(weight_of[variable.op])
        if weight >= 0:
            first = together.get(weight, weight)
            size[first] = size.get(first, 0) + variable.size_bytes
    held: LongArray = np.zeros(problem.num_devices, np.int64)
    chosen: dict[int, int] = {}
    for weight in sorted(size, key=lambda op: -size[op]):
        devices = among(weight)
        fits = devices[held[devices] + size[weight] <= problem.memory_limit[devices]]
        devices = fits if len(fits) else devices
        chosen[weight] = int(devices[held[devices].argmin()])
        held[chosen[weight]] += size[weight]
    return chosen | {weight: chosen[first] for weight, first in together.items()}


def row_lookups(graph: OpGraph, slices: Slices) -> list[tuple[int, int]]:
    """Ops of slices that take rows from a table that stands once, each with the op that makes the table.

    They belong where the table is, so that a slice is sent its rows and not the table. Left out are those that take
    more bytes than the table has, and those of a slice that is sent the table for others.
    """
    slice_of, kinds = slices.slice_of, graph.op_types
    read = graph.edge_tensor >= 0
    readers = zip(graph.edge_tensor[read].tolist(), graph.edge_dst[read].tolist(), strict=True)
    sent = {(tensor, int(slice_of[v])) for tensor, v in readers if kinds[v] not in _LOOKUPS}
    found = []
    for v in np.flatnonzero(slice_of >= 0).tolist():
        if kinds[v] not in _LOOKUPS:
            continue
        table = graph.inputs[v][0]
        maker = int(graph.tensor_op[table])
        taken = graph.tensor_bytes[graph.op_tensors[v] : graph.op_tensors[v + 1]].sum()
        if slice_of[maker] < 0 and (table, int(slice_of[v])) not in sent and taken < graph.tensor_bytes[table]:
            found.append((v, maker))
    return found


def balanced_slices(sizes: Sequence[int], seconds: FloatArray) -> IntArray:
    """[K] who of W takes each slice: the largest first, each to who is done with it first, so that equals take turns.

    R. Graham: Bounds on Multiprocessing Timing Anomalies. SIAM Journal on Applied Mathematics, 1969.

    Args:
      sizes: [K] examples.
      seconds: [K, W] that a slice takes.
    """
    busy: FloatArray = np.zeros(seconds.shape[1])
    out = np.zeros(len(sizes), np.int32)
    for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        out[k] = np.argmin(busy + seconds[k])
        busy[out[k]] += seconds[k, out[k]]
    return out
