"""Makes of a tensor that is divided in one way what is read of it in another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from grappler_bridge.item import TensorProperties
from tfplace.errors import SplitError
from tfplace.transforms.graph_writer import GraphWriter
from tfplace.transforms.packing import Packing
from tfplace.transforms.propagation import Division
from tfplace.transforms.sharding.state import Kind, Sharding
from tfplace.transforms.two_sizes import TwoSizes

_LARGE = 1 << 16
"""Bytes from which terms are added one by one: a kernel for each takes less than they do."""


class Resharding:
    """Tensors as slices read them, and as ops that stand once do; each conversion is written once.

    Args:
      two: the step.
      division: of it.
      sizes: [K] examples of each slice.
      out: where conversions are written.
      once: writes an op of the step for the whole batch and returns its name, where slices alone have it.
      packing: has small vectors sent together.
    """

    def __init__(
        self,
        two: TwoSizes,
        division: Division,
        sizes: Sequence[int],
        out: GraphWriter,
        once: Callable[[int], str],
        *,
        packing: Packing | None = None,
    ) -> None:
        self._two, self._nodes, self._division, self._out = two, two.nodes, division, out
        self._sizes, self._once, self._packing = tuple(sizes), once, packing
        self._made: dict[tuple[str, int, int], str] = {}

    def copy_name(self, v: int, k: int) -> str:
        """Name of a slice's copy of an op."""
        return f"slice{k}/{self._nodes.names[v]}"

    def properties(self, v: int, slot: int, k: int) -> TensorProperties:
        """Of an output with a slice's examples."""
        known = self._two.properties.outputs.get(self._nodes.names[v], [])
        whole = self._division.outputs[v][slot].is_whole
        value = known[slot].value if slot < len(known) and whole else None
        return TensorProperties(self._dtype(v, slot), self._two.size_at(v, slot, self._sizes[k]), value)

    def read(self, u: int, slot: int, reading: Sharding, k: int) -> str:
        """What slice k reads of an output."""
        if reading.is_whole:
            return self.whole(u, slot, k)
        if self._division.copied[u]:
            return tensor(self.copy_name(u, k), slot)
        if reading.kind is Kind.LOCAL and self._nodes.types[u] == "Const":
            value = self._two.value_at(u, self._sizes[k], linear=False)
            own = self.copy_name(u, k) if self._division.copied[u] else self._nodes.names[u]
            beside = own if self._nodes.control_inputs[u] else ""
            name = f"{self.copy_name(u, k)}/of_slice"
            return self._out.constant(name, self._nodes.names[u], value, k, beside=beside)
        return tensor(self._pieces(u, slot), k)

    def whole(self, u: int, slot: int, k: int | None = None) -> str:
        """All of an output, for slice k or for what stands once.

        Raises:
          SplitError: it is a list, or a mean of integers.
        """
        held = self._division.outputs[u][slot]
        if not self._division.copied[u]:
            packed = None if k is None or self._packing is None else self._packing.value(u, slot, k)
            return packed or tensor(self._nodes.names[u], slot)
        if k is None and held.zero and any(reading.kind is Kind.SIZE for reading in self._division.readings[u]):
            return tensor(self._once(u), slot)  # an empty list, whose elements are to have the batch's size
        if held.is_whole:
            return tensor(self.copy_name(u, k or 0), slot)
        key = ("whole", u, slot)
        if key not in self._made:
            self._made[key] = self._put_together(u, slot, held)
        return self._made[key]

    def _put_together(self, u: int, slot: int, held: Sharding) -> str:
        if held.kind is Kind.SIZE:
            return self._whole_size(u, slot)
        dtype, name = self._dtype(u, slot), self._nodes.names[u]
        if dtype in (tf.variant, tf.resource):
            raise SplitError(
                f"a tensor list of {name!r} that slices fill and an unsplit op reads", "tensor lists that slices read"
            )
        parts = [tensor(self.copy_name(u, k), slot) for k in range(len(self._sizes))]
        if held.is_rows:
            return self._gathered(u, slot, held, parts)
        mean = held.mean or (held.kind is Kind.LOCAL and not held.extensive)
        if mean and not (dtype.is_floating or dtype.is_complex):
            raise SplitError(f"{name!r}, which averages {dtype.name}", "averages of floating-point numbers")
        return self._mean(u, slot, parts) if mean else self._sum(self._free(u, slot, "combined"), u, slot, parts)

    def _whole_size(self, u: int, slot: int) -> str:
        """Sizes with the whole batch: a constant where they are known, as rows are put together for no size."""
        kind = self._nodes.types[u]
        if kind in ("Shape", "ShapeN", "Size"):
            shape = self._two.shapes(*self._nodes.data_inputs[u][slot])[0]
            if shape is not None and min(shape, default=0) >= 0:
                dtype = self._dtype(u, slot).as_numpy_dtype
                value = np.prod(shape, dtype=dtype) if kind == "Size" else np.array(shape, dtype)
                return self._out.constant(self._free(u, slot, "whole"), self._nodes.names[u], value)
        return tensor(self._once(u), slot)

    def _pieces(self, u: int, slot: int) -> str:
        """An op whose outputs are the slices' rows of what stands once."""
        key = ("pieces", u, slot)
        if key not in self._made:
            origin, held = self._nodes.names[u], self._division.outputs[u][slot]
            name = self._free(u, slot, "slices")
            shape = self._two.shapes(u, slot)[0]
            assert shape is not None  # its batch axis is known
            each = shape[held.axis] // self._two.batches[0]
            rows = self._out.constant(f"{name}/rows", origin, np.array(self._sizes, np.int64) * each)
            axis = self._out.constant(f"{name}/axis", origin, np.array(held.axis, np.int32))
            outputs = [self.properties(u, slot, k) for k in range(len(self._sizes))]
            inputs = (tensor(origin, slot), rows, axis)
            count = len(self._sizes)
            self._made[key] = self._out.op("SplitV", name, origin, inputs, outputs, Tlen=tf.int64, num_split=count)
        return self._made[key]

    def _gathered(self, u: int, slot: int, held: Sharding, parts: list[str]) -> str:
        """The rows of all slices, in the order of the whole."""
        name, origin, dtype = self._free(u, slot, "gathered"), self._nodes.names[u], self._dtype(u, slot)
        shape, axis, joined = self._two.shapes(u, slot)[0], held.axis, name
        if held.outer > 1:
            shape, axis, joined = self._in_groups(self._shape(u, slot), held), axis + 1, f"{name}/groups"
            for k, part in enumerate(parts):
                own = self._in_groups(self._known(u, self._two.size_at(u, slot, self._sizes[k])), held)
                parts[k] = self._reshaped(f"{name}/group{k}", origin, part, TensorProperties(dtype, own, None), k)
        at = self._out.constant(f"{name}/axis", origin, np.array(axis, np.int32))
        like = TensorProperties(dtype, shape, None)
        self._out.op("ConcatV2", joined, origin, (*parts, at), [like], Tidx=tf.int32, N=len(parts))
        if held.outer > 1:
            self._reshaped(name, origin, joined, TensorProperties(dtype, self._shape(u, slot), None))
        return name

    def _reshaped(self, name: str, origin: str, part: str, like: TensorProperties, k: int | None = None) -> str:
        shape = self._out.constant(f"{name}/shape", origin, np.array(like.shape, np.int32), k)
        return self._out.op("Reshape", name, origin, (part, shape), [like], k=k, Tshape=tf.int32)

    def _in_groups(self, shape: tuple[int, ...], held: Sharding) -> tuple[int, ...]:
        """A shape whose batch axis is made two: groups, and the rows in each."""
        return (*shape[: held.axis], held.outer, shape[held.axis] // held.outer, *shape[held.axis + 1 :])

    def _mean(self, u: int, slot: int, parts: list[str]) -> str:
        """The mean of slices' values, weighted by their examples."""
        name = self._free(u, slot, "combined")
        if len(set(self._sizes)) == 1:
            total = self._sum(f"{name}/sum", u, slot, parts)
            return self._scaled(name, u, slot, total, 1 / len(parts))
        weights = [n / self._two.batches[0] for n in self._sizes]
        scaled = [self._scaled(f"{name}/weighted{k}", u, slot, part, weights[k], k=k) for k, part in enumerate(parts)]
        return self._sum(name, u, slot, scaled)

    def _sum(self, name: str, u: int, slot: int, parts: Sequence[str]) -> str:
        """The sum of slices' terms: large ones one by one, so that two are held at most, wherever each is added."""
        packed = None if self._packing is None else self._packing.sum(u, slot, parts)
        if packed is not None:
            return packed
        dtype, shape, origin = self._dtype(u, slot), self._two.shapes(u, slot)[0], self._nodes.names[u]
        like = TensorProperties(dtype, shape, None)
        if len(parts) < 3 or shape is None or math.prod(shape) * dtype.size < _LARGE:
            return self._out.op("AddN", name, origin, parts, [like], N=len(parts))
        total = parts[0]
        for k, part in enumerate(parts[1:-1], 1):
            total = self._out.op("AddV2", f"{name}/to{k}", origin, (total, part), [like])
        return self._out.op("AddV2", name, origin, (total, parts[-1]), [like])

    def _scaled(self, name: str, u: int, slot: int, part: str, by: float, *, k: int | None = None) -> str:
        dtype, origin = self._dtype(u, slot), self._nodes.names[u]
        weight = self._out.constant(f"{name}/weight", origin, np.array(by, dtype.as_numpy_dtype), k)
        like = TensorProperties(dtype, self._two.shapes(u, slot)[0], None)
        return self._out.op("Mul", name, origin, (part, weight), [like], k=k)

    def _dtype(self, u: int, slot: int) -> Any:
        return tf.dtypes.as_dtype(self._two.dtypes(u)[slot])

    def _shape(self, u: int, slot: int) -> tuple[int, ...]:
        return self._known(u, self._two.shapes(u, slot)[0])

    def _known(self, u: int, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        if shape is None or min(shape, default=0) < 0:
            raise SplitError(
                f"{self._nodes.names[u]!r} of unknown shape, whose rows have to be counted", "a known shape"
            )
        return shape

    def _free(self, u: int, slot: int, what: str) -> str:
        return self._out.free(f"{self._nodes.names[u]}/{what}{slot or ''}", self._nodes.index)


def tensor(name: str, slot: int) -> str:
    """An output as an input's text."""
    return f"{name}:{slot}" if slot else name
