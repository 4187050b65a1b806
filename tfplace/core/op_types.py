"""Which ops are of which types, asked once for each type of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, freeze
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept


class OpTypes(NamedTuple):
    """The types of a graph's ops.

    Attributes:
      names: [K] each once.
      of: [V] the number of each op's.
    """

    names: tuple[str, ...]
    of: IntArray


@kept
def op_types(graph: OpGraph) -> OpTypes:
    """Numbers the types of a graph's ops."""
    number: dict[str, int] = {}
    of = np.array([number.setdefault(kind, len(number)) for kind in graph.op_types], np.int32)
    return OpTypes(tuple(number), freeze(of))


def of_types(graph: OpGraph, chosen: Collection[str] | Callable[[str], bool]) -> BoolArray:
    """[V] whether an op's type is among those chosen, or is chosen."""
    known = op_types(graph)
    choose = chosen if callable(chosen) else chosen.__contains__
    out: BoolArray = np.array([*map(choose, known.names)], bool)[known.of]
    return out
