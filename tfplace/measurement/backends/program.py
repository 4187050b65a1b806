"""A step ready to be measured: imported once, put on devices again and again."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError
from tfplace.execution.cluster_calls import CallGraph, graph_with_calls
from tfplace.execution.clusters import Cluster
from tfplace.execution.graph import Constants, DeviceGraph
from tfplace.execution.state import SessionState, initial_values
from tfplace.execution.turns import turns_at_once
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.extraction.file_source import program_origin
from tfplace.extraction.function import FunctionOrigin
from tfplace.extraction.kernels import kernel_support
from tfplace.extraction.metagraph import STEP_OP, GraphOrigin
from tfplace.measurement.backends.inputs import step_inputs

_FED = "tfplace_fed"
_WRITE_BYTES = 256 * 2**20
"""What is written to a session at once: a message between servers holds less than 2 GiB."""


class StepGraph:
    """An extracted graph's step as a TensorFlow 1 graph, apart from the program it came from.

    It has its own copies of the variables, with the values they had when it was made; nothing of the model changes.
    Variables of a file that has neither values nor initializers for them are zero. Arguments are not fed but read from
    variables beside them, written once: a step then measures what the simulator predicts, with the batch already on its
    device.

    A session sees the devices of its first run; after a new `place` open a new one.

    Args:
      graph: an extracted graph.
      batch: what the step is given; see `step_inputs`.
      seed: of made-up arguments.

    Raises:
      GraphError: the graph was made from plain arrays.
      ApplyError: the step cannot be run by itself (a resource that is no variable, an open shape, a variable of a
        program that has no value yet).
    """

    def __init__(self, graph: OpGraph, batch: Any = None, seed: int = 0) -> None:
        self.graph = graph
        meta = graph.metagraph()
        inputs = step_inputs(graph, meta, batch, seed)
        self._graph_def, handles = _read_arguments(meta.graph_def, inputs)
        self._fed = {argument: handle.name for argument, handle in handles.items()}
        self._fed_types = {argument: kernel_support(handle).types for argument, handle in handles.items()}
        self._import()
        given = {self._fed[name]: value for name, value in inputs.items()}
        self._values = self._first_values() | given

    def _import(self) -> None:
        self._plain = self.tf_graph = tf.Graph()
        with self.tf_graph.as_default():
            tf.import_graph_def(self._graph_def, name="")
        self._state = SessionState(self.tf_graph, [node.name for node in self._graph_def.node if node.name != STEP_OP])
        self.called: CallGraph | None = None
        ops = [*self.graph.op_names, *self._fed.values()]
        # an argument that may be copied would be a constant; here it is a variable
        constants = Constants.of(self.graph, without=self._fed)
        self._devices = DeviceGraph(self.tf_graph, ops, constants, turns_at_once(self.graph))

    def _first_values(self) -> dict[str, Any]:
        """Values of the source's variables by op."""
        origin = program_origin(self.graph)
        if isinstance(origin, FunctionOrigin):
            try:
                return {op: variable.numpy() for op, variable in origin.variables().items()}
            except tf.errors.FailedPreconditionError as error:
                raise ApplyError("a variable that has no value yet", "initialized variables") from error
        if isinstance(origin, GraphOrigin):
            held = [name for name in self._state.names if name not in self._fed.values()]
            known = initial_values(origin, tuple(held))
            return {name: known[name] if name in known else _zeros(self.op(name)) for name in held}
        raise ApplyError("a graph without a TensorFlow program", "a graph from tfplace.extract(model, batch)")

    def twin(self) -> StepGraph:
        """Another step of the same values, on devices of its own."""
        twin = copy.copy(self)
        twin._import()
        return twin

    @property
    def targets(self) -> list[Any]:
        """The ops that make one step; each device then ends on its own, without a last meeting."""
        calls = {} if self.called is None else self.called.calls
        return [self.op(name) for name in dict.fromkeys(calls.get(name, name) for name in self.graph.fetches)]

    def op(self, name: str) -> Any:
        """The op called `name`."""
        return self.tf_graph.get_operation_by_name(name)

    def place(
        self, devices: Mapping[str, str], waits: Waits = NO_WAITS, clusters: Sequence[Cluster] | None = None
    ) -> None:
        """Puts every op, with its variables and arguments, on its device.

        An argument of a type that variables of the device cannot have (integers and texts on a GPU) is read on the
        device's host, where a program's arguments are too.

        Args:
          devices: op name -> full TensorFlow device, for every op.
          waits: what ops wait for besides their inputs.
          clusters: what XLA compiles, at the first step; None for nothing.
        """
        held = {name: _host_unless(types, devices[name]) for name, types in self._fed_types.items()}
        everywhere = {**devices, **held, **{self._fed[name]: device for name, device in held.items()}}
        self._devices.assign(everywhere, waits)
        self.tf_graph, self.called = self._plain, None
        if clusters is not None:
            self.tf_graph, self.called = graph_with_calls(self._plain, clusters, ())
        if self._state.graph is not self.tf_graph:
            self._state = SessionState(self.tf_graph, list(self._state.names))
        self._state.assign(everywhere)

    def write(self, session: Any) -> None:
        """Gives the variables of a session the values of the beginning."""
        for part in _parts(self._values):
            self._state.write(session, part)

    def read(self, session: Any) -> dict[str, Any]:
        """Present values of the variables: op name -> array."""
        values = self._state.read(session)
        return {name: value for name, value in values.items() if name not in self._fed.values()}


def _read_arguments(source: Any, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The graph with each given argument read from a variable, and argument op -> the node that holds the variable."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(source)
    handles = {}
    for node in [node for node in graph_def.node if node.name in inputs]:
        dtype = node.attr["dtype"].type
        handle = graph_def.node.add(name=f"{node.name}/{_FED}", op="VarHandleOp")
        handle.attr["dtype"].type = dtype
        handle.attr["shape"].shape.CopyFrom(tf.TensorShape(inputs[node.name].shape).as_proto())
        handle.attr["shared_name"].s = handle.name.encode()
        waits = [name if name.startswith("^") else f"^{name.partition(':')[0]}" for name in node.input]
        del node.input[:]
        node.input.extend([handle.name, *waits])
        node.op = "ReadVariableOp"
        node.attr.clear()
        node.attr["dtype"].type = dtype
        handles[node.name] = handle
    return graph_def, handles


def _zeros(variable: Any) -> Any:
    shape = tf.TensorShape(variable.get_attr("shape"))
    if not shape.is_fully_defined():
        raise ApplyError(f"variable {variable.name!r} of shape {shape}, without a value", "a value, or a known shape")
    return np.zeros(shape.as_list(), tf.dtypes.as_dtype(variable.get_attr("dtype")).as_numpy_dtype)


def _host_unless(types: frozenset[str], device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type in types:
        return device
    host: str = spec.replace(device_type="CPU", device_index=0).to_string()
    return host


def _parts(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The values in parts of at most `_WRITE_BYTES`, or of one value."""
    part: dict[str, Any] = {}
    size = 0
    for name, value in values.items():
        grown = size + np.asarray(value).nbytes
        if part and grown > _WRITE_BYTES:
            yield part
            part, grown = {}, np.asarray(value).nbytes
        part[name] = value
        size = grown
    if part:
        yield part
