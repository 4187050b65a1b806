"""OpGraph: one training or inference step as a flat graph of ops, tensors and control edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray, digest, freeze
from tfplace.core.slices import Slices
from tfplace.errors import GraphError
from tfplace.files import write_whole
from tfplace.registry import SERVICES

_MOST_BYTES = 2.0**62
"""The tensors and variables of a step must take fewer bytes than this, so that sums of bytes are exact."""

AttrValue = bool | int | float | str | tuple[Any, ...]
Shape = tuple[int, ...] | None


@dataclass(frozen=True)
class Variable:
    """State that is kept between steps: a weight, an optimizer slot, a metric, or a seed.

    Attributes:
      name: the variable's own name.
      op: index of the op that produces its handle.
      size_bytes: size in bytes.
      trainable: whether training updates it.
    """

    name: str
    op: int
    size_bytes: int
    trainable: bool = False


@dataclass(frozen=True)
class UnknownShape:
    """A tensor whose static shape is unknown, and the rule by which its bytes were estimated.

    Attributes:
      tensor: index of the tensor.
      op: name of the op that produces it.
      shape: the known part of the shape; None for unknown rank, -1 for an unknown dimension.
      rule: the rule, in words.
    """

    tensor: int
    op: str
    shape: Shape
    rule: str


@dataclass(frozen=True)
class Body:
    """A function that an op calls and that could not be inlined, so that its ops can only be placed with the op.

    Attributes:
      op: index of the op.
      runs: executions of the function in one execution of the op; 1 if unknown.
      graph: the ops of the function; None for a Python function, or if the function cannot be read.
    """

    op: int
    runs: float
    graph: OpGraph | None


@runtime_checkable
class Origin(Protocol):
    """The program that a graph was read from. It makes the graph's MetaGraphDef and runs it. See `tfplace.extract`."""

    @property
    def description(self) -> str:
        """One line for reports, such as "Keras model 'inception_v3', training step"."""

    def metagraph(self, devices: Mapping[str, str] | None = None) -> Any:
        """The graph as a `MetaGraphDef`. Ops in `devices` (op name -> TensorFlow device) get their device."""


