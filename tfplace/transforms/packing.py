"""Sends tensors packed together in buckets: a message costs as much as kilobytes do, or on a fast link megabytes.

Variables are put in buckets as the forward pass reads them, so that a bucket's gradients are made one after the other:
they go to their sum as one vector of each slice, while the backward pass goes on, and the variables come to each slice
as one. What else slices add up, such as moving averages, has buckets of its own. These are the buckets of S. Li et al.:
PyTorch Distributed, VLDB 2020, section 3.2.3; Horovod's tensor fusion (A. Sergeev, M. Del Balso, 2018,
arXiv:1802.05799, section 4) takes what is there at a time.
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
from tfplace.transforms.graph_writer import GraphWriter
from tfplace.transforms.propagation import Division
from tfplace.transforms.two_sizes import TwoSizes

_BUCKET_BYTES = 1 << 18
"""Of tensors that are packed together at most: as much as PCIe carries in the time that a message takes to start."""


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
    """Which tensors are sent in packs; `finish` writes those.

    Args:
      two: the step.
      division: of it.
      slices: how many.
      out: where packs are written.
    """

    def __init__(self, two: TwoSizes, division: Division, slices: int, out: GraphWriter) -> None:
        self._two, self._nodes, self._division, self._slices, self._out = two, two.nodes, division, slices, out
        self._walk()
        self._fill()
        self._find_targets()
        self._sent: dict[tuple[int, int], int] = {}  # values by their number in the pack
        self._values: dict[Any, _Pack] = {}  # by dtype and bucket
        self._sums: dict[Any, _Pack] = {}
        self._rest: dict[Any, tuple[int, int]] = {}  # dtype -> the bucket being filled, and its bytes

    def _walk(self) -> None:
        """Finds ops that may not run, ops that need no input of the step, and ops that slices need something of."""
        nodes, count = self._nodes, len(self._nodes)
        self._gated, self._early, self._feeds = [False] * count, [False] * count, [False] * count
        for v in nodes.order:
            before = nodes.forward_producers(v)
            self._gated[v] = nodes.types[v] in ("Switch", "RefSwitch") or any(self._gated[u] for u in before)
            self._early[v] = all(self._early[u] for u in before) and not self._division.copied[v]
            self._early[v] &= self._is_handle(v) or nodes.types[v] != "Placeholder"
        for v in reversed(nodes.order):
            needed = self._division.copied[v] or self._feeds[v]
            for u in nodes.forward_producers(v):
                self._feeds[u] = self._feeds[u] or needed

    def _is_handle(self, v: int) -> bool:
        return self._two.dtypes(v)[:1] == ["resource"]

    def _fill(self) -> None:
        """Puts small variables in buckets, in the order in which slices read them; what would be alone is in none."""
        nodes = self._nodes
        self._made_of = [-1] * len(nodes)  # the variable that an op which needs no input of the step is made of
        for v in nodes.order:
            if self._early[v]:
                before = nodes.forward_producers(v)
                made_of = (self._made_of[u] for u in before if self._made_of[u] >= 0)
                self._made_of[v] = v if self._is_handle(v) and not before else next(made_of, -1)
        buckets: list[dict[int, int]] = [{}]  # variable -> bytes
        self._read: set[int] = set()
        for v in nodes.order:
            for u, slot in nodes.data_inputs[v] if self._division.copied[v] else ():
                shape, variable = self._small(u, slot), self._made_of[u]
                if shape is None or variable < 0 or variable in self._read:
                    continue
                self._read.add(variable)
                size = self._bytes(u, slot, shape)
                if sum(buckets[-1].values()) + size > _BUCKET_BYTES:
                    buckets.append({})
                buckets[-1][variable] = size
        self._bucket = {v: i for i, bucket in enumerate(buckets) for v in bucket if len(bucket) > 1}

    def _find_targets(self) -> None:
        """Finds the variable to which what an op makes of sums goes, as itself or as as many elements made of it.

        What goes to a slot goes to the variable that is updated with it.
        """
        nodes = self._nodes
        self._target = [-1] * len(nodes)
        for v in reversed(nodes.order):
            if self._early[v] or self._division.copied[v]:
                continue
            handles = [u for u, _ in nodes.data_inputs[v] if self._is_handle(u)]
            found = [u for u in handles if u in self._read]
            found += [self._target[w] for slot, w, _ in nodes.consumers[v] if self._is_as_large(w, v, slot)]
            found += [self._target[w] for u in handles for _, w, _ in nodes.consumers[u]]
            self._target[v] = next((variable for variable in found if variable >= 0), -1)

    def _is_as_large(self, w: int, v: int, slot: int) -> bool:
        """Whether an op without results, or with as many elements, is given this tensor."""
        return not self._two.dtypes(w) or self._elements(w, 0) == self._elements(v, slot)

    def value(self, u: int, slot: int, k: int) -> str | None:
        """A slice's copy of what stands once, if that is packed: a small variable's value, or what is made of it."""
        shape, bucket = self._small(u, slot), self._bucket.get(self._made_of[u])
        if shape is None or bucket is None:
            return None
        pack = self._pack(self._values, "values", u, slot, str(bucket))
        if (u, slot) not in self._sent:
            self._sent[u, slot] = pack.add((_output(self._nodes.names[u], slot),), shape)
        return _taken(f"slice{k}/{pack.name}", shape, self._sent[u, slot])

    def sum(self, u: int, slot: int, parts: Sequence[str]) -> str | None:
        """The sum of slices' terms, if they are packed: small ones whose sum no slice needs."""
        shape = self._small(u, slot)
        readers = [(v, position) for of, v, position in self._nodes.consumers[u] if of == slot]
        if shape is None or any(
            self._division.readings[v][position].is_whole if self._division.copied[v] else self._feeds[v]
            for v, position in readers
        ):
            return None
        variable = next((self._target[v] for v, _ in readers if self._target[v] >= 0), -1)
        if variable >= 0 and variable not in self._bucket:
            return None
        bucket = self._next(u, slot, shape) if variable < 0 else str(self._bucket[variable])
        pack = self._pack(self._sums, "sums", u, slot, bucket)
        return _taken(pack.name, shape, pack.add(parts, shape))

    def _next(self, u: int, slot: int, shape: tuple[int, ...]) -> str:
        """The bucket of a sum that goes to no variable that slices read."""
        dtype, size = self._two.dtypes(u)[slot], self._bytes(u, slot, shape)
        number, held = self._rest.get(dtype, (0, 0))
        if held + size > _BUCKET_BYTES:
            number, held = number + 1, 0
        self._rest[dtype] = number, held + size
        return f"rest{number}"

    def _elements(self, u: int, slot: int) -> int:
        """Of a tensor; -1 if that is not known."""
        shape = self._two.shapes(u, slot)[0]
        return -1 if shape is None or min(shape, default=1) < 0 else math.prod(map(int, shape))

    def _bytes(self, u: int, slot: int, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(tf.dtypes.as_dtype(self._two.dtypes(u)[slot]).size)

    def _small(self, u: int, slot: int) -> tuple[int, ...] | None:
        """The shape of what is small enough."""
        shape, dtype = self._two.shapes(u, slot)[0], tf.dtypes.as_dtype(self._two.dtypes(u)[slot])
        if shape is None or min(shape, default=1) < 1 or self._gated[u] or not dtype.is_floating:
            return None
        return tuple(map(int, shape)) if self._bytes(u, slot, shape) <= _BUCKET_BYTES else None

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
