"""A graph file's step run in a TensorFlow 1 session with its ops on chosen devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError, near_names
from tfplace.execution.actual import nodes_by_device
from tfplace.execution.cluster_calls import CallGraph, graph_with_calls
from tfplace.execution.clusters import Cluster
from tfplace.execution.compilation import refusal_of
from tfplace.execution.graph import Constants, DeviceGraph
from tfplace.execution.state import SessionState, initial_values
from tfplace.execution.turns import turns_at_once
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.extraction import tf_internals
from tfplace.extraction.metagraph import GraphOrigin
from tfplace.extraction.nodes import parse_input


class SessionProgram:
    """The file's flat graph, imported once; each placement is a new session on it that takes the state over.

    Called with a dict of placeholder name -> value, it returns a dict of the signature's results, or of the fetched
    ops' results where the file has no signature. Variables start with the values the file's initializers give.

    Args:
      graph: the OpGraph.
      origin: the file it came from.
    """

    def __init__(self, graph: OpGraph, origin: GraphOrigin) -> None:
        self.fixed: Mapping[str, tuple[str, str]] = {}
        self.arguments = origin.inputs
        self._origin = origin
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(origin.graph_def, name="")
        self._devices = DeviceGraph(self._graph, graph.op_names, Constants.of(graph), turns_at_once(graph))
        self._base_state = SessionState(self._graph, list(graph.op_names))
        self._run_graph, self._state = self._graph, self._base_state
        self.compiles = False
        self._called: CallGraph | None = None
        self._placed_on: Mapping[str, str] = {}
        self._results = origin.outputs or tuple(_values(self._graph, origin.fetches))
        self._session: Any = None
        self._values: dict[str, Any] | None = None
        self._ran: dict[str, str] | None = None

    @property
    def copies(self) -> Mapping[str, str]:
        """Copied constant -> the constant."""
        return self._devices.copies

    def place(
        self, devices: Mapping[str, str], waits: Waits = NO_WAITS, clusters: Sequence[Cluster] | None = None
    ) -> None:
        """Puts ops on devices, has them wait as told, and opens a session on them with the variables' present values.

        If that fails, the session before it goes on as it was.
        """
        values = self._present_values()
        self._devices.assign(devices, waits)
        self._base_state.assign(devices)
        graph, called, state = self._graph, None, self._base_state
        if clusters is not None:
            graph, called = graph_with_calls(self._graph, clusters, self._results)
            state = SessionState(graph, list(self._base_state.names))
            state.assign(devices)
        session = tf.compat.v1.Session(graph=graph, config=session_config())
        try:
            state.write(session, values)
        except BaseException:
            session.close()
            raise
        self._close()
        self._session, self._ran = session, None
        self._run_graph, self._called, self._state, self._placed_on = graph, called, state, devices

    @property
    def placed(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    @property
    def stands(self) -> bool:
        """Always: nobody else has the session's variables."""
        return True

    def restore(self) -> None:
        """Closes the session; the variables' values are kept for a later `place`."""
        self._values = self._present_values()
        self._close()

    def load(self, values: Mapping[str, Any]) -> None:
        """Sets variables, after `restore` for the next `place`: op name -> value.

        Raises:
          ApplyError: no such variable.
        """
        for name in values:
            if name not in self._state.names:
                near = ", ".join(near_names(name, self._state.names))
                raise ApplyError(
                    f"a value for {name!r}", "the name of a variable's op", f"Near names: {near}" if near else ""
                )
        if self._session is None:
            self._values = {**self._present_values(), **values}
        else:
            self._state.write(self._session, values)

    def state(self) -> dict[str, Any]:
        """Variable's op name -> value; variables without a value are left out."""
        return self._present_values()

    def __call__(self, feeds: Mapping[str, Any] | None = None, **named: Any) -> dict[str, Any]:
        """Runs one step.

        Args:
          feeds: placeholder "name" or "name:0" -> value.
          named: the same, by keyword.

        Raises:
          ApplyError: a placeholder that is not there or is not given, a value of another shape, or a variable without
            one.
          CompilationError: XLA refuses a cluster; the variables are as they were before the step.
        """
        feed = self._feed(feeds, named)
        calls = {} if self._called is None else self._called.calls
        ops = [self._run_graph.get_operation_by_name(calls.get(name, name)) for name in self._origin.fetches]
        fetch = {"results": {name: self._result(name) for name in self._results}, "ops": ops}
        may_refuse = self._called is not None and (self.compiles or self._ran is None)
        before = self._present_values() if may_refuse else {}
        metadata = tf.compat.v1.RunMetadata() if self._ran is None else None
        options = tf.compat.v1.RunOptions(output_partition_graphs=True) if self._ran is None else None
        try:
            out = self._session.run(fetch, feed, options, metadata)
        except tf.errors.FailedPreconditionError as error:
            raise self._uninitialised(error) from error
        except tf.errors.OpError as error:
            refusal = refusal_of(error, self._called) if may_refuse and self._called is not None else None
            if refusal is None:
                raise
            self._state.write(self._session, before)
            raise refusal from error
        if metadata is not None:
            nodes = nodes_by_device(metadata.partition_graphs)
            self._ran = nodes if self._called is None else self._called.ran(nodes, self._placed_on)
        results: dict[str, Any] = out["results"]
        return results

    def ran(self) -> Mapping[str, str] | None:
        """Op -> full device name at the first call since `place`; None before it."""
        return self._ran

    def _result(self, name: str) -> Any:
        return name if self._called is None else self._called.tensor(name if ":" in name else f"{name}:0")

    def _feed(self, feeds: Any, named: Mapping[str, Any]) -> dict[Any, Any]:
        if feeds is not None and not isinstance(feeds, Mapping):
            names = self._origin.inputs or ("name",)
            raise ApplyError(
                f"{type(feeds).__name__} as the inputs of a graph file's step",
                f"a dict of placeholders: placed({{{', '.join(f'{name!r}: ...' for name in names)}}})",
            )
        feed = {}
        for name, value in {**(feeds or {}), **named}.items():
            tensor = self._tensor(name)
            try:
                array = np.asarray(value, tensor.dtype.as_numpy_dtype)
            except (TypeError, ValueError) as error:
                raise ApplyError(f"{type(value).__name__} for {name!r} ({error})", f"{tensor.dtype.name}") from error
            if not tensor.shape.is_compatible_with(array.shape):
                raise ApplyError(f"an array of shape {array.shape} for {name!r}", f"shape {tensor.shape}")
            feed[tensor] = array
        given = {tensor.op.name for tensor in feed}
        needed = [n for n in self._origin.inputs if self._run_graph.get_operation_by_name(n).type == "Placeholder"]
        if missing := [name for name in needed if name not in given]:
            raise ApplyError(
                f"a call without {', '.join(map(repr, missing))}", f"values for {', '.join(map(repr, needed))}"
            )
        return feed

    def _uninitialised(self, error: tf.errors.OpError) -> ApplyError:
        """What a step has not found, in the words of TensorFlow."""
        if missing := self._state.undefined(self._session):
            return ApplyError(
                f"a graph whose variables have no values: {', '.join(missing)}",
                "initialized variables",
                "Give their values with placed.load({op name: value}).",
            )
        lines = [line.strip() for line in error.message.splitlines() if line.strip()]
        at = next((i for i, line in enumerate(lines) if "{{node" in line), len(lines))
        return ApplyError(
            f"a graph with something else to initialize than variables ({' '.join(lines[max(0, at - 1) : at + 1])})",
            "a step of variables and placeholders alone",
            "Lookup tables and iterators of a graph file are not carried over: fetch ops after them, and feed them.",
        )

    def _tensor(self, name: str) -> Any:
        op, _ = parse_input(name)
        if op not in self._origin.inputs:
            raise ApplyError(
                f"a feed for {name!r}", f"placeholders of the graph: {', '.join(self._origin.inputs) or 'none'}"
            )
        return self._run_graph.get_tensor_by_name(f"{op}:0")

    def _present_values(self) -> dict[str, Any]:
        if self._session is not None:
            return self._state.read(self._session)
        if self._values is None:
            self._values = initial_values(self._origin, self._state.names)
        return self._values

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def session_config() -> Any:
    """The running TensorFlow's devices; what is asked is done or refused, and nothing is optimized after placing."""
    config = tf_internals.eager_config()
    config.allow_soft_placement = False
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


def _values(graph: Any, fetches: tuple[str, ...]) -> list[str]:
    """Tensors a session can return among the fetched ops' outputs."""
    plain = (t for name in fetches for t in graph.get_operation_by_name(name).outputs)
    return [t.name for t in plain if t.dtype.base_dtype not in (tf.resource, tf.variant)]
