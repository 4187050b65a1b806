"""What policies see of the units they place: plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.group.flow import flow

OUTPUTS, DIMENSIONS = 5, 5
"""How many outputs of an op, and dimensions of each, a policy sees: those of TensorFlow's shipped controller."""

Float32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class UnitFeatures:
    """Of every unit, in topological order.

    Attributes:
      types: [U, K] part of the unit's ops that are of each op type of the graph.
      shapes: [U, S] log(1 + d) of the output dimensions, 0 where there is none, averaged over the unit's ops.
      adjacency: [U, U] 1 where unit u reads what unit v makes, or is read by it.
    """

    types: Float32
    shapes: Float32
    adjacency: Float32

    @property
    def all(self) -> Float32:
        """[U, K + S + U] side by side."""
        return np.concatenate([self.types, self.shapes, self.adjacency], axis=1)


def unit_features(problem: Problem) -> UnitFeatures:
    """What Mirhoseini 2017, section 3.2, gives a policy of each group: types, output shapes and adjacency.

    There the types' embeddings are added up and the shapes are concatenated; here both are averaged, since groups may
    have hundreds of ops, and dimensions are logarithms.
    """
    unit_of = problem.grouping.unit_of
    inside = unit_of >= 0
    count = np.bincount(unit_of[inside], minlength=problem.num_units).astype(np.float64)

    def averaged(rows: FloatArray) -> Float32:
        total = np.zeros((problem.num_units, rows.shape[1]))
        np.add.at(total, unit_of[inside], rows[inside])
        return np.asarray(total / count[:, None], np.float32)

    adjacency = np.zeros((problem.num_units, problem.num_units), np.float32)
    edges = flow(problem)
    src, dst = unit_of[edges.src], unit_of[edges.dst]
    adjacency[dst, src] = adjacency[src, dst] = 1.0
    np.fill_diagonal(adjacency, 0.0)
    return UnitFeatures(averaged(type_rows(problem.graph)), averaged(shape_rows(problem.graph)), adjacency)


def type_rows(graph: OpGraph) -> FloatArray:
    """[V, K] one-hot op types; K are the types that occur, in alphabetical order."""
    _, index = np.unique(np.array(graph.op_types), return_inverse=True)
    return np.eye(int(index.max()) + 1)[index]


def shape_rows(graph: OpGraph) -> FloatArray:
    """[V, OUTPUTS * DIMENSIONS] log(1 + d) of the dimensions of the first outputs; 0 where there is none."""
    rows = np.zeros((graph.num_ops, OUTPUTS, DIMENSIONS))
    for op, slot, shape in zip(graph.tensor_op.tolist(), graph.tensor_slot.tolist(), graph.tensor_shape, strict=True):
        if slot < OUTPUTS and shape:
            dims = shape[:DIMENSIONS]
            rows[op, slot, : len(dims)] = dims
    return np.log1p(rows).reshape(graph.num_ops, -1)
