"""The step that `tf.distribute.MirroredStrategy` runs, made of a split one: variables everywhere, one all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.graph import OpGraph
from tfplace.errors import InputError
from tfplace.transforms.mirrored_graph import MirroredGraph
from tfplace.transforms.ring import exchange

_INPUTS = ("Placeholder", "PlaceholderWithDefault")
_HANDLES = ("resource", "variant")
_ADDS = ("AddN", "AddV2")


def mirrored(graph: OpGraph, replica_of: Sequence[int] | None = None) -> OpGraph:
    """What `MirroredStrategy` makes of a step under Keras's `fit`, as a split graph whose slices are the replicas.

    Every replica has the variables that slices read or that are trained, with their slots, reads and update. The terms
    of its slices are added up. Gradients that do not depend on one another are then put into one buffer per dtype,
    reduced by a ring (`tfplace.transforms.ring`), and taken apart again by each replica; so nothing is sent before the
    last of them is made (TensorFlow 2.21, `CollectiveAllReduce`, one pack). Sparse gradients are gathered: each replica
    is sent the rows of all slices.

    What the strategy does otherwise:

    - Metrics, BatchNorm's averages and averages of weights are on every replica there, and combined as their variables'
      aggregation says. Here they stand once and are sent what the slices have of them; of their memory there is one.
    - Each replica computes its own denominators, such as a sum of sample weights. Here slices wait for those of the
      batch, as in any split step.
    - Inputs are there on every replica. Here they are where the split step has them, and sent.
    - Ops that a split step gives the rows of all slices stand once here, and run on each replica's examples there.
    - `fit` has a replica compute all its examples at once, and not slice by slice.

    Args:
      graph: a step in slices.
      replica_of: [K] the replica of each slice, from 0 on; by default every slice is a replica.

    Returns:
      The graph, without an origin. A copy is called `copy_name(op, replica)`; what has no such name is of the exchange.

    Raises:
      InputError: the step is not split, or has a single slice; or the replicas are not numbered from 0 on, one number
        for each slice.
    """
    slices = graph.slices
    count = 0 if slices is None else len(slices.sizes)
    if slices is None or count < 2:
        raise InputError(
            f"replicas of {graph.name!r}, which has {f'{count} slice' if count else 'no slices'}",
            "a step in at least two slices",
            "Set slices=K (--slices=K).",
        )
    numbers = np.arange(count) if replica_of is None else np.asarray(replica_of)
    if len(numbers) != count or not np.array_equal(np.unique(numbers), np.arange(len({*numbers.tolist()}))):
        raise InputError(
            f"replicas {numbers.tolist()} of {count} slices", "a number for each slice, counted from 0 without gaps"
        )
    copied = _copied(graph, slices.slice_of)
    sums = {v: s for v, s in _sums(graph, slices.slice_of, count).items() if copied[v]}
    summed, parts = np.zeros((2, graph.num_ops), np.bool_)
    summed[list(sums)] = True
    parts[[u for s in sums.values() for u in s.parts]] = True
    out = MirroredGraph(graph, copied, numbers.astype(np.int32))
    level = _levels(graph, summed)
    for stage in range(int(level.max()) + 1):
        at_once = level == stage
        for v in np.flatnonzero(at_once & ~summed & ~parts).tolist():
            out.take(v)
        exchange(out, {v: sums[v].terms for v in np.flatnonzero(at_once & summed).tolist()}, f"all_reduce{stage}")
    return out.graph()


@dataclass(frozen=True)
class _Sum:
    """What is added up by an op, and by those that it reads.

    Attributes:
      terms: tensors of slices.
      parts: ops that add up some of them for this one alone.
    """

    terms: tuple[int, ...]
    parts: tuple[int, ...]


def _copied(graph: OpGraph, slice_of: IntArray) -> BoolArray:
    """[V] ops that stand once and that every replica has.

    Those are all that slices read and that is not made of examples, and what trained variables are written from. What
    is made of examples and is read by slices again stands once.
    """
    once = slice_of < 0
    depends, leads = ~once | _is_input(graph), ~once
    data = np.flatnonzero((graph.edge_tensor >= 0) & ~graph.edge_back)
    edges = list(zip(graph.edge_src[data].tolist(), graph.edge_dst[data].tolist(), strict=True))
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        depends[v] |= depends[u]
    for u, v in sorted(edges, reverse=True):
        leads[u] |= leads[v]
    may = once & ~graph.replicable & ~_is_input(graph) & ~(depends & leads)
    bonded: dict[int, list[int]] = {}
    for v in np.flatnonzero(may & (graph.resource >= 0)).tolist():
        bonded.setdefault(int(graph.resource[v]), []).append(v)
    trained = [variable.op for variable in graph.variables if variable.trainable]
    out = np.zeros(graph.num_ops, np.bool_)
    pending = [*trained, *np.flatnonzero(leads).tolist()]
    while pending:
        v = pending.pop()
        if may[v] and not out[v]:
            out[v] = True
            pending += [int(graph.tensor_op[t]) for t in graph.inputs[v]]
            pending += bonded.pop(int(graph.resource[v]), [])
    return out


def _is_input(graph: OpGraph) -> BoolArray:
    """[V] whether an op is an argument of the step that is no handle."""
    given = np.array([kind in _INPUTS for kind in graph.op_types])
    for t in np.flatnonzero(given[graph.tensor_op]).tolist():
        given[graph.tensor_op[t]] &= graph.tensor_dtype[t] not in _HANDLES
    return given


def _sums(graph: OpGraph, slice_of: IntArray, count: int) -> dict[int, _Sum]:
    """Ops that stand once and add up one tensor of each slice, at once or term by term."""
    readers = np.bincount(graph.edge_tensor[graph.edge_tensor >= 0], minlength=graph.num_tensors)
    found: dict[int, _Sum] = {}
    for v in np.flatnonzero(slice_of < 0).tolist():
        made = int(graph.op_tensors[v])
        if graph.op_types[v] not in _ADDS or not graph.tensor_bytes[made] or graph.tensor_shape[made] is None:
            continue
        terms: list[int] = []
        parts: list[int] = []
        for t in graph.inputs[v]:
            maker = int(graph.tensor_op[t])
            if graph.tensor_shape[t] != graph.tensor_shape[made]:
                break
            if slice_of[maker] >= 0:
                terms.append(t)
            elif maker in found and readers[t] == 1:
                terms += found[maker].terms
                parts += [*found[maker].parts, maker]
            else:
                break
        else:
            found[v] = _Sum(tuple(terms), tuple(parts))
    every = list(range(count))
    return {v: s for v, s in found.items() if sorted(slice_of[graph.tensor_op[list(s.terms)]].tolist()) == every}


def _levels(graph: OpGraph, summed: BoolArray) -> IntArray:
    """[V] how many exchanges of gradients come before an op."""
    out = np.zeros(graph.num_ops, np.int32)
    forward = np.flatnonzero(~graph.edge_back)
    for e in forward[np.argsort(graph.edge_dst[forward], kind="stable")].tolist():
        u, v = graph.edge_src[e], graph.edge_dst[e]
        out[v] = max(out[v], out[u] + summed[u])
    return out
