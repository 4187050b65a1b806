"""A traced TensorFlow 2 function run with its ops on chosen devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError
from tfplace.execution.actual import nodes_by_device
from tfplace.execution.cluster_calls import CallGraph
from tfplace.execution.clusters import Cluster
from tfplace.execution.compilation import refusal_of
from tfplace.execution.devices import canonical
from tfplace.execution.graph import Constants, FunctionGraph
from tfplace.execution.turns import turns_at_once
from tfplace.execution.variables import Variables
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.extraction import tf_internals
from tfplace.extraction.flatten import FlatFunction
from tfplace.extraction.tracing import is_binding

_NO_VARIABLE = "bound to a resource that is not a variable and cannot be moved"
_PIPED = "bound to a variable that an input pipeline reads, which would keep reading the old storage"


class FunctionProgram:
    """The function's flat graph, imported once; each placement is a new function on it.

    Args:
      graph: the OpGraph.
      flat: the function it came from.

    Raises:
      ApplyError: the function is of a kind that cannot be moved.
    """

    def __init__(self, graph: OpGraph, flat: FlatFunction) -> None:
        self._flat = flat
        # The function's inputs are fed by the caller: a copy would be a constant with nobody to feed it.
        constants = Constants.of(graph, without=flat.input_names)
        self._graph = FunctionGraph(flat, graph.op_names, constants, turns_at_once(graph))
        captured = _captures(flat)
        by_handle, piped = tf_internals.captured_variables(flat.concrete), tf_internals.read_by_pipelines()
        held = {op: by_handle[id(t)] for op, t in captured.items() if id(t) in by_handle}
        self._held = {op: variable for op, variable in held.items() if id(captured[op]) not in piped}
        self._variables = Variables(self._held)
        self._all = tuple(held.values())
        self.compiles = False
        self.fixed = _fixed(graph, {op: t for op, t in captured.items() if op not in held}, _NO_VARIABLE)
        self.fixed |= _fixed(graph, {op: captured[op] for op in held if op not in self._held}, _PIPED)
        self.arguments = tuple(name for name in flat.input_names if name not in self._held)
        self._config = _call_config()
        self._literals = tf_internals.literal_arguments(flat.concrete)
        self._positions = tuple(flat.concrete.function_type.parameters)
        self._placed_on: Mapping[str, str] = {}
        self._waits = NO_WAITS
        self._clusters: Sequence[Cluster] | None = None
        self.placed = False
        self._function: Any = None
        self._called: CallGraph | None = None
        self._ran: dict[str, str] | None = None

    @property
    def copies(self) -> Mapping[str, str]:
        """Copied constant -> the constant."""
        return self._graph.devices.copies

    def place(
        self, devices: Mapping[str, str], waits: Waits = NO_WAITS, clusters: Sequence[Cluster] | None = None
    ) -> None:
        """Puts ops and variables on devices, and has ops wait as told; nothing is traced.

        Without clusters nothing is imported.

        A function that was on these devices with these waits before is taken again, as it has the state of kernels that
        draw numbers.

        If the variables cannot be moved, nothing changes. If anything else fails, or somebody interrupts, they are
        restored.
        """
        moved = False
        try:
            self._variables.move(devices)
            moved = True
            if self._function is None or (devices, waits, clusters) != (self._placed_on, self._waits, self._clusters):
                self._placed_on, self._waits, self._clusters = devices, waits, clusters
                self._make()
        except BaseException as error:
            if moved or not isinstance(error, Exception):  # an interrupt may leave a part of them moved
                self.restore()
            raise
        self.placed = True

    def _make(self) -> None:
        """The function as placed, which has not run yet."""
        self._function, self._called, self._ran = None, None, None
        if self._clusters is None:
            self._function = self._graph.function(self._placed_on, self._waits)
        else:
            self._function, self._called = self._graph.compiled_function(self._placed_on, self._waits, self._clusters)

    def restore(self) -> None:
        """Moves the variables back to where they were before any program moved them."""
        self._variables.restore()
        self.placed = False

    @property
    def stands(self) -> bool:
        """Whether the variables are where the last `place` has put them."""
        return self._variables.astray() is None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step: the traced function's arguments, the traced function's results.

        Raises:
          ApplyError: another program has moved the variables since `place`, or it is called while TensorFlow traces.
          CompilationError: XLA refuses a cluster; the variables are as they were before the step.
        """
        if not tf.executing_eagerly():
            raise ApplyError(
                "a call of a placed program inside a tf.function, which would optimize it as a part of its own",
                "a call from Python",
                "Place the outer function instead.",
            )
        self._variables.check()
        given = {*self._positions[: len(args)], *kwargs}
        kwargs |= {name: value for name, value in self._literals.items() if name not in given}
        with tf_internals.call_config(self._config):
            if self._ran is not None and not (self.compiles and self._called is not None):
                return self._call(args, kwargs)
            if self._ran is not None:
                with self._undone():
                    return self._call(args, kwargs)
            if self._function is None:
                self._make()
            graphs: list[Any] = []
            try:
                with self._undone(), tf_internals.collect_function_graphs(graphs):
                    result = self._call(args, kwargs)
            except BaseException:
                self._function = None  # TensorFlow tells where ops run at a function's first call only
                raise
            if self._called is None:
                self._ran = _where(graphs, self._flat.input_names, {*self._placed_on})
            else:
                nodes = {*self._placed_on, *self._called.calls.values()}
                self._ran = self._called.ran(_where(graphs, self._flat.input_names, nodes), self._placed_on)
            return result

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """Puts the variables back if XLA refuses a cluster, as others may have run by then."""
        if self._called is None:
            yield
            return
        before = [(variable, variable.numpy()) for variable in self._all if variable.is_initialized()]
        try:
            yield
        except tf.errors.OpError as error:
            refusal = refusal_of(error, self._called)
            if refusal is None:
                raise
            for variable, value in before:
                variable.assign(value)
            raise refusal from error

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls the function; what it was not traced for is said without the values, which may be large."""
        try:
            return self._function(*args, **kwargs)
        except TypeError as error:
            if not is_binding(error):
                raise
            expected, keywords = self._flat.concrete.structured_input_signature
            raise ApplyError(
                f"a call with {_kinds((args, kwargs))}",
                f"what the step was traced with, {_kinds((expected, keywords))}",
                "Extract and place it again for batches of another structure, or with open dimensions (None).",
            ) from error

    def ran(self) -> Mapping[str, str] | None:
        """Op -> full device name at the first call since `place`; None before it."""
        return self._ran


def _kinds(values: Any) -> str:
    """How many arguments there are, and the types and shapes in them, as text."""

    def kind(leaf: Any) -> str:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return repr(leaf)[:40]
        shape = tf.TensorShape(leaf.shape)
        return f"{tf.as_dtype(leaf.dtype).name}{'[...]' if shape.rank is None else shape.as_list()}"

    positional, keywords = tf.nest.map_structure(kind, values)
    kinds = [*map(str, positional), *(f"{name}={one}" for name, one in keywords.items())]
    count = f"{len(kinds)} argument{'s' * (len(kinds) != 1)}"
    return f"{count}: {', '.join(kinds)}".replace("'", "") if kinds else "no arguments"


def _captures(flat: FlatFunction) -> dict[str, Any]:
    """Op that stands for a capture -> what is captured."""
    values = tf_internals.external_captures(flat.concrete)
    return dict(zip(flat.input_names[len(flat.input_names) - len(values) :], values, strict=True))


def _fixed(graph: OpGraph, captured: Mapping[str, Any], why: str) -> dict[str, tuple[str, str]]:
    """Ops bound to captured resources that stay where they are."""
    out: dict[str, tuple[str, str]] = {}
    for op, tensor in captured.items():
        if callable(tensor) or tensor.dtype != tf.resource or op not in graph.index:
            continue
        bond = graph.resource[graph.index[op]]
        members = (
            [op] if bond < 0 else [n for n, b in zip(graph.op_names, graph.resource.tolist(), strict=True) if b == bond]
        )
        out.update({member: (canonical(tensor.device), why) for member in members})
    return out


def _call_config() -> Any:
    """Grappler off: it was run before the placement, and would now fuse and drop ops that have a device."""
    config = tf_internals.eager_config()
    config.allow_soft_placement = tf.config.get_soft_device_placement()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def _where(graphs: list[Any], input_names: tuple[str, ...], ops: set[str]) -> dict[str, str]:
    """Op -> device, of the function with these inputs and ops.

    What Python ran meanwhile, in a `py_function` or around the call, has graphs of its own, or stands behind the
    function's ops in the same one: what comes first counts.
    """
    if not graphs:
        return {}
    graph = max(graphs, key=lambda graph: len(ops & {node.name for node in graph.post_optimization_graph.node}))
    out: dict[str, str] = {}
    for partition in graph.partition_graphs:
        out = nodes_by_device([partition]) | out
    told: dict[str, str] = {}
    for node in graph.post_optimization_graph.node:
        if node.op == "_Arg" and node.attr["index"].i < len(input_names):
            # Inputs are renamed; they are told by their number.
            told.setdefault(input_names[node.attr["index"].i], canonical(node.device))
    return out | told
