"""What Placeto's policy sees beside `GraphInputs`: who reaches whom."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.learned.features.graph_inputs import GraphInputs
from tfplace.learned.features.unit_features import Float32


class SweepInputs(NamedTuple):
    """Of few units, such as groups, in the order of the rows of `GraphInputs`.

    Attributes:
      ancestors: [G, G] parts: row g is 1 / N at each of the N units from which a way leads to g.
      descendants: [G, G] the same of those to which one leads from g.
      parallel: [G, G] the same of those that are neither, nor g.
    """

    ancestors: Float32
    descendants: Float32
    parallel: Float32


def sweep_inputs(inputs: GraphInputs) -> SweepInputs:
    """See `SweepInputs`; takes time and memory with the square of the number of units."""
    count = len(inputs.order)
    down = _reached(inputs.src, inputs.dst, count)
    up = down.T
    return SweepInputs(_parts(up), _parts(down), _parts(~(up | down | np.eye(count, dtype=bool))))


def _parts(mask: BoolArray) -> Float32:
    """Rows of which each sums up to 1, or to 0 if nothing is in it."""
    return np.asarray(mask / np.maximum(mask.sum(axis=1, keepdims=True), 1), np.float32)


def _reached(src: IntArray, dst: IntArray, count: int) -> BoolArray:
    """[G, G] whether a way leads from row to another column; units may lie on circles."""
    edges = csr_array((np.ones(len(src)), (src, dst)), (count, count))
    reached: BoolArray = np.isfinite(shortest_path(edges, unweighted=True))
    np.fill_diagonal(reached, False)
    return reached
