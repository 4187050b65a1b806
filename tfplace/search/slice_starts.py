"""Where searches of a step in slices start: what users would take without one, and the whole step's placement."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placement import BY_USE, FREE, Placement
from tfplace.core.problem import Problem
from tfplace.local_search.devices import compute_devices, settle, single_device
from tfplace.registry import PLACERS
from tfplace.search.clock import Clock
from tfplace.search.on_host import SLOTS, VARIABLES, on_host
from tfplace.search.place import placement_of
from tfplace.search.starts import quickly_placed
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import GPIPE, ONE_F_ONE_B, Options

DATA_PARALLEL = "data_parallel"
PIPELINES = ("one_f_one_b", "gpipe")

USUAL = (DATA_PARALLEL, *PIPELINES)
"""Placers of split steps that do not search."""

HOSTED = "on the host"
"""Placer of starts that fit by slots or variables on the host."""

_IN_ANY_ORDER = Options(phase_orders=(FREE, BY_USE, GPIPE, ONE_F_ONE_B))
"""Searches leave out the order of `gpipe`, which is seldom the best and takes as long to simulate as the others.
That of the critical path is tried for every answer (`tfplace.search.ordered`)."""


class Starts(NamedTuple):
    """What a search may start from.

    Attributes:
      placements: each in its best order of phases; not all of them need to fit.
      evaluations: that they took.
      seconds: that they took, but for laying the problem out and its bound, which do not count in a search either.
    """

    placements: list[Placement]
    evaluations: int
    seconds: float


def slice_starts(problem: Problem, whole: Placement | None, seed: int, names: Sequence[str] = USUAL) -> Starts:
    """What placers make of a step in slices, and the placement of the whole step, if there is one.

    A placer that fails is passed over, as in `auto`.

    Args:
      problem: the step in slices.
      whole: a placement of the step that is not split.
      seed: of the placers' random choices.
      names: of the placers.
    """
    simulator, bound_s = Simulator(problem, _IN_ANY_ORDER), lower_bound(problem).seconds
    clock = Clock()
    found = {} if whole is None else {whole.placer: _copied(whole, problem)}
    for name in names:
        with contextlib.suppress(Exception):
            found[name] = quickly_placed(problem, PLACERS[name](), seed, simulator)

    def started(units: IntArray, name: str) -> Placement:
        found = placement_of(
            problem,
            units,
            simulator(units),
            bound_s=bound_s,
            placer=name,
            seed=seed,
            baselines={},
            options=_IN_ANY_ORDER,
        )
        return replace(found, compile=problem.compile)

    placements = [started(units, name) for name, units in found.items()]
    usual = [placement for placement in placements if placement.placer in names]
    if usual and not any(placement.cost.feasible for placement in usual):
        fastest = min(usual, key=lambda placement: placement.cost.step_s)
        hosted = (on_host(problem, fastest.op_device, what, simulator) for what in (SLOTS, VARIABLES))
        placements += [started(units, HOSTED) for units in hosted if units is not None]
    return Starts(placements, simulator.calls, clock.seconds)


def whole_start(problem: Problem, seed: int) -> Placement | None:
    """The step on its fastest device with slots or variables on the host; None if it fits without, or does not so.

    Args:
      problem: the step that is not split.
      seed: as of `slice_starts`.
    """
    simulator = Simulator(problem)
    singles = [single_device(problem, d) for d in compute_devices(problem).tolist()]
    fastest = min(singles, key=lambda units: simulator(units).step_s)
    if simulator(fastest).feasible:
        return None
    hosted = (on_host(problem, problem.expand(fastest), what, simulator) for what in (SLOTS, VARIABLES))
    costs = [(simulator(units), units) for units in hosted if units is not None]
    fitting = [(cost, units) for cost, units in costs if cost.feasible]
    if not fitting:
        return None
    cost, units = min(fitting, key=lambda one: one[0].step_s)
    bound_s = lower_bound(problem).seconds
    found = placement_of(problem, units, cost, bound_s=bound_s, placer=HOSTED, seed=seed, baselines={})
    return replace(found, compile=problem.compile)


def _copied(whole: Placement, problem: Problem) -> IntArray:
    """[U] each op of the step in slices where the op of the whole step is that it copies."""
    slices = problem.graph.slices
    assert slices is not None
    device = dict(zip(whole.op_names, whole.op_device.tolist(), strict=True))
    wanted = problem.gather(np.array([device.get(name, 0) for name in slices.original], np.int32))
    return settle(problem, wanted)