@dataclass(frozen=True, eq=False, repr=False)
class OpGraph:
    """One step as a flat dataflow graph of ops, in topological order.

    Edges lead from lower to higher op indices. The exceptions are loop back edges (`edge_back`), which close a
    `tf.while_loop` and impose no order within a step.

    Attributes:
      name: name of the graph in reports.
      op_names: [V] unique op names.
      op_types: [V] TensorFlow op types, such as "Conv2D".
      op_attrs: [V] attributes that are numbers, strings or lists of numbers; no shapes, functions or tensors.
      tensor_op: [T] the op that produces the tensor; non-decreasing.
      tensor_slot: [T] output index of the tensor at that op.
      tensor_dtype: [T] dtype names, such as "float32".
      tensor_shape: [T] shapes, with unknown dimensions filled by the rules in `unknown`; None if the rank is unknown.
      tensor_bytes: [T] bytes of the tensor in one execution of its op.
      edge_src: [E] the producing op.
      edge_dst: [E] the consuming op.
      edge_tensor: [E] the tensor, or -1 for a control edge.
      edge_slot: [E] input index at the consuming op, or -1 for a control edge.
      edge_back: [E] whether the edge closes a loop.
      trips: [V] executions of the op in one step; above 1 only inside loops.
      colocation: [V] id of the op's colocation group (attribute `_class`), or -1.
      resource: [V] id of the set of ops that use the same resource or reference variable, or -1. The ops of a set must
        be on one device: TensorFlow would silently move them together.
      kernel_types: device types whose kernels were looked up, such as ("CPU", "GPU").
      has_kernel: [V, len(kernel_types)] whether the op has a kernel for the device type.
      host_memory: [V] whether the op's GPU kernel leaves all its outputs in host memory.
      replicable: [V] whether the op is a constant small enough to be copied to every device that reads it. It then
        follows its consumers.
      variables: state kept between steps.
      unknown: tensors whose size is an estimate by a stated rule.
      bodies: functions that could not be inlined, such as the function of a `ScanDataset`.
      fetches: names of the ops whose results the step returns, or that it must run.
      slices: how the step was split along its batch; None for a whole step.
      recomputes: [V] for a copy that computes an op's results again for the backward pass, that op; for all other ops,
        -1. None if nothing is computed again. See `tfplace.rematerialize`.
      origin: the program it was read from; None for a graph made from plain arrays or loaded from an archive.

    Raises:
      GraphError: arrays have wrong lengths or indices out of range, ops are not in topological order, or sizes are
        negative or too large.
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    op_attrs: tuple[Mapping[str, AttrValue], ...]
    tensor_op: IntArray
    tensor_slot: IntArray
    tensor_dtype: tuple[str, ...]
    tensor_shape: tuple[Shape, ...]
    tensor_bytes: LongArray
    edge_src: IntArray
    edge_dst: IntArray
    edge_tensor: IntArray
    edge_slot: IntArray
    edge_back: BoolArray
    trips: FloatArray
    colocation: IntArray
    resource: IntArray
    kernel_types: tuple[str, ...]
    has_kernel: BoolArray
    host_memory: BoolArray
    replicable: BoolArray
    variables: tuple[Variable, ...] = ()
    unknown: tuple[UnknownShape, ...] = ()
    bodies: tuple[Body, ...] = ()
    fetches: tuple[str, ...] = ()
    slices: Slices | None = None
    recomputes: IntArray | None = None
    origin: Origin | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check()
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                freeze(value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles everything except the origin, which belongs to TensorFlow."""
        return type(self), (*(getattr(self, f.name) for f in fields(self) if f.name != "origin"),)

    def _check(self) -> None:
        v, t, e = self.num_ops, self.num_tensors, self.num_edges
        lengths = {
            "op_types": (len(self.op_types), v),
            "op_attrs": (len(self.op_attrs), v),
            "trips": (len(self.trips), v),
            "colocation": (len(self.colocation), v),
            "resource": (len(self.resource), v),
            "has_kernel": (len(self.has_kernel), v),
            "host_memory": (len(self.host_memory), v),
            "replicable": (len(self.replicable), v),
            "tensor_slot": (len(self.tensor_slot), t),
            "tensor_dtype": (len(self.tensor_dtype), t),
            "tensor_shape": (len(self.tensor_shape), t),
            "tensor_bytes": (len(self.tensor_bytes), t),
            "edge_dst": (len(self.edge_dst), e),
            "edge_tensor": (len(self.edge_tensor), e),
            "edge_slot": (len(self.edge_slot), e),
            "edge_back": (len(self.edge_back), e),
        }
        for what, (got, want) in lengths.items():
            if got != want:
                raise GraphError(f"{what} of length {got}", f"length {want}")
        if v == 0:
            raise GraphError("a graph without ops", "at least one op", "Check that the model was built and traced.")
        if len(set(self.op_names)) != v:
            raise GraphError("duplicate op names", "unique op names")
        for what, array, bound in (
            ("tensor_op", self.tensor_op, v),
            ("edge_src", self.edge_src, v),
            ("edge_dst", self.edge_dst, v),
            ("edge_tensor", self.edge_tensor, t),
        ):
            low = -1 if what == "edge_tensor" else 0
            if array.size and (array.min() < low or array.max() >= bound):
                raise GraphError(f"{what} with an index outside {low}..{bound - 1}", "indices of this graph")
        if np.any(np.diff(self.tensor_op) < 0):
            raise GraphError("tensors out of order", "tensors sorted by producing op")
        if self.slices is not None and len(self.slices.slice_of) != v:
            raise GraphError(f"slices of {len(self.slices.slice_of)} ops", f"slices of {v} ops")
        if self.recomputes is not None:
            self._check_recomputes(self.recomputes)
        data = self.edge_tensor >= 0
        if np.any(self.tensor_op[self.edge_tensor[data]] != self.edge_src[data]):
            raise GraphError("an edge that carries another op's tensor", "`edge_tensor` of the op in `edge_src`")
        if np.any(self.tensor_slot != np.arange(t) - np.searchsorted(self.tensor_op, self.tensor_op)):
            raise GraphError("tensors whose slots do not count an op's outputs", "slots from 0 on for each op")
        if np.any(self.tensor_bytes < 0) or any(variable.size_bytes < 0 for variable in self.variables):
            raise GraphError("a tensor or variable of negative size", "bytes of at least 0")
        if not np.all(np.isfinite(self.trips)) or np.any(self.trips < 0):
            raise GraphError("negative or non-finite trips", "finite trips of at least 0")
        held = float(np.sum(self.tensor_bytes * self.trips[self.tensor_op], dtype=np.float64))
        held += sum(float(variable.size_bytes) for variable in self.variables)
        if held >= _MOST_BYTES:
            raise GraphError(f"a graph whose step makes and keeps {held:.3g} bytes", f"fewer than {_MOST_BYTES:.3g}")
        if self.has_kernel.shape != (v, len(self.kernel_types)):
            raise GraphError(f"has_kernel of shape {self.has_kernel.shape}", f"[{v}, {len(self.kernel_types)}]")
        for variable in self.variables:
            if not 0 <= variable.op < v:
                raise GraphError(f"variable {variable.name!r} of op {variable.op}", f"an op index in 0..{v - 1}")
        for body in self.bodies:
            if not 0 <= body.op < v:
                raise GraphError(f"a function of op {body.op}", f"an op index in 0..{v - 1}")
        forward = ~self.edge_back
        if np.any(self.edge_src[forward] >= self.edge_dst[forward]):
            bad = int(np.flatnonzero(forward & (self.edge_src >= self.edge_dst))[0])
            raise GraphError(
                f"edge {self.op_names[self.edge_src[bad]]} -> {self.op_names[self.edge_dst[bad]]} against the op order",
                "ops in a topological order (loop back edges marked)",
            )

    def _check_recomputes(self, recomputes: IntArray) -> None:
        if recomputes.shape != (self.num_ops,):
            raise GraphError(f"recomputed ops of shape {recomputes.shape}", f"shape ({self.num_ops},)")
        if recomputes.min() < -1 or recomputes.max() >= self.num_ops:
            raise GraphError("an op that recomputes an unknown op", f"an op index in 0..{self.num_ops - 1}, or -1")
        for v in np.flatnonzero(recomputes >= 0).tolist():
            u = int(recomputes[v])
            if recomputes[u] >= 0 or self.op_types[u] != self.op_types[v]:
                raise GraphError(
                    f"{self.op_names[v]!r} ({self.op_types[v]}), which recomputes {self.op_names[u]!r} "
                    f"({self.op_types[u]})",
                    "an original op of the same type",
                )

    @property
    def num_ops(self) -> int:
        """V, the number of ops."""
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        """T, the number of tensors."""
        return len(self.tensor_op)

    @property
    def num_edges(self) -> int:
        """E, the number of edges."""
        return len(self.edge_src)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Maps each op name to its index."""
        return {name: i for i, name in enumerate(self.op_names)}

    @cached_property
    def base_names(self) -> tuple[str, ...]:
        """[V] name of each op in the model's original step, from which scopes and layers are derived."""
        names = self.op_names if self.slices is None else self.slices.original
        if self.recomputes is None:
            return names
        return tuple(names[v if u < 0 else u] for v, u in enumerate(self.recomputes.tolist()))

    @cached_property
    def op_tensors(self) -> IntArray:
        """[V + 1] offsets: op v produces tensors `op_tensors[v]` to `op_tensors[v + 1] - 1`."""
        return np.searchsorted(self.tensor_op, np.arange(self.num_ops + 1)).astype(np.int32)

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """[V] tensors that each op reads, by input index, without control inputs."""
        order = np.lexsort((self.edge_tensor, self.edge_slot, self.edge_dst))
        order = order[self.edge_tensor[order] >= 0]
        tensors = self.edge_tensor[order].tolist()
        ends = np.searchsorted(self.edge_dst[order], np.arange(self.num_ops), "right").tolist()
        return tuple(tuple(tensors[start:end]) for start, end in zip([0, *ends], ends, strict=False))

    @cached_property
    def persistent_bytes(self) -> LongArray:
        """[V] bytes of the variables whose handle the op produces; 0 for other ops."""
        out = np.zeros(self.num_ops, np.int64)
        for variable in self.variables:
            out[variable.op] += variable.size_bytes
        return out

    @cached_property
    def layers(self) -> Mapping[str, IntArray]:
        """Maps each layer's name to the indices of its ops, in the order of the forward pass.

        The ops of a layer are its forward ops, gradients, and updates of its variables; see
        `tfplace.group.layer_ops.layers_of`. Rules in `Constraints` use these names after "layer:".
        """
        layers: Mapping[str, IntArray] = SERVICES["graph_layers"](self)
        return layers

    @cached_property
    def fingerprint(self) -> str:
        """A hash of ops, edges, shapes and sizes. It is the same on every machine and in every process."""
        return digest(
            [
                "\n".join(self.op_names),
                "\n".join(self.op_types),
                self.tensor_op,
                self.tensor_bytes,
                repr(self.tensor_shape),
                self.edge_src,
                self.edge_dst,
                self.edge_tensor,
                self.edge_slot,
                self.trips,
                *(f"{v.name}:{v.op}:{v.size_bytes}" for v in self.variables),
                *(f"{b.op}:{b.runs}:{b.graph.fingerprint}" for b in self.bodies if b.graph is not None),
            ]
        )

    @cached_property
    def content(self) -> str:
        """A hash of everything that matters to a placement, including what `fingerprint` leaves out.

        `fingerprint` identifies the model of a placement file. `content` identifies graphs in memory that are placed
        and simulated in the same way.
        """
        split: list[Any] = []
        if (s := self.slices) is not None:
            split = [repr((s.sizes, s.gathered, s.differences)), s.slice_of, "\n".join(s.original)]
        again: list[Any] = [] if self.recomputes is None else ["recomputes", self.recomputes]
        return digest(
            [
                self.fingerprint,
                self.colocation,
                self.resource,
                repr(self.kernel_types),
                self.has_kernel,
                self.host_memory,
                self.replicable,
                self.edge_back,
                self.tensor_slot,
                "\n".join(self.tensor_dtype),
                repr([sorted(attributes.items()) for attributes in self.op_attrs]),
                *split,
                *again,
            ]
        )

    def metagraph(self, devices: Mapping[str, str] | None = None) -> Any:
        """The graph as a TensorFlow `MetaGraphDef`.

        Args:
          devices: op name -> TensorFlow device, to be written into the nodes. By default none are written.

        Raises:
          GraphError: the graph was made from plain arrays or loaded from a file, and so has no TensorFlow program.
        """
        if self.origin is None:
            raise GraphError(
                "a graph made from plain arrays or loaded from a file",
                "a graph read from TensorFlow in this process",
                "Use tfplace.extract(model, batch) again: a placement fits if the graph has fingerprint "
                f"{self.fingerprint}.",
            )
        return self.origin.metagraph(devices)

    def save(self, path: str | Path, devices: Mapping[str, str] | None = None) -> None:
        """Writes the graph to an archive or a MetaGraphDef, depending on the file's name.

        Args:
          path: a name that ends in ".npz" gives an archive with everything except `origin`, for `load`; see
            `tfplace.io.archive`. Any other name gives `metagraph(devices)`, as text if the name ends in "txt", else
            binary.
          devices: op name -> TensorFlow device; only for a MetaGraphDef.

        Raises:
          GraphError: a MetaGraphDef of a graph without a TensorFlow program, or devices for an archive.
          UnwrittenError: the file cannot be written.
        """
        if SERVICES["is_archive"](path):
            if devices is not None:
                raise GraphError(f"devices for {str(path)!r}", "devices for a MetaGraphDef only, such as placed.meta")
            SERVICES["save_archive"](self, path)
            return
        meta = self.metagraph(devices)
        write_whole(path, str(meta) if str(path).endswith("txt") else meta.SerializeToString())

    @classmethod
    def load(cls, path: str | Path) -> OpGraph:
        """Reads a ".npz" file that `save` wrote, without TensorFlow. The graph has no `origin`, so it cannot be run.

        Raises:
          InputError: `path` is not a path.
          SourceError: no such file, or no complete archive that this version can read.
        """
        graph: OpGraph = SERVICES["load_graph"](path)
        return graph

    def __repr__(self) -> str:
        return (
            f"OpGraph({self.name!r}, {self.num_ops} ops, {self.num_tensors} tensors, {self.num_edges} edges, "
            f"{len(self.variables)} variables, fingerprint {self.fingerprint})"
        )
