"""How many elements the datasets have that are made inside a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tfplace.extraction.nodes import Nodes
from tfplace.extraction.shapes import Properties


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AS_MANY = _words(
    "AssertNextDataset CacheDataset CacheDatasetV2 MapDataset ModelDataset OptionsDataset ParallelMapDataset "
    "ParallelMapDatasetV2 PrefetchDataset ScanDataset ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3"
)

_SIZES: Mapping[str, Callable[[float, float], float]] = {
    "BatchDataset": lambda n, size: math.ceil(n / size),
    "BatchDatasetV2": lambda n, size: math.ceil(n / size),
    "ParallelBatchDataset": lambda n, size: math.ceil(n / size),
    "RepeatDataset": lambda n, size: n * size if size >= 0 else math.inf,
    "SkipDataset": lambda n, size: max(n - size, 0) if size >= 0 else 0,
    "TakeDataset": lambda n, size: min(n, size) if size >= 0 else n,
}
"""Op type -> elements, by those of its input and by its second input."""


def dataset_elements(nodes: Nodes, properties: Properties, given: Mapping[str, int]) -> dict[int, float]:
    """Op that makes a dataset -> its elements, where they are known.

    Args:
      nodes: the flat graph.
      properties: what is known of the outputs.
      given: op that stands for a dataset from outside -> its elements.
    """
    values = properties.values()
    out: dict[int, float] = {}

    def number(v: int, position: int) -> int | None:
        producer, slot = nodes.data_inputs[v][position]
        value = values.get((nodes.names[producer], slot))
        return value[0] if value is not None and len(value) == 1 else None

    for v, op in enumerate(nodes.types):
        count: float | None = given.get(nodes.names[v])
        if op in _AS_MANY:
            count = out.get(nodes.data_inputs[v][0][0])
        elif op in _SIZES:
            before, size = out.get(nodes.data_inputs[v][0][0]), number(v, 1)
            if before is not None and size is not None:
                count = _SIZES[op](before, size)
        elif op == "TensorDataset":
            count = 1
        elif op == "TensorSliceDataset":
            producer, slot = nodes.data_inputs[v][0]
            known = properties.outputs.get(nodes.names[producer], [])
            shape = known[slot].shape if slot < len(known) else None
            count = shape[0] if shape and shape[0] >= 0 else None
        elif op == "RangeDataset":
            start, stop, step = (number(v, i) for i in range(3))
            if start is not None and stop is not None and step:
                count = max(0, math.ceil((stop - start) / step))
        if count is not None:
            out[v] = count
    return out


def elements_read(nodes: Nodes, v: int, elements: Mapping[int, float]) -> float | None:
    """Elements of the first dataset that an op reads; None if it reads none, endlessly many, or an unknown number."""
    counts = [elements[u] for u, _ in nodes.data_inputs[v] if u in elements]
    return float(counts[0]) if counts and math.isfinite(counts[0]) else None
