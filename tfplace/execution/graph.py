"""A flat graph in TensorFlow whose ops can be put on devices, and made to wait, again and again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tfplace.core.control_flow import control_flow, idle_constants
from tfplace.core.graph import OpGraph
from tfplace.execution.cluster_calls import CallGraph, with_calls
from tfplace.execution.clusters import Cluster
from tfplace.execution.control_edges import ControlEdges
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.extraction import tf_internals
from tfplace.extraction.flatten import FlatFunction

NO_TURNS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Constants:
    """Constants of a graph that are copied to the devices that read them, by name.

    Attributes:
      replicable: all of them.
      idle: those among them that lose their control inputs; see `idle_constants`.
    """

    replicable: tuple[str, ...]
    idle: frozenset[str]

    @classmethod
    def of(cls, graph: OpGraph, without: Iterable[str] = ()) -> Constants:
        """Those of a graph, `without` ops that are no constants in the program."""
        idle = idle_constants(graph, control_flow(graph))
        names = {graph.op_names[v]: bool(idle[v]) for v in np.flatnonzero(graph.replicable).tolist()}
        for name in without:
            names.pop(name, None)
        return cls(tuple(names), frozenset(name for name, waits_for_nothing in names.items() if waits_for_nothing))


class DeviceGraph:
    """Ops of one imported graph, with copies of constants beside their readers.

    A constant needed on several devices is copied there instead of being sent each step: sends of constants were half
    of all sends in measured graphs. Copies are made when first needed and kept, so that a later placement finds them.

    Args:
      graph: a TensorFlow graph with the nodes.
      op_names: the ops that get a device.
      constants: that may be copied.
      turns: Enter op -> turns of its loop that run at once, if not as many as the model wants.
    """

    def __init__(
        self, graph: Any, op_names: Collection[str], constants: Constants, turns: Mapping[str, int] = NO_TURNS
    ) -> None:
        self.graph = graph
        self._ops = {name: graph.get_operation_by_name(name) for name in op_names}
        for name, count in turns.items():
            tf_internals.set_int_attribute(self._ops[name], "parallel_iterations", count)
        self._readers = {name: _readers(self._ops[name]) for name in constants.replicable}
        for name in constants.idle:
            tf_internals.set_control_inputs(self._ops[name], ())
        self._copies: dict[tuple[str, str], Any] = {}
        self._read: dict[str, str] = {}
        self._controls = ControlEdges(graph)

    def assign(self, devices: Mapping[str, str], waits: Waits = NO_WAITS) -> None:
        """Puts every op on its device and every reader of a constant on the copy beside it.

        Args:
          devices: op name -> TensorFlow device, for every op.
          waits: what ops wait for besides their inputs.
        """
        for name, op in self._ops.items():
            tf_internals.set_op_device(op, devices[name])
        self._read = {}
        for name, readers in self._readers.items():
            for reader, index in readers:
                copy = self._copy_on(name, devices.get(reader.name, devices[name]), devices)
                if copy is not self._ops[name]:
                    self._read[copy.name] = name
                if reader.inputs[index] is not copy.outputs[0]:
                    tf_internals.set_op_input(reader, index, copy.outputs[0])
        self._controls.set(waits)

    def _copy_on(self, name: str, device: str, devices: Mapping[str, str]) -> Any:
        if device == devices[name]:
            return self._ops[name]
        if (name, device) not in self._copies:
            label = f"{name}/on_{device.strip('/').replace(':', '_').replace('/', '_')}"
            self._copies[name, device] = tf_internals.copy_constant(self._ops[name], label, device)
        return self._copies[name, device]

    @property
    def copies(self) -> Mapping[str, str]:
        """Copy of a constant that is read now -> the constant. TensorFlow drops those that nothing reads."""
        return self._read


def _readers(op: Any) -> list[tuple[Any, int]]:
    """Ops that read the first output of `op`, with the input position."""
    tensor = op.outputs[0]
    return [
        (reader, i) for reader in dict.fromkeys(tensor.consumers()) for i, t in enumerate(reader.inputs) if t is tensor
    ]


class FunctionGraph:
    """A traced function, flattened and imported once, from which functions with any placement are made.

    Args:
      flat: the flattened function.
      op_names: the ops that get a device.
      constants: that may be copied.
      turns: Enter op -> turns of its loop that run at once, if not as many as the model wants.
    """

    def __init__(
        self, flat: FlatFunction, op_names: Collection[str], constants: Constants, turns: Mapping[str, int] = NO_TURNS
    ) -> None:
        self.flat = flat  # owns the captured variables
        self._name = f"placed_{flat.concrete.graph.name}"
        self._graph = tf_internals.import_function_graph(flat.graph_def, self._name)
        tf_internals.complete_function_graph(
            self._graph, flat.concrete, flat.input_names, flat.output_names, flat.control_outputs
        )
        self.devices = DeviceGraph(self._graph, op_names, constants, turns)

    def function(self, devices: Mapping[str, str], waits: Waits = NO_WAITS) -> Any:
        """A `ConcreteFunction` with the traced function's arguments, results and captures, its ops on `devices`.

        Args:
          devices: op name -> TensorFlow device, for every op.
          waits: what ops wait for besides their inputs.
        """
        self.devices.assign(devices, waits)
        return tf_internals.function_of_graph(self._graph, self.flat.concrete)

    def compiled_function(
        self, devices: Mapping[str, str], waits: Waits, clusters: Sequence[Cluster]
    ) -> tuple[Any, CallGraph]:
        """The same function with calls in place of clusters, and its graph.

        Args:
          devices: op name -> TensorFlow device, for every op.
          waits: what ops wait for besides their inputs.
          clusters: ops that are compiled together.
        """
        self.devices.assign(devices, waits)
        flat = self.flat
        called = with_calls(self._graph, clusters, flat.output_names)
        graph = tf_internals.import_function_graph(called.graph_def, f"compiled_{self._name}")
        tf_internals.complete_function_graph(
            graph,
            flat.concrete,
            flat.input_names,
            [called.tensor(name) for name in flat.output_names],
            list(dict.fromkeys(called.calls.get(name, name) for name in flat.control_outputs)),
        )
        return tf_internals.function_of_graph(graph, flat.concrete), called
