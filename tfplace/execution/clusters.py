"""Clusters: which ops of a placed step XLA compiles together, device by device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfplace.core.arrays import IntArray
from tfplace.core.control_flow import control_flow
from tfplace.core.graph import OpGraph
from tfplace.execution.cluster_ops import find_cluster_ops
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.execution.while_loops import WhileLoop

_CALLS = "Cluster"
"""How the names of calls begin."""


@dataclass(frozen=True)
class Cluster:
    """Ops that XLA compiles to one program.

    Attributes:
      name: of the call that takes their place. It begins with a capital, since TensorFlow renames an op that is called
        like a result of its function, and those have none.
      device: TensorFlow device, of all of them.
      ops: names, in topological order; those of a loop stand together.
      loops: that are among them.
    """

    name: str
    device: str
    ops: tuple[str, ...]
    loops: tuple[WhileLoop, ...] = ()


@dataclass(frozen=True)
class Clusters:
    """What of a step is compiled, and what is not.

    Attributes:
      clusters: which may run in this order.
      left_out: op -> why it runs by itself. Arguments, variables and constants that are copied are in neither.
    """

    clusters: tuple[Cluster, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, int]:
        """Why ops were left out -> how many, most first."""
        return dict(Counter(self.left_out.values()).most_common())

    def __str__(self) -> str:
        count, ops = len(self.clusters), sum(len(cluster.ops) for cluster in self.clusters)
        return f"{ops:,} ops in {count} cluster{'s' * (count != 1)}"


def find_clusters(
    graph: OpGraph,
    op_device: IntArray,
    devices: Sequence[str],
    *,
    phases: IntArray | None = None,
    waits: Waits = NO_WAITS,
    without: Mapping[str, str] | None = None,
) -> Clusters:
    """Parts ops into clusters so that no cluster waits for itself.

    What is compiled together has one device, one slice of the batch and one phase; see `merged`. Ops of two slices are
    kept apart, as one slice would else wait for the data of the other, and ops that are computed again from all others.
    XLA's own clustering (`MarkForCompilationPass`) knows neither slices nor phases, and does not tell which ops are in
    its clusters.

    Args:
      graph: [V] ops.
      op_device: [V] device of each op.
      devices: [D] TensorFlow devices.
      phases: [V] phase of each op on its device; see `Placement.phases`.
      waits: what ops wait for besides their inputs.
      without: further ops that are to be left out -> why.
    """
    found = find_cluster_ops(graph, op_device, devices, phases=phases, waits=waits, without=without)
    prefix = _CALLS
    while any(name.startswith(prefix) for name in graph.op_names):
        prefix += "_"
    loop = control_flow(graph).loop
    out = []
    for number, ops in enumerate(found.ops):
        inside = tuple(found.loops[one] for one in dict.fromkeys(loop[ops].tolist()) if one in found.loops)
        names = tuple(graph.op_names[v] for v in ops.tolist())
        out.append(Cluster(f"{prefix}_{number}", devices[op_device[ops[0]]], names, inside))
    return Clusters(tuple(out), found.left_out)
