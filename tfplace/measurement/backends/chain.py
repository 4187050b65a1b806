"""One op at a time on each device: the ops of a device chained by control edges in a given order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tfplace.core.graph import OpGraph
from tfplace.core.timeline import Timeline
from tfplace.errors import ApplyError
from tfplace.extraction import tf_internals

_CONTROL_FLOW = {"Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "Enter", "RefEnter", "NextIteration", "Exit"}


def refuse_control_flow(graph: OpGraph) -> None:
    """Raises if the graph's ops cannot be chained.

    Raises:
      ApplyError: it has loops or branches. An op outside of a loop cannot wait for each turn of one inside, and what
        waits for an op of the branch not taken is not run either.
    """
    found = sorted({op_type for op_type in graph.op_types if op_type in _CONTROL_FLOW})
    if found:
        raise ApplyError(
            f"{graph.name!r} with loops or branches ({', '.join(found)})",
            "a graph without them, to chain the ops of each device",
            "Unroll its loops, or measure on a cluster, whose workers need no chains.",
        )


def schedule(timeline: Timeline) -> list[list[str]]:
    """[D] of op names: each device's ops in the order in which they start; copied constants are left out.

    Ops that start at once keep the graph's order, which makes the whole a linear extension of it: chains cannot close a
    circle.
    """
    order = np.lexsort((np.arange(len(timeline.op_names)), timeline.start_s))
    chains: list[list[str]] = [[] for _ in timeline.device_names]
    for v in order.tolist():
        if not timeline.replicated[v]:
            chains[timeline.op_device[v]].append(timeline.op_names[v])
    return chains


class Chains:
    """Chains the ops of a TensorFlow graph, and undoes it.

    Args:
      graph: the TensorFlow graph.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._before: dict[str, list[Any]] = {}

    def link(self, chains: Iterable[Sequence[str]]) -> None:
        """Makes each op wait for the one before it in its chain; what was linked before is undone.

        Args:
          chains: op names.
        """
        self.undo()
        for chain in chains:
            for first, then in pairwise(chain):
                op, waits_for = (self._graph.get_operation_by_name(name) for name in (then, first))
                self._before[then] = list(op.control_inputs)
                if waits_for not in op.control_inputs:
                    tf_internals.set_control_inputs(op, [*op.control_inputs, waits_for])

    def undo(self) -> None:
        """Takes all chains away."""
        for name, controls in self._before.items():
            tf_internals.set_control_inputs(self._graph.get_operation_by_name(name), controls)
        self._before = {}
