"""Sends tensors packed together: a message costs as much as kilobytes do, or on a fast link megabytes.

Gradients, and what else slices add up, go to the sum as one vector of each slice for each bucket, and variables come to
each slice as one; see `tfplace.transforms.buckets`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from grappler_bridge.item import TensorProperties
from tfplace.core.graph import OpGraph
from tfplace.core.slices import PACKED
from tfplace.transforms.buckets import Buckets
from tfplace.transforms.graph_writer import GraphWriter
from tfplace.transforms.propagation import Division
from tfplace.transforms.two_sizes import TwoSizes


def is_packed(graph: OpGraph) -> bool:
    """Whether a split step sends small tensors packed together."""
    return any(name.startswith(PACKED) for name in graph.op_names)


@dataclass
class _Pack:
    """Tensors of one dtype, laid end to end.

    Attributes:
      name: of the op that takes it apart.
      dtype: of all.
      original: the op that the first stems from.
      parts: where each is made; sums have one for each slice.
      shapes: of each.
    """

    name: str
    dtype: Any
    original: str
    parts: list[tuple[str, ...]] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, parts: Sequence[str], shape: tuple[int, ...]) -> int:
        """Adds a tensor; returns its number."""
        self.parts.append(tuple(parts))
        self.shapes.append(shape)
        return len(self.shapes) - 1

    @property
    def lengths(self) -> list[int]:
        """Elements of each."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def properties(self) -> TensorProperties:
        """Of all together."""
        return TensorProperties(self.dtype, (sum(self.lengths),), None)


class Packing:
    """Sends what is in one bucket packed together; `finish` writes the packs.

    Args:
      two: the step.
      division: of it.
      slices: how many.
      out: where packs are written.
    """

    def __init__(self, two: TwoSizes, division: Division, slices: int, out: GraphWriter) -> None:
        self._two, self._nodes, self._slices, self._out = two, two.nodes, slices, out
        self._buckets = Buckets(two, division)
        self._sent: dict[tuple[int, int], int] = {}  # values by their number in the pack
        self._values: dict[Any, _Pack] = {}  # by dtype and bucket
        self._sums: dict[Any, _Pack] = {}

    def value(self, u: int, slot: int, k: int) -> str | None:
        """A slice's copy of what stands once, if that is packed."""
        bucket = self._buckets.of_value(u, slot)
        if bucket is None:
            return None
        pack, shape = self._pack(self._values, "values", u, slot, bucket), self._shape(u, slot)
        if (u, slot) not in self._sent:
            self._sent[u, slot] = pack.add((_output(self._nodes.names[u], slot),), shape)
        return _taken(f"slice{k}/{pack.name}", shape, self._sent[u, slot])

    def sum(self, u: int, slot: int, parts: Sequence[str]) -> str | None:
        """The sum of slices' terms, if they are packed."""
        bucket = self._buckets.of_sum(u, slot)
        if bucket is None:
            return None
        pack, shape = self._pack(self._sums, "sums", u, slot, bucket), self._shape(u, slot)
        return _taken(pack.name, shape, pack.add(parts, shape))

    def _shape(self, u: int, slot: int) -> tuple[int, ...]:
        shape = self._two.shapes(u, slot)[0]
        assert shape is not None
        return tuple(map(int, shape))

    def _pack(self, packs: dict[Any, _Pack], what: str, u: int, slot: int, bucket: str) -> _Pack:
        dtype = tf.dtypes.as_dtype(self._two.dtypes(u)[slot])
        if (dtype, bucket) not in packs:
            name = self._out.free(f"{PACKED}{what}/{dtype.name}_{bucket}", self._nodes.index)
            packs[dtype, bucket] = _Pack(name, dtype, self._nodes.names[u])
        return packs[dtype, bucket]

    def finish(self) -> None:
        """Writes all packs."""
        for pack in self._values.values():
            joined = self._joined(f"{pack.name}/joined", pack, [part for (part,) in pack.parts])
            for k in range(self._slices):
                self._take_apart(f"slice{k}/{pack.name}", pack, joined, k)
        for pack in self._sums.values():
            terms = [
                self._joined(f"slice{k}/{pack.name}/joined", pack, [parts[k] for parts in pack.parts], k)
                for k in range(self._slices)
            ]
            total = self._out.op("AddN", f"{pack.name}/total", pack.original, terms, [pack.properties], N=len(terms))
            self._take_apart(pack.name, pack, total, None)

    def _joined(self, name: str, pack: _Pack, parts: Sequence[str], k: int | None = None) -> str:
        flat = [
            part if len(shape) == 1 else self._reshaped(f"{name}/flat{i}", pack, part, (math.prod(shape),), k)
            for i, (part, shape) in enumerate(zip(parts, pack.shapes, strict=True))
        ]
        if len(flat) == 1:
            return self._out.op("Identity", name, pack.original, flat, [pack.properties], k=k)
        inputs = (*flat, self._constant(f"{name}/axis", pack, 0, np.int32, k))
        return self._out.op("ConcatV2", name, pack.original, inputs, [pack.properties], k=k, Tidx=tf.int32, N=len(flat))

    def _take_apart(self, name: str, pack: _Pack, whole: str, k: int | None) -> None:
        sizes = self._constant(f"{name}/sizes", pack, pack.lengths, np.int64, k)
        axis = self._constant(f"{name}/axis", pack, 0, np.int32, k)
        outputs = [TensorProperties(pack.dtype, (length,), None) for length in pack.lengths]
        count = len(pack.lengths)
        inputs = (whole, sizes, axis)
        self._out.op("SplitV", name, pack.original, inputs, outputs, k=k, Tlen=tf.int64, num_split=count)
        for i, shape in enumerate(pack.shapes):
            if len(shape) != 1:
                self._reshaped(_taken(name, shape, i), pack, _output(name, i), shape, k)

    def _reshaped(self, name: str, pack: _Pack, part: str, shape: tuple[int, ...], k: int | None) -> str:
        inputs = (part, self._constant(f"{name}/shape", pack, shape, np.int32, k))
        like = TensorProperties(pack.dtype, shape, None)
        return self._out.op("Reshape", name, pack.original, inputs, [like], k=k, Tshape=tf.int32)

    def _constant(self, name: str, pack: _Pack, value: Any, dtype: Any, k: int | None) -> str:
        return self._out.constant(name, pack.original, np.array(value, dtype), k)


def _output(name: str, slot: int) -> str:
    return f"{name}:{slot}" if slot else name


def _taken(name: str, shape: tuple[int, ...], index: int) -> str:
    """The tensor that is taken out of a pack, in its own shape."""
    return _output(name, index) if len(shape) == 1 else f"{name}/part{index}"
