"""A step ready to be measured: imported once, put on devices again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfplace.apply.graph import DeviceGraph
from tfplace.apply.state import SessionState, initial_values
from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError
from tfplace.extract.function import FunctionOrigin
from tfplace.extract.metagraph import STEP_OP, GraphOrigin
from tfplace.measure.inputs import step_inputs

_FED = "tfplace_fed"


class StepGraph:
    """An extracted graph's step as a TensorFlow 1 graph, apart from the program it came from.

    It has its own copies of the variables, with the values they had when it was made; nothing of the model changes.
    Arguments are not fed but read from variables beside them, written once: a step then measures what the simulator
    predicts, with the batch already on its device.

    A session sees the devices of its first run; after a new `assign` open a new one.

    Args:
      graph: an extracted graph.
      batch: what the step is given; see `step_inputs`.
      seed: of made-up arguments.

    Raises:
      GraphError: the graph was made from plain arrays.
      ApplyError: the step cannot be run by itself (a resource that is no variable, an open shape).
    """

    def __init__(self, graph: OpGraph, batch: Any = None, seed: int = 0) -> None:
        self.graph = graph
        meta = graph.metagraph()
        inputs = step_inputs(graph, meta, batch, seed)
        graph_def, self._fed = _read_arguments(meta.graph_def, inputs)
        self.tf_graph = tf.Graph()
        with self.tf_graph.as_default():
            tf.import_graph_def(graph_def, name="")
        held = [node.name for node in graph_def.node if node.name != STEP_OP]
        self._state = SessionState(self.tf_graph, held)
        self._values = _variable_values(graph, self._state.names) | {self._fed[n]: v for n, v in inputs.items()}
        # an argument that may be copied would be a constant; here it is a variable
        copied = [n for n, c in zip(graph.op_names, graph.replicable.tolist(), strict=True) if c and n not in inputs]
        self._devices = DeviceGraph(self.tf_graph, [*graph.op_names, *self._fed.values()], copied)

    @property
    def targets(self) -> list[Any]:
        """The ops that make one step; each device then ends on its own, without a last meeting."""
        return [self.tf_graph.get_operation_by_name(name) for name in self.graph.fetches]

    def op(self, name: str) -> Any:
        """The op called `name`."""
        return self.tf_graph.get_operation_by_name(name)

    def assign(self, devices: Mapping[str, str]) -> None:
        """Puts every op, with its variables and arguments, on its device.

        Args:
          devices: op name -> full TensorFlow device, for every op.
        """
        everywhere = {**devices, **{handle: devices[name] for name, handle in self._fed.items()}}
        self._devices.assign(everywhere)
        self._state.assign(everywhere)

    def write(self, session: Any) -> None:
        """Gives the variables of a new session their values."""
        self._state.write(session, self._values)

    def read(self, session: Any) -> dict[str, Any]:
        """Present values of the variables: op name -> array."""
        values = self._state.read(session)
        return {name: value for name, value in values.items() if name not in self._fed.values()}


def _read_arguments(source: Any, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """The graph with each argument read from a variable, and argument op -> that variable's op."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(source)
    fed = {}
    for node in list(graph_def.node):
        if node.name not in inputs or node.op != "Placeholder":
            continue
        dtype = node.attr["dtype"].type
        handle = graph_def.node.add(name=f"{node.name}/{_FED}", op="VarHandleOp")
        handle.attr["dtype"].type = dtype
        handle.attr["shape"].shape.CopyFrom(tf.TensorShape(inputs[node.name].shape).as_proto())
        handle.attr["shared_name"].s = handle.name.encode()
        node.op = "ReadVariableOp"
        node.attr.clear()
        node.attr["dtype"].type = dtype
        node.input.insert(0, handle.name)
        fed[node.name] = handle.name
    return graph_def, fed


def _variable_values(graph: OpGraph, names: tuple[str, ...]) -> dict[str, Any]:
    """Values of the source's variables by op.

    Raises:
      ApplyError: the graph has no TensorFlow program behind it.
    """
    if isinstance(graph.origin, FunctionOrigin):
        return {op: variable.numpy() for op, variable in graph.origin.variables().items()}
    if isinstance(graph.origin, GraphOrigin):
        return initial_values(graph.origin, names)
    raise ApplyError("a graph without a TensorFlow program", "a graph from tfplace.extract(model)")
