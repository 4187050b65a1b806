"""Writes a step whose per-example ops stand once for each slice of the batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from grappler_bridge.item import TensorProperties
from tfplace.extraction.nodes import parse_input
from tfplace.extraction.shapes import Properties
from tfplace.transforms.constants import set_constant
from tfplace.transforms.graph_writer import GraphWriter
from tfplace.transforms.own_segments import SEGMENT_SUM
from tfplace.transforms.packing import Packing
from tfplace.transforms.propagation import Division
from tfplace.transforms.resharding import Resharding
from tfplace.transforms.sharding.draws import COUNTED, STATEFUL, per_count
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
    *,
    pack: bool = False,
) -> SlicedGraph:
    """Copies what slices have, and puts together, adds or divides what is read otherwise than it is held.

    Args:
      two: the unsplit step.
      division: of it.
      sizes: [K] examples of each slice.
      output_names: tensor names "op:k" of the step's results.
      control_outputs: names of ops that must run besides.
      pack: whether small vectors are sent together.

    Raises:
      SplitError: something cannot be put together, or depends on the batch size in an unknown way.
    """
    return _Slicer(two, division, tuple(sizes), pack=pack).write(output_names, control_outputs)


class _Slicer:
    """The graph as far as it is written."""

    def __init__(self, two: TwoSizes, division: Division, sizes: tuple[int, ...], *, pack: bool) -> None:
        self._two, self._nodes, self._division, self._sizes = two, two.nodes, division, sizes
        self._starts = (0, *itertools.accumulate(sizes))
        self._out = GraphWriter()
        self._packing = Packing(two, division, len(sizes), self._out) if pack else None
        self._held = Resharding(two, division, sizes, self._out, self._once, packing=self._packing)
        self._gathered: dict[str, None] = {}
        self._draws: dict[str, None] = {}

    def write(self, output_names: Sequence[str], control_outputs: Sequence[str]) -> SlicedGraph:
        for v in self._by_use():
            if self._division.copied[v]:
                for k in range(len(self._sizes)):
                    self._copy(v, k)
            else:
                self._once(v)
        results = [parse_input(name) for name in output_names]
        read = [self._held.whole(self._nodes.index[op], slot) for op, slot in results]
        if self._packing is not None:
            self._packing.finish()
        return SlicedGraph(
            self._out.graph_def,
            tuple(text if ":" in text else f"{text}:0" for text in read),
            tuple(name for op in control_outputs for name in self._all(self._nodes.index[op])),
            self._out.slice_of,
            self._out.original,
            Properties(self._out.outputs, self._out.elements),
            tuple(self._gathered),
            tuple(self._draws),
        )

    def _by_use(self) -> list[int]:
        """Ops in a topological order in which what needs no input of the step comes right before its first reader.

        What could run at once, such as reads of variables, would otherwise be sent to all slices before the inputs are,
        and not in the order in which it is needed: programs start ops that are ready, and send, in their order.
        """
        nodes = self._nodes
        early = [nodes.types[v] != "Placeholder" or bool(nodes.data_inputs[v]) for v in nodes.order]
        early = [e or self._two.dtypes(v)[0] == "resource" for v, e in enumerate(early)]
        for v in nodes.order:
            early[v] = early[v] and all(early[u] for u in nodes.forward_producers(v))
        out: dict[int, None] = {}
        for v in nodes.order:
            if early[v]:
                continue
            pending = [v]
            while pending:
                missing = [u for u in nodes.forward_producers(pending[-1]) if u not in out]
                if missing:
                    pending += missing
                else:
                    out[pending.pop()] = None
        return [*out, *(v for v in nodes.order if v not in out)]

    def _once(self, v: int) -> str:
        """An op on the whole batch, under its own name."""
        name, known = self._nodes.names[v], self._two.properties
        if name in self._out.names:
            return name
        inputs = self._nodes.data_inputs[v]
        node = self._out.add(name, name, known.outputs.get(name, []), element=known.list_element.get(name))
        node.CopyFrom(self._nodes.defs[v])
        texts = [self._held.whole(u, slot) for u, slot in inputs]
        if any(self._division.copied[u] and self._division.outputs[u][slot].is_rows for u, slot in inputs):
            self._gathered[name] = None
        del node.input[:]
        node.input.extend([*texts, *self._controls(v, None)])
        return name

    def _copy(self, v: int, k: int) -> None:
        """A slice's copy of an op."""
        original, name = self._nodes.names[v], self._held.copy_name(v, k)
        outputs = [self._held.properties(v, slot, k) for slot in range(len(self._two.dtypes(v)))]
        element = self._two.element_at(v, self._sizes[k])
        node = self._out.add(name, original, outputs, element=element, k=k)
        node.CopyFrom(self._nodes.defs[v])
        node.name = name
        readings = zip(self._nodes.data_inputs[v], self._division.readings[v], strict=True)
        texts = [self._held.read(u, slot, reading, k) for (u, slot), reading in readings]
        self._two.adapt(node, v, self._sizes[k])
        if node.op == "Const" and v in self._two.differing:
            set_constant(node, np.asarray(self._value(v, k)))
        if node.op in ("Enter", "RefEnter"):
            node.attr["frame_name"].s = f"slice{k}/".encode() + node.attr["frame_name"].s
        if node.op in STATEFUL:
            self._draws[original] = None
            if k and (node.attr["seed"].i or node.attr["seed2"].i):
                node.attr["seed2"].i += _SEED_STEP * k
        if node.op in COUNTED and self._division.outputs[v][0].is_rows:
            texts[2] = self._counter(v, k, texts[2])
        if node.op == SEGMENT_SUM and self._division.outputs[v][0].is_rows and self._division.readings[v][1].is_rows:
            texts[1] = self._own_segments(v, k, texts[1])
        del node.input[:]
        node.input.extend([*texts, *self._controls(v, k)])

    def _value(self, v: int, k: int) -> Any:
        """A constant's value for a slice: its rows of the whole's, or its sizes."""
        held, whole = self._division.outputs[v][0], self._two.value(v)
        assert whole is not None
        if not held.is_rows:
            return self._two.value_at(v, self._sizes[k])
        each = whole.shape[held.axis] // self._two.batches[0]
        at = [slice(None)] * whole.ndim
        at[held.axis] = slice(each * self._starts[k], each * self._starts[k + 1])
        return whole[tuple(at)]

    def _counter(self, v: int, k: int, counter: str) -> str:
        """Where a slice's draws begin: where the whole's are by then, if that can be told; else elsewhere."""
        shape, original = self._two.shapes(v, 0)[0], self._nodes.names[v]
        assert shape is not None
        axis = self._division.outputs[v][0].axis
        each = math.prod(shape[axis:]) // self._two.batches[0]
        count = per_count(self._nodes.types[v], self._two.dtypes(v)[0])
        exact = count > 0 and math.prod(shape[:axis]) == 1
        exact = exact and all(each * start % count == 0 for start in self._starts[1:-1])
        if not exact:
            self._draws[original] = None
        if k == 0:
            return counter
        skip = np.array([each * self._starts[k] // count, 0] if exact else [0, k], np.uint64)
        name = f"{self._held.copy_name(v, k)}/counter"
        by = self._out.constant(f"{name}/skip", original, skip, k, beside=parse_input(counter)[0])
        return self._out.op("AddV2", name, original, (counter, by), [TensorProperties(tf.uint64, (2,), None)], k=k)

    def _own_segments(self, v: int, k: int, ids: str) -> str:
        """Numbers of segments of the batch as those of the slice, which are fewer by the ones before it."""
        shape = self._two.shapes(v, 0)[0]
        assert shape is not None  # its first axis is the batch's
        if k == 0:
            return ids
        like = self._held.properties(*self._nodes.data_inputs[v][1], k)
        before = np.array(shape[0] // self._two.batches[0] * self._starts[k], like.dtype.as_numpy_dtype)
        name, original = f"{self._held.copy_name(v, k)}/segments", self._nodes.names[v]
        first = self._out.constant(f"{name}/before", original, before, k, beside=parse_input(ids)[0])
        return self._out.op("Sub", name, original, (ids, first), [like], k=k)

    def _controls(self, v: int, k: int | None) -> list[str]:
        """Control inputs of an op: of the same slice where there is one, else of all."""
        out: list[str] = []
        for u in self._nodes.control_inputs[v]:
            own = k is not None and self._division.copied[u]
            out += [f"^{name}" for name in ([self._held.copy_name(u, k or 0)] if own else self._all(u))]
        return out

    def _all(self, v: int) -> list[str]:
        """Names of an op, or of all its copies."""
        if not self._division.copied[v]:
            return [self._nodes.names[v]]
        return [self._held.copy_name(v, k) for k in range(len(self._sizes))]
