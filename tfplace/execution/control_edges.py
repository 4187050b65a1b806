"""Control edges that a TensorFlow graph gets besides its own, and loses again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfplace.execution.waits import Waits
from tfplace.extraction import tf_internals


class ControlEdges:
    """Writes waits into a TensorFlow graph, and takes them away.

    Args:
      graph: the TensorFlow graph.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._own: list[tuple[Any, list[Any]]] = []
        self._joints: dict[str, Any] = {}

    def set(self, waits: Waits) -> None:
        """Makes ops wait as told; what was set before is taken away.

        Joints are kept for a later time: nothing reads those that are out of use, and TensorFlow drops them.
        """
        for op, controls in self._own:
            tf_internals.set_control_inputs(op, controls)
        self._own = []
        for name, device in waits.joints.items():
            if name not in self._joints:
                self._joints[name] = self._joint(name)
            tf_internals.set_op_device(self._joints[name], device)
        for name, after in waits.after.items():
            op, own = self._op(name), list(self._op(name).control_inputs)
            self._own.append((op, own))
            tf_internals.set_control_inputs(op, list(dict.fromkeys([*own, *map(self._op, after)])))

    def _joint(self, name: str) -> Any:
        with self._graph.as_default(), tf.control_dependencies(None):
            return tf.raw_ops.NoOp(name=name)

    def _op(self, name: str) -> Any:
        return self._joints[name] if name in self._joints else self._graph.get_operation_by_name(name)
