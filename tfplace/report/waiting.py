"""What a simulated step waits for: devices that compute and links that send, by their part of its critical path."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.compilation import XLA
from tfplace.core.critical_path import Waiting
from tfplace.core.kept import kept
from tfplace.core.placement import Placement
from tfplace.core.stepcost import STEP_TIME

_TOLD = 5


class Path(NamedTuple):
    """The critical path of a step as it runs, the last part first.

    Attributes:
      src: [N] device that computes or sends.
      dst: [N] the same device, or the one that is sent something.
      seconds: [N] that it takes.
      op: [N] the op of the step, or the cluster of `vertex`, that computes or makes what is sent.
      vertex: [V] the cluster of each op of the step; None where a step runs op by op.
    """

    src: IntArray
    dst: IntArray
    seconds: FloatArray
    op: IntArray
    vertex: IntArray | None


@kept
def path_of(placement: Placement) -> Path | None:
    """What the step waits for; None where `waits` has nothing to say.

    Kept, since tables, page and JSON of one placement all tell it.

    Source: the longest path through the schedule as in P. J. M. van Laarhoven, E. H. L. Aarts, J. K. Lenstra: Job Shop
    Scheduling by Simulated Annealing, Operations Research 40(1), 1992, section 2, with transfers and their channels.
    """
    problem = placement.problem
    if problem is None or placement.cost.objective != STEP_TIME:
        return None
    # With numba, which a command without a placement can do without.
    from tfplace.search.clustered import clustered_step, is_on_one_device
    from tfplace.simulation.evaluate import Simulator
    from tfplace.simulation.options import WITHOUT_PHASES

    device, vertex = problem.gather(placement.op_device), None
    if problem.compile == XLA and not is_on_one_device(problem, placement.op_device):
        step = clustered_step(problem, placement.op_device, placement.phases, WITHOUT_PHASES)
        simulator, device, vertex = step.simulator, step.problem.gather(step.op_device), step.vertex
    else:
        simulator = Simulator(problem, WITHOUT_PHASES, phases=placement.phases, threads=1)
    path, (_, step_s) = simulator.critical_path(device)
    if not math.isclose(step_s, placement.predicted.step_s, rel_tol=1e-9):
        return None
    to = np.where(path.reader < 0, device[path.unit], device[path.reader])
    return Path(device[path.unit], to, path.seconds, path.op, vertex)


def waits(placement: Placement) -> tuple[Waiting, ...]:
    """What the step waits for, the longest first.

    Nothing if the placement does not know its problem, is no step's, or has a step simulated by other rules.
    """
    path = path_of(placement)
    if path is None:
        return ()
    names = placement.device_names
    seconds = np.zeros((len(names), len(names)))
    np.add.at(seconds, (path.src, path.dst), path.seconds)
    found = [
        Waiting(names[a] if a == b else f"{names[a]} to {names[b]}", float(seconds[a, b]), a != b)
        for a, b in np.argwhere(seconds > 0).tolist()
    ]
    return tuple(sorted(found, key=lambda one: -one.seconds))


def waits_line(placement: Placement) -> str:
    """The largest parts, in one line; empty if there are none."""
    found, step_s = waits(placement), placement.predicted.step_s
    if not found or step_s <= 0:
        return ""
    shown = [f"{one.what} {100 * one.seconds / step_s:.0f} %" for one in found[:_TOLD]]
    rest = sum(one.seconds for one in found[_TOLD:])
    shown += [f"{len(found) - _TOLD} others {100 * rest / step_s:.0f} %"] if rest else []
    return "critical path: " + ", ".join(shown)
