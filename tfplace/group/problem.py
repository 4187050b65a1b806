"""Graph, topology, costs and rules, joined into the Problem that placers work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.constraints import LAYER, Constraints, match_ops
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.cost.hidden import refuse_hidden
from tfplace.errors import ConstraintError, TopologyError
from tfplace.group.bonds import binding
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
    together = {f"colocate {', '.join(patterns)}": _matches_any(patterns, graph) for patterns in constraints.colocate}
    rules = _rules(constraints, graph, topology)
    named = [[v] for rule in rules for v in rule.ops if graph.replicable[v]]
    grouping = colocate(graph, [*together.values(), *named])
    kernels = _kernels(graph, topology)
    bonds = _Bonds(graph, grouping, kernels, together)
    allowed = _of_units(kernels, grouping)
    _require_kernels(allowed, bonds)
    _restrict(allowed, rules, bonds)
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
    return sorted({v for pattern in patterns for v in match_ops(pattern, graph)})


def _devices(names: Iterable[str], topology: Topology) -> list[int]:
    return [i for name in names for i in topology.match(name)]


def _kernels(graph: OpGraph, topology: Topology) -> BoolArray:
    """[V, D] devices for whose type each op has a kernel."""
    columns = []
    for device in topology.devices:
        if device.type not in graph.kernel_types:
            raise TopologyError(
                f"device {device.name!r} of type {device.type!r}", f"types {', '.join(graph.kernel_types)}"
            )
        columns.append(graph.has_kernel[:, graph.kernel_types.index(device.type)])
    return np.stack(columns, axis=1)


def _of_units(by_op: BoolArray, grouping: Grouping) -> BoolArray:
    """[U, D] devices that every op of the unit may be on."""
    allowed = np.ones((grouping.num_units, by_op.shape[1]), bool)
    inside = grouping.unit_of >= 0
    np.logical_and.at(allowed, grouping.unit_of[inside], by_op[inside])
    return allowed


@dataclass(frozen=True, eq=False)
class _Rule:
    """A pin or a forbid.

    Attributes:
      text: for messages.
      ops: those it is about.
      devices: [D] those it leaves.
      by_layer: whether it names a layer, of which some ops may have no kernel for these devices.
    """

    text: str
    ops: Sequence[int]
    devices: BoolArray
    by_layer: bool

    def units(self, grouping: Grouping) -> list[int]:
        return sorted({int(grouping.unit_of[v]) for v in self.ops})


def _rules(constraints: Constraints, graph: OpGraph, topology: Topology) -> list[_Rule]:
    """Pins, then forbids; all names are looked up."""
    said = [(pattern, [device], True) for pattern, device in constraints.pin.items()]
    for pattern, devices in constraints.forbid.items():
        said.append((pattern, [devices] if isinstance(devices, str) else list(devices), False))
    ops = [match_ops(pattern, graph) for pattern, _, _ in said]
    out = []
    for (pattern, names, pinned), found in zip(said, ops, strict=True):
        text = f"pin {pattern!r} to {names[0]!r}" if pinned else f"forbid {pattern!r} on {', '.join(names)}"
        on = np.isin(np.arange(len(topology.devices)), _devices(names, topology))
        out.append(_Rule(text, found, on if pinned else ~on, pattern.startswith(LAYER)))
    return out


@dataclass(frozen=True, eq=False)
class _Bonds:
    """Why units are where they are, for messages.

    Attributes:
      graph: the ops.
      grouping: ops -> units.
      kernels: [V, D].
      together: ops that the user's rules join, by the rule's text.
    """

    graph: OpGraph
    grouping: Grouping
    kernels: BoolArray
    together: Mapping[str, Sequence[int]]

    def between(self, first: Sequence[int], last: Sequence[int]) -> str:
        """Ops of both, and what binds them to one device; empty if nothing does or they have an op in common."""
        bond = binding(self.graph, self.together, first, last)
        return "" if bond is None else f"{bond.first} and {bond.last}, which {bond.by} binds together"

    def shown(self, ops: Sequence[int]) -> str:
        """Some of the ops, and their types."""
        shown = ", ".join(self.graph.op_names[v] for v in ops[:3]) + (", ..." if len(ops) > 3 else "")
        return f"{shown} ({', '.join(sorted({self.graph.op_types[v] for v in ops})[:5])})"


def _require_kernels(allowed: BoolArray, bonds: _Bonds) -> None:
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck):
        members = bonds.grouping.members[stuck[0]]
        rare = min(members, key=lambda v: bonds.kernels[v].sum())
        apart = [v for v in members if not (bonds.kernels[v] & bonds.kernels[rare]).any()]
        raise _no_kernel(
            "no device of the topology that has all kernels", bonds.shown(members), bonds.between([rare], apart)
        )


def _no_kernel(what: str, shown: str, bound: str) -> ConstraintError:
    return ConstraintError(
        f"{what} for {shown}{f': {bound}' if bound else ''}",
        "at least one device that has their kernels and that the rules allow",
        "Ops that share a variable are placed together; add a CPU to the topology, or loosen the rule.",
    )


def _restrict(allowed: BoolArray, rules: Sequence[_Rule], bonds: _Bonds) -> None:
    """Narrows [U, D] allowed devices by one rule after the other.

    Raises:
      ConstraintError: a unit is left without a device.
    """
    kernels = allowed.copy()
    for i, rule in enumerate(rules):
        units = rule.units(bonds.grouping)
        if rule.by_layer:
            units = [unit for unit in units if (kernels[unit] & rule.devices).any()] or units
        for unit in units:
            allowed[unit] &= rule.devices
            if not allowed[unit].any():
                earlier = [other for other in rules[:i] if unit in other.units(bonds.grouping)]
                raise _contradiction(unit, rule, earlier, kernels[unit], bonds)


def _contradiction(
    unit: int, rule: _Rule, earlier: Sequence[_Rule], kernels: BoolArray, bonds: _Bonds
) -> ConstraintError:
    """What to say of a rule that leaves a unit without a device: the rules, ops that they name, what binds those."""
    members = bonds.grouping.members[unit].tolist()
    ours = [v for v in rule.ops if v in members]
    if not (kernels & rule.devices).any():
        unable = [v for v in members if not (bonds.kernels[v] & rule.devices).any()]
        bound = bonds.between(ours, unable) if rule.devices.any() else ""
        return _no_kernel(f"the rule {rule.text}, which leaves no device", bonds.shown(members), bound)
    against = [other for other in earlier if not (kernels & rule.devices & other.devices).any()][:1] or earlier
    bound = bonds.between([v for v in against[0].ops if v in members], ours)
    return ConstraintError(
        f"the rules {' and '.join(r.text for r in (*against, rule))}, which leave no device for "
        f"{bound or bonds.shown(ours)}",
        "rules that all allow at least one device",
        "Ops of one variable stay on one device: let the rules agree, or drop one.",
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
                    f"one limit for {topology.device_names[i]!r}, which both name",
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
