"""Variables of a graph that runs in a TensorFlow 1 session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.extraction import tf_internals
from tfplace.extraction.metagraph import REFERENCE_VARIABLES, GraphOrigin

_RESOURCE_VARIABLE = "VarHandleOp"


class SessionState:
    """Reads and writes all variables of a graph, beside the step's own ops.

    Args:
      graph: the TensorFlow graph.
      op_names: its ops.
    """

    def __init__(self, graph: Any, op_names: list[str]) -> None:
        self.graph = graph
        self._reads: dict[str, Any] = {}
        self._defined: dict[str, Any] = {}
        self._writes: dict[str, Any] = {}
        self._feeds: dict[str, Any] = {}
        with graph.as_default():
            for name in op_names:
                op = graph.get_operation_by_name(name)
                if op.type == _RESOURCE_VARIABLE:
                    self._add_resource(name, op)
                elif op.type in REFERENCE_VARIABLES:
                    self._add_reference(name, op)
        self.names = tuple(self._feeds)

    def _add_resource(self, name: str, op: Any) -> None:
        dtype = tf.dtypes.as_dtype(op.get_attr("dtype"))
        feed = tf.compat.v1.placeholder(dtype)
        self._feeds[name] = feed
        self._reads[name] = tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=dtype)
        self._defined[name] = tf.raw_ops.VarIsInitializedOp(resource=op.outputs[0])
        self._writes[name] = tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=feed)

    def _add_reference(self, name: str, op: Any) -> None:
        feed = tf.compat.v1.placeholder(op.outputs[0].dtype.base_dtype)
        self._feeds[name] = feed
        self._reads[name] = tf.raw_ops.Identity(input=op.outputs[0])
        self._defined[name] = tf.raw_ops.IsVariableInitialized(ref=op.outputs[0])
        self._writes[name] = tf.raw_ops.Assign(ref=op.outputs[0], value=feed, validate_shape=False)

    def assign(self, devices: Mapping[str, str]) -> None:
        """Puts what reads and writes a variable beside it."""
        for name in self.names:
            for table in (self._reads, self._defined, self._writes):
                tensor = table[name]
                tf_internals.set_op_device(getattr(tensor, "op", tensor), devices[name])

    def read(self, session: Any) -> dict[str, Any]:
        """Values of the variables that have one."""
        defined = session.run(self._defined)
        values: dict[str, Any] = session.run({name: self._reads[name] for name in self.names if defined[name]})
        return values

    def undefined(self, session: Any) -> list[str]:
        """Variables that have no value."""
        defined = session.run(self._defined)
        return [name for name in self.names if not defined[name]]

    def write(self, session: Any, values: Mapping[str, Any]) -> None:
        """Sets variables."""
        feeds = {self._feeds[name]: np.asarray(value) for name, value in values.items()}
        session.run([getattr(self._writes[n], "op", self._writes[n]) for n in values], feeds)


def initial_values(origin: GraphOrigin, names: tuple[str, ...]) -> dict[str, Any]:
    """What the file's checkpoint, or its own initializers, give to the variables; those without either are left out."""
    if origin.checkpoint:
        reader = tf.train.load_checkpoint(origin.checkpoint)
        return {name: reader.get_tensor(name) for name in names if reader.has_tensor(name)}
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.train.import_meta_graph(origin.source, clear_devices=True)
        known = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
        held = {v.op.name if v.op.type != "ReadVariableOp" else v.handle.op.name: v for v in known}
        chosen = {name: held[name] for name in names if name in held}
        if not chosen:
            return {}
        with tf.compat.v1.Session(graph=graph) as session:
            # Initial values may read other variables, so all are initialized, not only those of the step.
            session.run([v.initializer for v in dict.fromkeys(held.values())])
            values: dict[str, Any] = session.run({name: v.value() for name, v in chosen.items()})
            return values
