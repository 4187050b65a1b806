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
"""More than all tensors of a step may take together, so that sums of bytes are exact."""

AttrValue = bool | int | float | str | tuple[Any, ...]
Shape = tuple[int, ...] | None


@dataclass(frozen=True)
class Variable:
    """State that outlives a step: a weight, an optimizer slot, a metric, a seed.

    Attributes:
      name: the variable's own name.
      op: index of the op that produces its handle.
      size_bytes: bytes it holds.
      trainable: whether it is trained.
    """

    name: str
    op: int
    size_bytes: int
    trainable: bool = False


@dataclass(frozen=True)
class UnknownShape:
    """A tensor whose static shape stayed unknown, and how it was counted.

    Attributes:
      tensor: index into the tensors.
      op: name of the op that produces it.
      shape: what is known; None for unknown rank, -1 for an unknown dimension.
      rule: the rule that gave its bytes, in words.
    """

    tensor: int
    op: str
    shape: Shape
    rule: str


@dataclass(frozen=True)
class Body:
    """A function that an op keeps, so that what is inside can only be placed with the op.

    Attributes:
      op: index of the op.
      runs: executions of the function in one execution of the op; 1 if that is not known.
      graph: the ops of the function; None for a Python function and for what cannot be read.
    """

    op: int
    runs: float
    graph: OpGraph | None


@runtime_checkable
class Origin(Protocol):
    """Where a graph came from; lets it be written back as a MetaGraphDef and run (see `tfplace.extract`)."""

    @property
    def description(self) -> str:
        """One line for people: "Keras model 'inception_v3', training step"."""

    def metagraph(self, devices: Mapping[str, str] | None = None) -> Any:
        """The graph as a `MetaGraphDef`, ops annotated with `devices` (op name -> TensorFlow device) where given."""


@dataclass(frozen=True, eq=False, repr=False)
class OpGraph:
    """A flat op-level dataflow graph, ops in a topological order.

    Edges go from lower to higher op index, except loop back edges (`edge_back`), which close a `tf.while_loop` and are
    no precedence within a step.

    Attributes:
      name: what the graph is called in reports.
      op_names: [V] unique names.
      op_types: [V] TensorFlow op types, such as "Conv2D".
      op_attrs: [V] plain attributes (numbers, texts, number lists); no shapes, functions or tensors.
      tensor_op: [T] op that produces the tensor; non-decreasing.
      tensor_slot: [T] which of that op's outputs it is.
      tensor_dtype: [T] dtype names, such as "float32".
      tensor_shape: [T] shapes with unknown dimensions already filled by the rule in `unknown`; None if rank is unknown.
      tensor_bytes: [T] bytes of one execution's output.
      edge_src: [E] producing op.
      edge_dst: [E] consuming op.
      edge_tensor: [E] tensor carried, or -1 for a control edge.
      edge_slot: [E] input position at the consumer, or -1 for a control edge.
      edge_back: [E] whether the edge closes a loop.
      trips: [V] executions in one step; above 1 only for ops inside loops.
      colocation: [V] id of the `_class` colocation group, or -1.
      resource: [V] id of the set of ops that touch the same resource or reference variable, or -1. Ops of one set
        cannot be split: TensorFlow would move them back silently.
      kernel_types: device types looked at, such as ("CPU", "GPU").
      has_kernel: [V, len(kernel_types)] whether the op has a kernel for the device type.
      host_memory: [V] the op's GPU kernel leaves every output in host memory.
      replicable: [V] a constant small enough to be copied to every device that reads it; it follows its consumers.
      variables: state held between steps.
      unknown: tensors whose size is a stated guess.
      bodies: functions that ops keep, such as that of a `ScanDataset`.
      fetches: names of the ops whose results the step returns or must run.
      slices: how the step was split along its batch; None for a whole one.
      recomputes: [V] the op whose results an op computes again for the backward pass, -1 for all other ops; None for a
        step in which nothing is computed again. See `tfplace.rematerialize`.
      origin: where it came from; None for a graph made from plain arrays or loaded from an archive.
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
        """What goes to another process: everything but the origin, which is TensorFlow's."""
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
        """V."""
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        """T."""
        return len(self.tensor_op)

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.edge_src)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Op name -> op index."""
        return {name: i for i, name in enumerate(self.op_names)}

    @cached_property
    def base_names(self) -> tuple[str, ...]:
        """[V] what each op is called in the model's own step: names that scopes and layers are read from."""
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
        """[V] tensors each op reads, by input position (control inputs left out)."""
        rows: list[list[tuple[int, int]]] = [[] for _ in range(self.num_ops)]
        for dst, tensor, slot in zip(
            self.edge_dst.tolist(), self.edge_tensor.tolist(), self.edge_slot.tolist(), strict=True
        ):
            if tensor >= 0:
                rows[dst].append((slot, tensor))
        return tuple(tuple(t for _, t in sorted(row)) for row in rows)

    @cached_property
    def persistent_bytes(self) -> LongArray:
        """[V] bytes of the variables whose handle the op produces."""
        out = np.zeros(self.num_ops, np.int64)
        for variable in self.variables:
            out[variable.op] += variable.size_bytes
        return out

    @cached_property
    def layers(self) -> Mapping[str, IntArray]:
        """Layer name -> indices of its ops, in the order of the forward pass; see `tfplace.group.layer_ops.layers_of`.

        Forward ops, gradients, and what updates its variables. `Constraints` take these names after "layer:".
        """
        layers: Mapping[str, IntArray] = SERVICES["graph_layers"](self)
        return layers

    @cached_property
    def fingerprint(self) -> str:
        """Changes when ops, edges, shapes or sizes change; not with the machine or the process."""
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
        """Changes with everything that matters to a placement, also with what `fingerprint` leaves out.

        That one says which model a placement file is of, and is kept in files; this one says that two graphs in memory
        are placed and simulated alike.
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
          devices: op name -> TensorFlow device, written into the nodes; none are written by default.

        Raises:
          GraphError: the graph was made from plain arrays or loaded from a file, so it has no TensorFlow form.
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
        """Writes the graph to a file of the kind its name says.

        Args:
          path: ".npz": everything but `origin`, for `load`; see `tfplace.io.archive`. Else `metagraph(devices)`:
            as text if the name ends in "txt", else binary.
          devices: op name -> TensorFlow device; for a MetaGraphDef only.

        Raises:
          GraphError: a MetaGraphDef of a graph without TensorFlow form, or devices for an archive.
          UnwrittenError: the operating system refused.
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
        """The graph of a ".npz" file that `save` wrote, without TensorFlow; it has no `origin`, so it cannot be run.

        Raises:
          InputError: no path.
          SourceError: no such file, or not a whole archive that this version reads.
        """
        graph: OpGraph = SERVICES["load_graph"](path)
        return graph

    def __repr__(self) -> str:
        return (
            f"OpGraph({self.name!r}, {self.num_ops} ops, {self.num_tensors} tensors, {self.num_edges} edges, "
            f"{len(self.variables)} variables, fingerprint {self.fingerprint})"
        )
