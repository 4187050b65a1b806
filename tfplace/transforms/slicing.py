"""Writes a step whose per-example ops stand once for each slice of the batch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from grappler_bridge.item import TensorProperties
from tfplace.errors import SplitError
from tfplace.extraction.nodes import parse_input
from tfplace.extraction.shapes import Properties
from tfplace.transforms.propagation import Division
from tfplace.transforms.sharding.draws import COUNTED, STATEFUL, per_count
from tfplace.transforms.sharding.state import Kind, Sharding
from tfplace.transforms.two_sizes import TwoSizes

_SEED_STEP = 7919
"""By how much seeds of slices differ where a kernel draws by its own seed: a prime."""


@dataclass(frozen=True)
class SlicedGraph:
    """A step in slices.

    Attributes:
      graph_def: its flat `GraphDef`.
      output_names: tensor names "op:k", in the order of the step's outputs.
      control_outputs: names of ops that must run besides.
      slice_of: op name -> its slice, for copies.
      original: op name -> the op of the unsplit step that it stems from.
      properties: shapes of all tensors.
      gathered: ops that are given the rows of all slices.
      draws: ops that draw other numbers than the unsplit step's.
    """

    graph_def: Any
    output_names: tuple[str, ...]
    control_outputs: tuple[str, ...]
    slice_of: Mapping[str, int]
    original: Mapping[str, str]
    properties: Properties
    gathered: tuple[str, ...]
    draws: tuple[str, ...]


def slice_step(
    two: TwoSizes,
    division: Division,
    sizes: Sequence[int],
    output_names: Sequence[str],
    control_outputs: Sequence[str],
) -> SlicedGraph:
    """Copies what slices have, and puts together, adds or divides what is read otherwise than it is held.

    Args:
      two: the unsplit step.
      division: of it.
      sizes: [K] examples of each slice.
      output_names: tensor names "op:k" of the step's results.
      control_outputs: names of ops that must run besides.

    Raises:
      SplitError: something cannot be put together, or depends on the batch size in an unknown way.
    """
    return _Writer(two, division, tuple(sizes)).write(output_names, control_outputs)


class _Writer:
    """The graph as far as it is written."""

    def __init__(self, two: TwoSizes, division: Division, sizes: tuple[int, ...]) -> None:
        self._two, self._nodes, self._division, self._sizes = two, two.nodes, division, sizes
        self._batch = two.batches[0]
        self._starts = (0, *itertools.accumulate(sizes))
        self._graph = tf.compat.v1.GraphDef()
        self._names: set[str] = set()
        self._slice_of: dict[str, int] = {}
        self._original: dict[str, str] = {}
        self._outputs: dict[str, list[TensorProperties]] = {}
        self._elements: dict[str, TensorProperties] = {}
        self._made: dict[tuple[Any, ...], str] = {}
        self._gathered: set[int] = set()
        self._draws: set[int] = set()

    def write(self, output_names: Sequence[str], control_outputs: Sequence[str]) -> SlicedGraph:
        for v in self._nodes.order:
            if self._division.copied[v]:
                for k in range(len(self._sizes)):
                    self._copy(v, k)
            else:
                self._once(v)
        results = [parse_input(name) for name in output_names]
        read = [self._whole(self._nodes.index[op], slot, None) for op, slot in results]
        outputs = [text if ":" in text else f"{text}:0" for text in read]
        controls = [name for op in control_outputs for name in self._copies(self._nodes.index[op])]
        names = self._nodes.names
        return SlicedGraph(
            self._graph,
            tuple(outputs),
            tuple(controls),
            self._slice_of,
            self._original,
            Properties(self._outputs, self._elements),
            tuple(names[v] for v in sorted(self._gathered)),
            tuple(names[v] for v in sorted(self._draws)),
        )

    # ---- ops of the step ---------------------------------------------------------------------------------------------

    def _once(self, v: int) -> str:
        """An op on the whole batch, under its own name."""
        name = self._nodes.names[v]
        if name in self._names:
            return name
        node = self._add(
            name, v, self._two.properties.outputs.get(name, []), self._two.properties.list_element.get(name)
        )
        node.CopyFrom(self._nodes.defs[v])
        del node.input[:]
        texts = [self._whole(u, slot, None) for u, slot in self._nodes.data_inputs[v]]
        if any(
            self._division.outputs[u][s].is_rows and self._division.copied[u] for u, s in self._nodes.data_inputs[v]
        ):
            self._gathered.add(v)
        node.input.extend([*texts, *self._controls(v, None)])
        return name

    def _copy(self, v: int, k: int) -> None:
        """A slice's copy of an op."""
        name = self._name(v, k)
        shapes = [self._properties(v, slot, k) for slot in range(len(self._two.dtypes(v)))]
        node = self._add(name, v, shapes, self._two.element_at(v, self._sizes[k]), k)
        node.CopyFrom(self._nodes.defs[v])
        node.name = name
        del node.input[:]
        pairs = zip(self._nodes.data_inputs[v], self._division.readings[v], strict=True)
        texts = [self._read(u, slot, reading, k) for (u, slot), reading in pairs]
        if node.op == "Const":
            self._give_value(node, v, k)
        self._two.adapt(node, v, self._sizes[k])
        if node.op in ("Enter", "RefEnter"):
            node.attr["frame_name"].s = f"slice{k}/".encode() + node.attr["frame_name"].s
        if node.op in STATEFUL:
            self._draws.add(v)
            if k and (node.attr["seed"].i or node.attr["seed2"].i):
                node.attr["seed2"].i += _SEED_STEP * k
        if node.op in COUNTED and k and self._division.outputs[v][0].is_rows:
            texts[2] = self._counter(v, k, texts[2])
        node.input.extend([*texts, *self._controls(v, k)])

    def _properties(self, v: int, slot: int, k: int) -> TensorProperties:
        dtype = tf.dtypes.as_dtype(self._two.dtypes(v)[slot])
        known = self._two.properties.outputs.get(self._nodes.names[v], [])
        sharding = self._division.outputs[v][slot]
        value = known[slot].value if slot < len(known) and sharding.is_whole else None
        return TensorProperties(dtype, self._two.size_at(v, slot, self._sizes[k]), value)

    def _give_value(self, node: Any, v: int, k: int) -> None:
        """A constant's value for a slice: its rows of the whole's, or its sizes."""
        if v not in self._two.differing:
            return
        held = self._division.outputs[v][0]
        if held.is_rows:
            whole = self._two.value(v)
            assert whole is not None
            each = whole.shape[held.axis] // self._batch
            at = [slice(None)] * whole.ndim
            at[held.axis] = slice(each * self._starts[k], each * self._starts[k + 1])
            value = whole[tuple(at)]
        else:
            value = self._two.value_at(v, self._sizes[k])
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, node.attr["dtype"].type, value.shape))

    def _counter(self, v: int, k: int, counter: str) -> str:
        """Where a slice's draws begin: where the whole's are by then, if that can be told; else elsewhere."""
        shape = self._two.shapes(v, 0)[0]
        assert shape is not None
        axis = self._division.outputs[v][0].axis
        each = int(np.prod(shape[axis:], dtype=np.int64)) // self._batch
        together = int(np.prod(shape[:axis], dtype=np.int64)) == 1
        count = per_count(self._nodes.types[v], self._two.dtypes(v)[0])
        exact = together and bool(count) and all(each * start % count == 0 for start in self._starts[1:-1])
        if not exact:
            self._draws.add(v)
        skip = np.array([each * self._starts[k] // count, 0] if exact else [0, k], np.uint64)
        name = f"{self._name(v, k)}/counter"
        by = self._constant(f"{name}/skip", v, skip, k)
        self._binary("AddV2", name, v, counter, by, tf.uint64, (2,), k)
        return name

    def _controls(self, v: int, k: int | None) -> list[str]:
        """Control inputs of an op: of the same slice where there is one, else of all."""
        out: list[str] = []
        for u in self._nodes.control_inputs[v]:
            names = [self._name(u, k)] if k is not None and self._division.copied[u] else self._copies(u)
            out += [f"^{name}" for name in names]
        return out

    def _name(self, v: int, k: int) -> str:
        return f"slice{k}/{self._nodes.names[v]}"

    def _copies(self, v: int) -> list[str]:
        """Names of an op, or of all its copies."""
        if not self._division.copied[v]:
            return [self._nodes.names[v]]
        return [self._name(v, k) for k in range(len(self._sizes))]

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _read(self, u: int, slot: int, reading: Sharding, k: int) -> str:
        """What slice k reads of an output."""
        if reading.is_whole:
            return self._whole(u, slot, k)
        if self._division.copied[u]:
            return _tensor(self._name(u, k), slot)
        if reading.kind is Kind.LOCAL and self._nodes.types[u] == "Const":
            value = self._two.value_at(u, self._sizes[k], linear=False)
            return self._constant(f"{self._name(u, k)}/of_slice", u, value, k)
        return self._piece(u, slot, k)

    def _whole(self, u: int, slot: int, k: int | None) -> str:
        """All of an output, for slice k or for what stands once."""
        held = self._division.outputs[u][slot]
        if not self._division.copied[u]:
            return _tensor(self._nodes.names[u], slot)
        if held.is_whole:
            return _tensor(self._name(u, k or 0), slot)
        key = ("whole", u, slot)
        if key not in self._made:
            if held.kind is Kind.SIZE:
                self._made[key] = self._whole_size(u, slot)
            elif self._two.dtypes(u)[slot] in ("variant", "resource"):
                raise SplitError(
                    f"a list of {self._nodes.names[u]!r} that all slices fill and one op reads",
                    "lists that slices read",
                )
            else:
                parts = [_tensor(self._name(u, i), slot) for i in range(len(self._sizes))]
                self._made[key] = self._gather(u, slot, parts) if held.is_rows else self._combine(u, slot, parts)
        return self._made[key]

    def _whole_size(self, u: int, slot: int) -> str:
        """Sizes with the whole batch."""
        if self._nodes.types[u] in ("Shape", "ShapeN", "Size"):
            source, at = self._nodes.data_inputs[u][slot]
            shape = self._two.shapes(source, at)[0]
            if shape is not None and min(shape, default=0) >= 0:
                kind = tf.dtypes.as_dtype(self._two.dtypes(u)[slot]).as_numpy_dtype
                value = np.prod(shape, dtype=kind) if self._nodes.types[u] == "Size" else np.array(shape, kind)
                return self._constant(f"{self._nodes.names[u]}/whole{slot}", u, np.asarray(value), None)
        return _tensor(self._once(u), slot)

    def _piece(self, u: int, slot: int, k: int) -> str:
        """A slice's rows of what stands once."""
        held = self._division.outputs[u][slot]
        key = ("pieces", u, slot)
        if key not in self._made:
            name = self._free(f"{self._nodes.names[u]}/slices{slot or ''}")
            shape = self._two.shapes(u, slot)[0]
            assert shape is not None
            each = shape[held.axis] // self._batch
            lengths = self._constant(f"{name}/rows", u, np.array(self._sizes, np.int64) * each, None)
            axis = self._constant(f"{name}/axis", u, np.array(held.axis, np.int32), None)
            dtype = tf.dtypes.as_dtype(self._two.dtypes(u)[slot])
            shapes = [self._properties(u, slot, i) for i in range(len(self._sizes))]
            node = self._add(name, u, shapes)
            node.op = "SplitV"
            node.input.extend([_tensor(self._nodes.names[u], slot), lengths, axis])
            node.attr["T"].type = dtype.as_datatype_enum
            node.attr["Tlen"].type = tf.int64.as_datatype_enum
            node.attr["num_split"].i = len(self._sizes)
            self._made[key] = name
        return _tensor(self._made[key], k)

    def _gather(self, u: int, slot: int, parts: list[str]) -> str:
        """The rows of all slices, in the order of the whole."""
        held = self._division.outputs[u][slot]
        name = self._free(f"{self._nodes.names[u]}/gathered{slot or ''}")
        shape, axis = self._two.shapes(u, slot)[0], held.axis
        if held.outer > 1:
            parts = [self._grouped(f"{name}/group{k}", u, slot, k, text) for k, text in enumerate(parts)]
            axis += 1
        dtype = tf.dtypes.as_dtype(self._two.dtypes(u)[slot])
        at = self._constant(f"{name}/axis", u, np.array(axis, np.int32), None)
        joined = name if held.outer == 1 else f"{name}/groups"
        inner = shape if held.outer == 1 or shape is None else _grouped_shape(shape, held)
        node = self._add(joined, u, [TensorProperties(dtype, inner, None)])
        node.op = "ConcatV2"
        node.input.extend([*parts, at])
        node.attr["T"].type = dtype.as_datatype_enum
        node.attr["Tidx"].type = tf.int32.as_datatype_enum
        node.attr["N"].i = len(parts)
        if held.outer > 1:
            self._reshape(name, u, joined, shape, dtype, None)
        return name

    def _grouped(self, name: str, u: int, slot: int, k: int, text: str) -> str:
        shape = self._two.size_at(u, slot, self._sizes[k])
        dtype = tf.dtypes.as_dtype(self._two.dtypes(u)[slot])
        held = self._division.outputs[u][slot]
        return self._reshape(name, u, text, None if shape is None else _grouped_shape(shape, held), dtype, k)

    def _reshape(self, name: str, u: int, text: str, shape: tuple[int, ...] | None, dtype: Any, k: int | None) -> str:
        if shape is None or min(shape, default=0) < 0:
            raise SplitError(f"{self._nodes.names[u]!r} of unknown shape, whose rows are in groups", "known shapes")
        to = self._constant(f"{name}/shape", u, np.array(shape, np.int32), k)
        node = self._add(name, u, [TensorProperties(dtype, shape, None)], k=k)
        node.op = "Reshape"
        node.input.extend([text, to])
        node.attr["T"].type = dtype.as_datatype_enum
        node.attr["Tshape"].type = tf.int32.as_datatype_enum
        return name

    def _combine(self, u: int, slot: int, parts: list[str]) -> str:
        """The sum of slices' terms, or the mean of their own values, weighted by their examples."""
        held = self._division.outputs[u][slot]
        name = self._free(f"{self._nodes.names[u]}/combined{slot or ''}")
        dtype, shape = tf.dtypes.as_dtype(self._two.dtypes(u)[slot]), self._two.shapes(u, slot)[0]
        mean = held.mean or (held.kind is Kind.LOCAL and not held.extensive)
        if mean and not dtype.is_floating:
            raise SplitError(f"{self._nodes.names[u]!r}, a mean of {dtype.name}", "means of floating-point numbers")
        equal = len(set(self._sizes)) == 1
        if mean and not equal:
            weights = [n / self._batch for n in self._sizes]
            parts = [
                self._scaled(f"{name}/weighted{k}", u, text, w, dtype, shape, k)
                for k, (text, w) in enumerate(zip(parts, weights, strict=True))
            ]
        total = f"{name}/sum" if mean and equal else name
        node = self._add(total, u, [TensorProperties(dtype, shape, None)])
        node.op = "AddN"
        node.input.extend(parts)
        node.attr["T"].type = dtype.as_datatype_enum
        node.attr["N"].i = len(parts)
        if mean and equal:
            self._scaled(name, u, total, 1 / len(parts), dtype, shape, None)
        return name

    # ---- ops that are new --------------------------------------------------------------------------------------------

    def _scaled(
        self, name: str, u: int, text: str, by: float, dtype: Any, shape: tuple[int, ...] | None, k: int | None
    ) -> str:
        weight = self._constant(f"{name}/weight", u, np.array(by, dtype.as_numpy_dtype), k)
        return self._binary("Mul", name, u, text, weight, dtype, shape, k)

    def _binary(
        self, op: str, name: str, u: int, a: str, b: str, dtype: Any, shape: tuple[int, ...] | None, k: int | None
    ) -> str:
        node = self._add(name, u, [TensorProperties(dtype, shape, None)], k=k)
        node.op = op
        node.input.extend([a, b])
        node.attr["T"].type = dtype.as_datatype_enum
        return name

    def _constant(self, name: str, u: int, value: Any, k: int | None) -> str:
        if name in self._names:
            return name
        proto = tf.make_tensor_proto(value, shape=value.shape)
        dtype = tf.dtypes.as_dtype(proto.dtype)
        known = tuple(int(x) for x in value.ravel()) if dtype.is_integer and value.size <= 16 else None
        node = self._add(name, u, [TensorProperties(dtype, value.shape, known)], k=k)
        node.op = "Const"
        node.attr["dtype"].type = proto.dtype
        node.attr["value"].tensor.CopyFrom(proto)
        return name

    def _add(
        self,
        name: str,
        u: int,
        outputs: Sequence[TensorProperties],
        element: TensorProperties | None = None,
        k: int | None = None,
    ) -> Any:
        if name in self._names:
            raise SplitError(f"a step that has an op {name!r} of its own", "no names that copies would have")
        self._names.add(name)
        self._original[name] = self._nodes.names[u]
        self._outputs[name] = list(outputs)
        if element is not None:
            self._elements[name] = element
        if k is not None:
            self._slice_of[name] = k
        node = self._graph.node.add()
        node.name = name
        return node

    def _free(self, name: str) -> str:
        while name in self._names or name in self._nodes.index:
            name += "_"
        return name


def _tensor(name: str, slot: int) -> str:
    return f"{name}:{slot}" if slot else name


def _grouped_shape(shape: tuple[int, ...], held: Sharding) -> tuple[int, ...]:
    """A shape whose batch axis is made two: groups, and the rows in each."""
    return (*shape[: held.axis], held.outer, shape[held.axis] // held.outer, *shape[held.axis + 1 :])
