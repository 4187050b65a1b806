"""What policies see of the units they place: plain arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, numbered
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.group.flow import flow

OUTPUTS, DIMENSIONS = 5, 5
"""How many outputs of an op, and dimensions of each, a policy sees: those of TensorFlow's shipped controller."""

Float32 = NDArray[np.float32]


def unit_features(problem: Problem) -> Float32:
    """[U, K + S] what each unit is: the part of its ops of each of K types, and its ops' mean output shapes.

    Mirhoseini 2017, section 3.2, gives a policy the sum of the types' embeddings and the shapes side by side. Here both
    are averaged, since groups may have hundreds of ops, and dimensions are logarithms.
    """
    rows = np.concatenate([_type_rows(problem.graph), shape_rows(problem.graph)], axis=1)
    return np.asarray(mean_over_units(problem, rows), np.float32)


def mean_over_units(problem: Problem, rows: FloatArray) -> FloatArray:
    """[U, N] the mean of the rows of each unit's ops.

    Args:
      problem: whose units.
      rows: [V, N].
    """
    unit_of = problem.grouping.unit_of
    inside = unit_of >= 0
    total = np.zeros((problem.num_units, rows.shape[1]))
    np.add.at(total, unit_of[inside], rows[inside])
    count = np.bincount(unit_of[inside], minlength=problem.num_units)
    mean: FloatArray = total / count[:, None]
    return mean


def adjacency(problem: Problem) -> Float32:
    """[U, U] 1 where one unit reads what the other makes; for few units."""
    src, dst = unit_edges(problem)
    near = np.zeros((problem.num_units, problem.num_units), np.float32)
    near[dst, src] = near[src, dst] = 1.0
    return near


def neighbours(problem: Problem, count: int) -> Float32:
    """[U, 2 count + 1] where each unit and its neighbors are in topological order, as parts of the number of units.

    First the unit's own place, then how far before it its last `count` producers are, then how far behind it its first
    `count` consumers; 0 where there are fewer. For many units.
    """
    units = problem.num_units
    src, dst = unit_edges(problem)
    rows = np.zeros((units, 2 * count + 1), np.float32)
    rows[:, 0] = np.arange(units) / max(units, 1)
    for first, (mine, other) in ((1, (dst, src)), (1 + count, (src, dst))):
        apart = np.abs(mine.astype(np.int64) - other)
        order = np.lexsort((apart, mine))
        rank = np.arange(len(mine)) - np.searchsorted(mine[order], mine[order])
        kept = rank < count
        rows[mine[order][kept], first + rank[kept]] = apart[order][kept] / units
    return rows


def unit_edges(problem: Problem) -> tuple[IntArray, IntArray]:
    """[P] producing and [P] consuming unit of every pair of different units between which something flows, once."""
    edges = flow(problem)
    unit_of = problem.grouping.unit_of.astype(np.int64)
    src, dst = unit_of[edges.src], unit_of[edges.dst]
    pairs = np.unique((src * problem.num_units + dst)[src != dst])
    return (pairs // problem.num_units).astype(np.int32), (pairs % problem.num_units).astype(np.int32)


def _type_rows(graph: OpGraph) -> FloatArray:
    """[V, K] one-hot op types; K are the types that occur, in alphabetical order."""
    index = numbered(graph.op_types)
    return np.eye(int(index.max()) + 1)[index]


def shape_rows(graph: OpGraph) -> FloatArray:
    """[V, OUTPUTS * DIMENSIONS] log(1 + d) of the dimensions of the first outputs; 0 where there is none."""
    rows = np.zeros((graph.num_ops, OUTPUTS, DIMENSIONS))
    for op, slot, shape in zip(graph.tensor_op.tolist(), graph.tensor_slot.tolist(), graph.tensor_shape, strict=True):
        if slot < OUTPUTS and shape:
            dims = shape[:DIMENSIONS]
            rows[op, slot, : len(dims)] = dims
    return np.log1p(rows).reshape(graph.num_ops, -1)
