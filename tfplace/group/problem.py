"""Graph, topology, costs and rules, joined into the Problem that placers work on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.constraints import Constraints, match_ops
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.cost.hidden import refuse_hidden
from tfplace.errors import ConstraintError, TopologyError
from tfplace.group.colocation import colocate
from tfplace.units import parse_bytes


def formulate(graph: OpGraph, topology: Topology, costs: CostTable, constraints: Constraints) -> Problem:
    """Folds kernels, colocation and the user's rules into units, allowed devices and memory limits.

    Raises:
      ConstraintError: a rule matches no op, contradicts another, or asks for a device without the op's kernel.
      TopologyError: a device type that TensorFlow's kernels were not looked up for.
      UnknownNameError: a rule names a device the topology lacks.
      InputError: most of the graph is inside functions that its ops keep.
    """
    if costs.compute_s.shape != (graph.num_ops, len(topology.devices)):
        raise ConstraintError(
            f"costs of shape {costs.compute_s.shape}", f"[{graph.num_ops} ops, {len(topology.devices)} devices]"
        )
    refuse_hidden(graph, costs)
    together = [_matches_any(patterns, graph) for patterns in constraints.colocate]
    pinned = {pattern: match_ops(pattern, graph.op_names) for pattern in (*constraints.pin, *constraints.forbid)}
    named = [[v] for ops in pinned.values() for v in ops if graph.replicable[v]]
    grouping = colocate(graph, [*together, *named])
    allowed = _kernels(graph, topology, grouping)
    _require_some(allowed, grouping, graph, "ops whose kernels share no device of the topology")
    for pattern, device in constraints.pin.items():
        only = np.isin(np.arange(len(topology.devices)), _devices([device], topology))
        _restrict(allowed, _units(grouping, pinned[pattern]), only)
        _require_some(allowed, grouping, graph, f"the rule pin {pattern!r} to {device!r}, which leaves no device")
    for pattern, devices in constraints.forbid.items():
        names = [devices] if isinstance(devices, str) else devices
        rest = ~np.isin(np.arange(len(topology.devices)), _devices(names, topology))
        _restrict(allowed, _units(grouping, pinned[pattern]), rest)
        rule = f"forbid {pattern!r} on {', '.join(names)}"
        _require_some(allowed, grouping, graph, f"the rule {rule}, which leaves no device")
    return Problem(
        graph=graph,
        topology=topology,
        costs=costs,
        constraints=constraints,
        grouping=grouping,
        allowed=allowed,
        memory_limit=_memory_limit(topology, constraints),
        follows=_follows(graph, grouping),
    )


def _matches_any(patterns: Sequence[str], graph: OpGraph) -> list[int]:
    return sorted({v for pattern in patterns for v in match_ops(pattern, graph.op_names)})


def _devices(names: Iterable[str], topology: Topology) -> list[int]:
    return [i for name in names for i in topology.match(name)]


def _kernels(graph: OpGraph, topology: Topology, grouping: Grouping) -> BoolArray:
    """[U, D] devices for whose type every op of the unit has a kernel."""
    columns = []
    for device in topology.devices:
        if device.type not in graph.kernel_types:
            raise TopologyError(
                f"device {device.name!r} of type {device.type!r}", f"types {', '.join(graph.kernel_types)}"
            )
        columns.append(graph.has_kernel[:, graph.kernel_types.index(device.type)])
    by_op = np.stack(columns, axis=1)
    allowed = np.ones((grouping.num_units, len(columns)), bool)
    inside = grouping.unit_of >= 0
    np.logical_and.at(allowed, grouping.unit_of[inside], by_op[inside])
    return allowed


def _units(grouping: Grouping, ops: Sequence[int]) -> list[int]:
    return sorted({int(grouping.unit_of[v]) for v in ops})


def _restrict(allowed: BoolArray, units: Sequence[int], devices: BoolArray) -> None:
    for unit in units:
        allowed[unit] &= devices


def _require_some(allowed: BoolArray, grouping: Grouping, graph: OpGraph, what: str) -> None:
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck):
        members = grouping.members[stuck[0]]
        shown = ", ".join(graph.op_names[v] for v in members[:3]) + (", ..." if len(members) > 3 else "")
        raise ConstraintError(
            f"{what} for {shown} ({', '.join(sorted({graph.op_types[v] for v in members})[:5])})",
            "at least one device that has their kernels and that the rules allow",
            "Ops that share a variable are placed together; add a CPU to the topology, or loosen the rule.",
        )


def _memory_limit(topology: Topology, constraints: Constraints) -> LongArray:
    limit = np.array([d.memory_bytes for d in topology.devices], np.int64)
    said: dict[int, str] = {}
    for name, size in constraints.max_memory.items():
        for i in _devices([name], topology):
            other = constraints.max_memory[said.setdefault(i, name)]
            if parse_bytes(other) != parse_bytes(size):
                raise ConstraintError(
                    f"max_memory of {size} for {name!r} and {other} for {said[i]!r}",
                    f"one for {topology.device_names[i]!r}, which both name",
                )
            limit[i] = parse_bytes(size)
    workspace = np.array([d.workspace_bytes for d in topology.devices], np.int64)
    kept: LongArray = np.floor(limit * (1 - constraints.headroom)).astype(np.int64) - workspace
    return np.maximum(kept, 0)


def _follows(graph: OpGraph, grouping: Grouping) -> IntArray:
    """[V] the consumer whose device a replicable constant reports as its own: the first one that has a unit."""
    out = np.arange(graph.num_ops, dtype=np.int32)
    free = grouping.unit_of < 0
    # data edges come after control edges here, so that where both exist the data edge decides
    order = np.lexsort((-graph.edge_dst, graph.edge_tensor >= 0))
    for e in order:
        src, dst = graph.edge_src[e], graph.edge_dst[e]
        if free[src] and not free[dst]:
            out[src] = dst
    return out
