"""A step that takes less memory, as some of its forward ops are computed again for the backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tfplace.core.arrays import IntArray, LongArray
from tfplace.core.placement import FREE, Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import ApplyError, InfeasibleError, InputError, Shortage
from tfplace.execution.phases import phase_waits
from tfplace.local_search.devices import single_device
from tfplace.rematerialization.greedy import greedy
from tfplace.rematerialization.regions import named_segments
from tfplace.rematerialization.sqrt import sqrt_segments
from tfplace.rematerialization.trial import Trial, Trials, problem_of_copies
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT, PHASE_ORDERS
from tfplace.units import parse_bytes

SQRT = "sqrt"
"""Segments of the square root of the layers (Chen et al., 2016)."""

MaxMemory = float | int | str | Mapping[str, int | str]
Segments = str | Sequence[str | Sequence[str]]


def with_less_memory(trials: Trials, segments: Segments | None, max_memory: MaxMemory | None) -> Trial:
    """The step in which the named segments are computed again, or what has to be for it to fit.

    Args:
      trials: the placed step.
      segments: see `tfplace.rematerialize`.
      max_memory: see there.

    Raises:
      InputError: neither or both of `segments` and `max_memory`, or what they cannot be.
      ConstraintError: a segment's pattern matches nothing.
      InfeasibleError: too little memory.
    """
    graph = trials.problem.graph
    if graph.recomputes is not None:
        raise InputError(f"{graph.name!r}, which recomputes ops already", "a graph without recomputation")
    if (segments is None) == (max_memory is None):
        given = "neither segments nor max_memory" if segments is None else "segments and max_memory"
        raise InputError(given, 'one of the two, such as max_memory=0.5 or segments="sqrt"')
    if segments is not None and segments != SQRT and not _are_patterns(segments):
        raise InputError(f"segments={segments!r}", f'"{SQRT}", or a list of patterns such as ["layer:block1"]')
    if segments is not None:
        return trials(sqrt_segments(graph) if segments == SQRT else named_segments(graph, segments))
    assert max_memory is not None
    limit = memory_limits(trials, max_memory)
    trial = greedy(trials, limit)
    over = np.flatnonzero(trial.cost.peak_bytes > limit).tolist()
    if over:
        names = trials.problem.topology.device_names
        raise InfeasibleError(
            f"No choice of ops to recompute was found with which a step of {graph.name!r} fits.",
            [Shortage(names[d], int(trial.cost.peak_bytes[d]), int(limit[d])) for d in over],
            ["Allow more memory.", "Split the batch: tfplace.split(model, slices).", "Place it on more devices."],
        )
    return trial


def _are_patterns(segments: object) -> bool:
    if isinstance(segments, str) or not isinstance(segments, Sequence):
        return False
    lists = [[one] if isinstance(one, str) else one for one in segments]
    return all(isinstance(one, Sequence) and all(isinstance(pattern, str) for pattern in one) for one in lists)


def memory_limits(trials: Trials, max_memory: MaxMemory) -> LongArray:
    """[D] bytes that each device may use; of those that are not named, what they have.

    Raises:
      InputError: it is no size, or a fraction that is not between 0 and 1.
      UnknownNameError: no such device.
    """
    problem = trials.problem
    limit = problem.memory_limit.copy()
    if isinstance(max_memory, Mapping):
        for pattern, size in max_memory.items():
            limit[list(problem.topology.match(pattern))] = parse_bytes(size)
    elif isinstance(max_memory, float):
        if not 0 < max_memory < 1:
            raise InputError(f"max_memory={max_memory!r}", "a fraction of the peak between 0 and 1, or whole bytes")
        peak = trials(()).cost.peak_bytes
        used = _used(trials)
        limit[used] = (max_memory * peak[used]).astype(np.int64)
    else:
        limit[_used(trials)] = parse_bytes(max_memory)
    return limit


def _used(trials: Trials) -> IntArray:
    """Devices of the kinds that compute: the accelerators, or CPUs if there are only those."""
    used = np.unique(trials.op_device[~trials.problem.graph.replicable])
    types = [trials.problem.topology.devices[d].type for d in used.tolist()]
    faster = np.array([kind != "CPU" for kind in types], np.bool_)
    return (used[faster] if faster.any() else used).astype(np.int32)


def one_device(problem: Problem) -> Trials:
    """The step on the first accelerator, or on the first device if there is none."""
    devices = problem.topology.devices
    first = next((d for d, device in enumerate(devices) if device.type != "CPU"), 0)
    return Trials(problem, problem.expand(single_device(problem, first)))


def of_placement(placement: Placement) -> Trials:
    """The step as it is placed.

    Raises:
      InputError: the placement does not know its problem.
    """
    if placement.problem is None:
        raise InputError(
            "a placement that was loaded without its problem",
            "a placement that was found in this process",
            "Load it with its problem: tfplace.Placement.load(path, problem=problem).",
        )
    return Trials(placement.problem, placement.op_device, placement.order)


def _ordered(problem: Problem, op_device: IntArray, order: str) -> tuple[StepCost, str, IntArray | None]:
    """The cost of a step in an order of phases, its name and the phases; without any if a program cannot keep to it."""
    found = Simulator(problem, replace(DEFAULT, phase_orders=(order,))).ordered(op_device)
    try:
        phase_waits(problem.graph, op_device, found[2], problem.topology.device_names)
    except ApplyError:
        return _ordered(problem, op_device, FREE)
    return found


def placed_alike(placement: Placement, trial: Trial) -> Placement:
    """The placement of a step in which ops are computed again, each where the op is that it is a copy of.

    Args:
      placement: of the step in which nothing is.
      trial: from `of_placement`.
    """
    assert placement.problem is not None
    problem = problem_of_copies(placement.problem, trial.graph, trial.of)
    op_device = placement.op_device[trial.of]
    cost, order, phases = _ordered(problem, op_device, placement.order if placement.order in PHASE_ORDERS else FREE)
    return replace(
        placement,
        op_names=trial.graph.op_names,
        op_device=op_device,
        cost=cost,
        simulated=None,
        graph_fingerprint=trial.graph.fingerprint,
        problem=problem,
        problem_fingerprint=problem.fingerprint,
        phases=phases,
        order=order,
    )
