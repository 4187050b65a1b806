"""One step traced with two batch sizes: what of it depends on the batch, and what it is for any other size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grappler_bridge.item import TensorProperties
from tfplace.errors import SplitError
from tfplace.extraction.nodes import Nodes
from tfplace.extraction.opgraph import output_dtypes
from tfplace.extraction.shapes import Properties
from tfplace.transforms.constants import constant_value, distinct


class TwoSizes:
    """A flat step with the whole batch, beside the same step with another batch size.

    Sizes and integers that differ are taken to be linear in the batch size.

    Args:
      nodes: the step with the whole batch.
      other: with another batch size.
      names: op of the step -> the same op of the other; see `same_ops`.
      properties: of both.
      batches: examples of both.
      slices: [K] examples of each slice that the step is to have.
    """

    def __init__(
        self,
        nodes: Nodes,
        other: Nodes,
        names: Mapping[str, str],
        properties: tuple[Properties, Properties],
        batches: tuple[int, int],
        *,
        slices: Sequence[int],
    ) -> None:
        self.nodes = nodes
        self.batches = batches
        self.slices = tuple(slices)
        self.properties = properties[0]
        self._both = properties
        self._other = [
            other.defs[other.index[names[n]]] if n in names else d for n, d in zip(nodes.names, nodes.defs, strict=True)
        ]
        self._others: list[list[TensorProperties]] = []
        for v, node in enumerate(self._other):
            first = nodes.data_inputs[v][0] if nodes.types[v] == "AddN" else None  # which may be a part of a sum
            of_first = None if first is None else self._others[first[0]][first[1] : first[1] + 1]
            self._others.append(properties[1].outputs.get(node.name, []) if of_first is None else of_first)
        self._dtypes = [[dtype.base_dtype.name for dtype in output_dtypes(node) or ()] for node in nodes.defs]
        self._values: dict[int, NDArray[Any]] = {}
        self.differing = {v for v in nodes.order if nodes.types[v] == "Const" and self._differs(v)}

    def _differs(self, v: int) -> bool:
        a, b = (node.attr["value"].tensor for node in (self.nodes.defs[v], self._other[v]))
        return bool(a.SerializeToString(deterministic=True) != b.SerializeToString(deterministic=True))

    def shapes(self, v: int, slot: int) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Shapes of an output with both batch sizes."""
        return _shape(self.properties.outputs.get(self.nodes.names[v], []), slot), _shape(self._others[v], slot)

    def value(self, v: int) -> NDArray[Any] | None:
        """Value of a constant; None of anything else."""
        if self.nodes.types[v] != "Const":
            return None
        if v not in self._values:
            self._values[v] = constant_value(self.nodes.defs[v])
        return self._values[v]

    def known(self, v: int, slot: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Elements of an output, with both batch sizes, that are known before the run.

        Those are elements of constants, and of small integers made of sizes.
        """
        whole, other = self._known(v, slot, 0), self._known(v, slot, 1)
        return None if whole is None or other is None or whole.shape != other.shape else (whole, other)

    def _known(self, v: int, slot: int, which: int) -> NDArray[Any] | None:
        kind, inputs = self.nodes.types[v], self.nodes.data_inputs[v]
        if kind == "Const":
            changed = which and v in self.differing
            return constant_value(self._other[v]) if changed else self.value(v)
        if kind in ("Shape", "ShapeN"):
            shape = self.shapes(*inputs[slot])[which]
            return None if shape is None or min(shape, default=0) < 0 else np.array(shape, np.int64)
        if kind in _COMPUTED:
            given = [self._known(u, at, which) for u, at in inputs]
            values = [value for value in given if value is not None]
            return _COMPUTED[kind](values, slot) if len(values) == len(given) else None
        outputs = (self.properties.outputs.get(self.nodes.names[v], []), self._others[v])[which]
        value = outputs[slot].value if slot < len(outputs) else None
        return None if value is None else np.array(value, np.int64)

    def dtypes(self, v: int) -> list[str]:
        """Dtype names of an op's outputs."""
        return self._dtypes[v]

    def is_zero(self, v: int) -> bool:
        """Whether an op is a constant of zeros."""
        value = self.value(v)
        return value is not None and value.dtype.kind in "fiubcV" and not distinct(value).astype(np.float64).any()

    def value_at(self, v: int, batch: int, *, linear: bool = True) -> NDArray[Any]:
        """What a constant that differs is with another batch size.

        Args:
          v: the constant.
          batch: examples.
          linear: whether its elements are sizes; else one power of the batch size, such as 1 / examples.

        Raises:
          SplitError: they are not.
        """
        whole, other = self.value(v), constant_value(self._other[v])
        assert whole is not None
        name = self.nodes.names[v]
        if linear:
            ends = (distinct(whole), distinct(other))
            first, second = ends if ends[0].size == ends[1].size else (whole, other)
            sizes = [self._size(name, a, b, batch) for a, b in zip(first.flat, second.flat, strict=True)]
            return np.broadcast_to(np.array(sizes).reshape(first.shape).astype(whole.dtype), whole.shape)
        power = self.power(v)
        if power is None:
            expected = "a constant that is a power of the batch size, such as 1 / examples"
            raise SplitError(f"constant {name!r}, which depends on the batch size in an unknown way", expected)
        scale = (batch / self.batches[0]) ** power
        return np.broadcast_to(np.asarray(distinct(whole) * scale, whole.dtype), whole.shape)

    def is_size(self, v: int) -> bool:
        """Whether a constant that differs holds integers that every slice can have its own of."""
        whole = self.value(v)
        if whole is None or whole.dtype.kind not in "iu":
            return False
        try:
            for examples in self.slices:
                self.value_at(v, examples)
        except SplitError:  # such as the square of the batch size
            return False
        return True

    def power(self, v: int) -> int | None:
        """The power of the batch size that a constant's elements are proportional to; None if there is none."""
        if v not in self.differing:
            return 0
        whole, other = self.value(v), constant_value(self._other[v])
        assert whole is not None
        if whole.dtype.kind not in "fV" or whole.shape != other.shape:
            return None
        for power in (-1, 1):
            ratio = (self.batches[1] / self.batches[0]) ** power
            if np.allclose(distinct(whole).astype(np.float64) * ratio, distinct(other).astype(np.float64), rtol=1e-6):
                return power
        return None

    def size_at(self, v: int, slot: int, batch: int) -> tuple[int, ...] | None:
        """Shape of an output with another batch size; -1 for unknown dimensions."""
        whole, other = self.shapes(v, slot)
        if whole is None or other is None or len(whole) != len(other):
            return None
        name = self.nodes.names[v]
        return tuple(a if a == b or a < 0 else self._size(name, a, b, batch) for a, b in zip(whole, other, strict=True))

    def element_at(self, v: int, batch: int) -> TensorProperties | None:
        """Elements of a TensorList that an op has, with another batch size; None where it has no list."""
        whole, other = (
            p.list_element.get(n) for p, n in zip(self._both, (self.nodes.names[v], self._other[v].name), strict=True)
        )
        if whole is None or other is None or whole.shape is None or other.shape is None:
            return whole
        name = self.nodes.names[v]
        sizes = zip(whole.shape, other.shape, strict=True)
        shape = tuple(a if a == b or a < 0 else self._size(name, a, b, batch) for a, b in sizes)
        return replace(whole, shape=shape, symbols=None)

    def _size(self, name: str, whole: Any, other: Any, batch: int) -> int:
        if whole == other:
            return int(whole)
        size = int(whole) + Fraction(int(whole) - int(other), self.batches[0] - self.batches[1]) * (
            batch - self.batches[0]
        )
        if size.denominator != 1 or size < 0:
            raise SplitError(
                f"{name!r}, which has {whole} for {self.batches[0]} examples and {other} for {self.batches[1]}",
                f"a size that is linear in the number of examples, for {batch} examples",
            )
        return int(size)

    def varying(self, v: int, slot: int) -> tuple[tuple[int, ...] | None, bool]:
        """Axes of an output that depend on the batch, and whether each of them is a multiple of it."""
        whole, other = self.shapes(v, slot)
        if whole is None or other is None or len(whole) != len(other):
            return None, False
        axes = tuple(i for i, (a, b) in enumerate(zip(whole, other, strict=True)) if a != b)
        even = all(
            whole[i] % self.batches[0] == 0 and whole[i] * self.batches[1] == other[i] * self.batches[0] for i in axes
        )
        return axes, even

    def adapt(self, node: Any, v: int, batch: int) -> None:
        """Gives a copy of op v the attributes of another batch size, in place.

        Raises:
          SplitError: one differs in another way than a size.
        """
        if node.op == "AddN":
            return
        for key, value in self._other[v].attr.items():
            mine = self.nodes.defs[v].attr[key]
            if key.startswith("_") or key == "value" or mine == value:
                continue
            if value.WhichOneof("value") == "shape" and len(mine.shape.dim) == len(value.shape.dim):
                for own, a, b in zip(node.attr[key].shape.dim, mine.shape.dim, value.shape.dim, strict=True):
                    own.size = self._size(node.name, a.size, b.size, batch)
            elif value.WhichOneof("value") == "i":
                node.attr[key].i = self._size(node.name, mine.i, value.i, batch)
            elif key not in ("container", "shared_name"):
                expected = "an attribute that is a size, or the same for all batches"
                raise SplitError(f"op {node.name!r}, whose attribute {key!r} depends on the batch size", expected)


def _concat_offset(given: Sequence[NDArray[Any]], slot: int) -> NDArray[Any]:
    """Where a part begins of what is put together along an axis."""
    axis, parts = int(given[0]), given[1:]
    out = np.zeros(len(parts[slot]), np.int64)
    out[axis] = sum(int(part[axis]) for part in parts[:slot])
    return out


_COMPUTED: dict[str, Callable[[Sequence[NDArray[Any]], int], NDArray[Any]]] = {
    "ConcatOffset": _concat_offset,
    "FloorMod": lambda given, _: np.mod(*given),
}
"""Integers that Grappler leaves to the run, although they are known before it: they say where gradients are cut."""


def _shape(outputs: Sequence[TensorProperties], slot: int) -> tuple[int, ...] | None:
    return outputs[slot].shape if slot < len(outputs) else None


def same_ops(a: Nodes, b: Nodes, known: Mapping[str, str]) -> dict[str, str]:
    """Op of one trace -> the same op of another trace of the same program.

    That is one of the same type with the same inputs. Of several it is that of the same name, or the next in order: a
    trace makes some scopes unique (`sgd`, then `sgd_1`), so that names alone may mislead. A sum of sums is taken as one
    sum, whose parts have no other op: a gradient tape adds up what takes more than 128 MiB in several ops.

    Args:
      a: a trace.
      b: another.
      known: arguments and captures of `a` -> those of `b`.

    Raises:
      SplitError: the traces have different ops.
    """
    found = dict(known)
    for key in (_named_value, _name, _value):
        _match_constants(a, b, found, key)
    left: dict[tuple[Any, ...], dict[str, None]] = {}
    taken = set(found.values())
    for v in b.order:
        if b.names[v] not in taken and not _is_part(b, v):
            left.setdefault(_signature(b, v, None), {})[b.names[v]] = None
    for v in a.order:
        name = a.names[v]
        if name in found or _is_part(a, v):
            continue
        others = left.get(_signature(a, v, found))
        if not others:
            raise _unlike(a, v)
        match = name if name in others else next(iter(others))
        del others[match]
        found[name] = match
    for others in left.values():
        for name in others:
            raise _unlike(b, b.index[name])
    return found


def _match_constants(a: Nodes, b: Nodes, found: dict[str, str], key: Callable[[Any], Any]) -> None:
    """Matches constants that are alike, in their order."""
    taken = set(found.values())
    left: dict[Any, list[str]] = {}
    for node in b.defs:
        if node.op == "Const" and node.name not in taken:
            left.setdefault(key(node), []).append(node.name)
    for node in a.defs:
        if node.op == "Const" and node.name not in found and (others := left.get(key(node))):
            found[node.name] = others.pop(0)


def _name(node: Any) -> Any:
    return node.name, node.attr["dtype"].type


def _value(node: Any) -> Any:
    return node.attr["value"].tensor.SerializeToString(deterministic=True)


def _named_value(node: Any) -> Any:
    return node.name, _value(node)


def _signature(nodes: Nodes, v: int, found: Mapping[str, str] | None) -> tuple[Any, ...]:
    """Type and inputs of an op, by the names of the other trace; loops' back edges left out."""
    if nodes.types[v] == "Const":
        return nodes.types[v], nodes.defs[v].attr["dtype"].type
    forward = [(u, slot) for u, slot in nodes.data_inputs[v] if not nodes.is_back_edge(u, v)]
    if nodes.types[v] == "AddN":
        forward = _terms(nodes, v)
    inputs = [(nodes.names[u] if found is None else found[nodes.names[u]], slot) for u, slot in forward]
    return nodes.types[v], *(sorted(inputs) if nodes.types[v] == "AddN" else inputs)


def _is_part(nodes: Nodes, v: int) -> bool:
    """Whether an op is a sum that only another sum reads."""
    readers = nodes.consumers[v]
    return nodes.types[v] == "AddN" and len(readers) == 1 and nodes.types[readers[0][1]] == "AddN"


def _terms(nodes: Nodes, v: int) -> list[tuple[int, int]]:
    """What a sum and its parts add up."""
    out, ahead = [], [v]
    while ahead:
        for u, slot in nodes.data_inputs[ahead.pop()]:
            if _is_part(nodes, u):
                ahead.append(u)
            else:
                out.append((u, slot))
    return out


def _unlike(nodes: Nodes, v: int) -> SplitError:
    return SplitError(
        f"a step whose ops depend on the batch size: only one size has {nodes.types[v]} {nodes.names[v]!r}",
        "the same ops for every batch size",
    )
