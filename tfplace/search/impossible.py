"""What no placement can hold: known before a search, from what each op and variable needs wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray
from tfplace.core.constraints import Constraints, match_ops
from tfplace.core.problem import Problem
from tfplace.errors import InfeasibleError, Shortage
from tfplace.formatting import format_bytes
from tfplace.group.problem import formulate
from tfplace.simulation.program import compile_problem
from tfplace.simulation.room import devices_with_room, least_bytes, op_bytes

_LARGEST = 5
ALL_DEVICES = "all devices together"


def check_possible(problem: Problem) -> None:
    """Raises if memory is too little for any placement.

    Raises:
      InfeasibleError: an op or variable has no device that holds it, with what must be with it, or the variables are
        larger than all memory together. `ways_out` has only what helps.
    """
    error = impossible(problem)
    if error is not None:
        raise error


def impossible(problem: Problem) -> InfeasibleError | None:
    """Why no placement fits, if that is certain; None if one may.

    Shortages are of the devices where the op or variable may be, or of `ALL_DEVICES`.
    """
    nowhere = np.flatnonzero(~devices_with_room(problem).any(axis=1))
    if len(nowhere):
        return _no_device(problem, nowhere.tolist())
    placed = problem.grouping.unit_of >= 0
    held, total = int(problem.graph.persistent_bytes[placed].sum()), int(problem.memory_limit.sum())
    if held > total:
        return _no_room_for_variables(problem, held, total)
    return None


@dataclass(frozen=True)
class _Stuck:
    """A unit that fits nowhere.

    Attributes:
      unit: its index.
      variables: (name, bytes) of its variables, largest first.
      op: of its ops that which needs most.
      op_bytes: what that reads and makes.
      need: [D] bytes that the unit needs on each device, at least.
      alone: whether its variables are too large without any op.
    """

    unit: int
    variables: tuple[tuple[str, int], ...]
    op: int
    op_bytes: int
    need: tuple[int, ...]
    alone: bool

    @property
    def held(self) -> int:
        """Bytes of the variables."""
        return sum(size for _, size in self.variables)


def _no_device(problem: Problem, nowhere: Sequence[int]) -> InfeasibleError:
    """Of several units it is the one that needs most."""
    need = least_bytes(problem)
    unit = max(nowhere, key=lambda u: int(need[u].min()))
    stuck = _stuck(problem, unit, tuple(need[unit].tolist()))
    graph, variables = problem.graph, stuck.variables
    if stuck.alone:
        name, size = variables[0]
        reason = f"No device has room for variable {name!r} of {format_bytes(size)}"
        if len(variables) > 1:
            reason += f", which shares a device with {len(variables) - 1} more, {format_bytes(stuck.held)} in all"
    else:
        reason = (
            f"No device has room for {graph.op_types[stuck.op]} {graph.op_names[stuck.op]!r}: its inputs and results "
            f"take {format_bytes(stuck.op_bytes)} at once"
        )
        if stuck.held:
            reason += f", besides {format_bytes(stuck.held)} of variables that must be on the same device"
    largest = [*variables]
    if stuck.op_bytes:
        largest.append((f"{graph.op_names[stuck.op]} (inputs and results)", stuck.op_bytes))
    largest = sorted(largest, key=lambda held: -held[1])[:_LARGEST]
    limits, names = problem.memory_limit.tolist(), problem.topology.device_names
    may = np.flatnonzero(problem.allowed[unit]).tolist()
    shortages = [Shortage(names[d], stuck.need[d], limits[d], tuple(largest)) for d in may]
    reason += f", so no placement of {graph.name!r} on {problem.topology.name!r} fits:"
    return InfeasibleError(reason, shortages, _ways_out(problem, stuck))


def _stuck(problem: Problem, unit: int, need: tuple[int, ...]) -> _Stuck:
    members = problem.grouping.members[unit]
    inside = set(members.tolist())
    found = [(v.name, v.size_bytes) for v in problem.graph.variables if v.op in inside]
    variables = tuple(sorted(found, key=lambda variable: -variable[1]))
    alone = sum(size for _, size in variables) > problem.memory_limit[problem.allowed[unit]].max()
    each = op_bytes(compile_problem(problem))[members]
    return _Stuck(unit, variables, int(members[each.argmax()]), int(each.max()), need, bool(alone))


def _ways_out(problem: Problem, stuck: _Stuck) -> list[str]:
    topology, allowed = problem.topology, np.flatnonzero(problem.allowed[stuck.unit]).tolist()
    what = repr(stuck.variables[0][0]) if stuck.alone else repr(problem.graph.op_names[stuck.op])
    ways = []
    own = [topology.devices[d].memory_bytes - topology.devices[d].workspace_bytes for d in range(problem.num_devices)]
    raised = [d for d in allowed if problem.memory_limit[d] < stuck.need[d] <= own[d]]
    if raised:
        ways.append(_raised(problem, {topology.device_names[d]: stuck.need[d] for d in raised}))
    ways += _rules_to_drop(problem, stuck, what)
    if not stuck.alone:
        ways.append(f"Make the batch smaller, if the inputs and results of {what} grow with it.")
    elif stuck.variables[0][1] > problem.memory_limit[allowed].max():
        ways.append(f"Split {what} by hand over several variables, such as one for each block of rows.")
    ways.append(f"Use a smaller dtype for {what}, such as bfloat16.")
    least = format_bytes(min(stuck.need[d] for d in allowed))
    ways.append(f"Use a topology with a device that may use {least} or more.")
    if not any(device.type == "CPU" for device in topology.devices):
        ways[-1] += " The host's CPU may be one."
    return ways


def _raised(problem: Problem, needs: dict[str, int]) -> str:
    """The limits, or headroom, that are the reason."""
    what = "Raise max_memory" if problem.constraints.max_memory else "Lower the headroom"
    if problem.constraints.max_memory and problem.constraints.headroom:
        what += " or lower the headroom"
    some = ", ".join(f"{name} (at least {format_bytes(size)})" for name, size in needs.items())
    return f"{what} of one of {some}." if len(needs) > 1 else f"{what} of {some}."


def _rules_to_drop(problem: Problem, stuck: _Stuck, what: str) -> list[str]:
    """The rules that keep a unit from a device where it fits, if there are."""
    rules = problem.constraints
    if not (rules.pin or rules.forbid or rules.colocate):
        return []
    free = Constraints(max_memory=rules.max_memory, headroom=rules.headroom)
    without = formulate(problem.graph, problem.topology, problem.costs, free)
    members = problem.grouping.members[stuck.unit]
    units = without.grouping.unit_of[members]
    room: BoolArray = devices_with_room(without)[units[units >= 0]]
    fits = room.any(axis=1).all()
    if not fits:
        return []
    inside = set(members.tolist())
    patterns = [(f"pin {p!r}", [p]) for p in rules.pin] + [(f"forbid {p!r}", [p]) for p in rules.forbid]
    patterns += [(f"colocate {', '.join(several)}", list(several)) for several in rules.colocate]
    named = [
        text for text, several in patterns if any(inside & {*match_ops(pattern, problem.graph)} for pattern in several)
    ]
    where = [problem.topology.device_names[d] for d in np.flatnonzero(room.all(axis=0)).tolist()]
    there = f"; {what} fits on {', '.join(where)}" if where else ""
    return [f"Drop the rules that keep it where it does not fit: {', '.join(named)}{there}."]


def _no_room_for_variables(problem: Problem, held: int, total: int) -> InfeasibleError:
    graph, topology = problem.graph, problem.topology
    largest = sorted(((v.name, v.size_bytes) for v in graph.variables), key=lambda variable: -variable[1])
    reason = (
        f"Variables and optimizer slots of {graph.name!r} take {format_bytes(held)}, more than the "
        f"{format_bytes(total)} of all devices of {topology.name!r} together, so no placement can fit:"
    )
    ways = []
    own = sum(device.memory_bytes - device.workspace_bytes for device in topology.devices)
    if own >= held:
        ways.append(_raised(problem, {"all devices together": held}))
    ways.append("Use a smaller dtype for variables, or an optimizer with fewer slots.")
    ways.append("Use a topology with more memory: more devices, or larger ones.")
    if not any(device.type == "CPU" for device in topology.devices):
        ways[-1] += " The host's CPU may be one."
    shortage = Shortage(ALL_DEVICES, held, total, tuple(largest[:_LARGEST]))
    return InfeasibleError(reason, [shortage], ways)
