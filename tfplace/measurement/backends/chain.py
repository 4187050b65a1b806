"""One op at a time on each device: the ops of a device chained by control edges in a given order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from tfplace.core.graph import OpGraph
from tfplace.core.timeline import Timeline
from tfplace.errors import ApplyError
from tfplace.execution.waits import Waits

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


def chained(chains: Iterable[Sequence[str]]) -> Waits:
    """Each op waits for the one before it in its chain.

    Args:
      chains: op names.
    """
    return Waits({then: (first,) for chain in chains for first, then in pairwise(chain)})
