"""Steps timed in turns, each beside one of the reference."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from research.benchmarks.slices_running.mirrored import PeerError
from tfplace.core.compilation import XLA
from tfplace.execution.phases import phase_waits
from tfplace.execution.updates import with_updates_last
from tfplace.measurement.backends.compiled import compiled_running
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running
from tfplace.measurement.protocol.sampling import TOLERANCE

WARMUP = 3
FEWEST = 3
"""Turns taken, however long they take."""


@dataclass
class Turns:
    """What was measured of one way to run a step.

    Attributes:
      pairs: of each turn its seconds, the reference's right after, and the share of a core that others used.
      failed: why it does not run, if it does not.
    """

    pairs: list[tuple[float, float, float]] = field(default_factory=list)
    failed: str | None = None

    def kept(self, turns):
        """Pairs that count: the least disturbed, in their order."""
        limit = sorted(max(pair[2], TOLERANCE) for pair in self.pairs)[: max(turns, 1)]
        quiet = [pair for pair in self.pairs if pair[2] <= limit[-1]] if limit else []
        return quiet[:turns]

    def to_dict(self, turns):
        """Plain data."""
        kept = self.kept(turns)
        return {
            "measured": [step / reference for step, reference, _ in kept],
            "measured_s": [step for step, _, _ in kept],
            "reference_s": [reference for _, reference, _ in kept],
            "others_share": [share for _, _, share in kept],
            "disturbed": sum(share > TOLERANCE for _, _, share in kept),
            "failed": self.failed,
        }


def start(variant, cluster, batch):
    """A variant's step, running on the workers."""
    program = StepGraph(variant.graph, batch)
    placement, graph = variant.placement, variant.graph
    waits = phase_waits(graph, placement.op_device, placement.phases, cluster.devices)
    if placement.compile == XLA:
        compiled = compiled_running(
            program, cluster, placement.op_device, cluster.devices, {}, waits=waits, phases=placement.phases
        )
        if compiled is not None:
            return compiled
    waits = with_updates_last(graph, placement.op_device, waits)
    program.place({op: cluster.devices[device] for op, device in variant.devices.items()}, waits)
    return Running(program, cluster, None)


def take_turns(
    steps: Mapping[str, Callable[[], float]],
    reference: Callable[[], float],
    disturbance: Callable[[], float],
    failure_of: Callable[[Exception], object | None],
    *,
    turns: int,
    limit_s: float,
    seed: int,
) -> dict[str, Turns]:
    """Runs all steps in turns, in another order each time.

    Args:
      steps: name -> runs a step and gives back its seconds.
      reference: the same, of what all are compared to.
      disturbance: the share of a core that others used since it was last called.
      failure_of: what an exception says of a step; None for a bug.
      turns: that count. As long as turns were disturbed, up to twice as many are taken.
      limit_s: no turn begins after so many seconds, but for the first ones.
      seed: of the orders.
    """
    rng, began = random.Random(seed), time.monotonic()
    found = {name: Turns() for name in steps}
    for _ in range(WARMUP):
        reference()
    for turn in range(-WARMUP, 2 * turns):
        open_ones = [name for name in steps if found[name].failed is None and not _enough(found[name], turns)]
        if not open_ones or (turn >= FEWEST and time.monotonic() - began > limit_s):
            break
        for name in rng.sample(open_ones, len(open_ones)):
            disturbance()
            try:
                step_s = steps[name]()
            except Exception as error:
                failure = error if isinstance(error, PeerError) else failure_of(error)
                if failure is None:
                    raise
                found[name].failed = str(failure)
                continue
            reference_s = reference()
            if turn >= 0:
                found[name].pairs.append((step_s, reference_s, disturbance()))
    return found


def _enough(found, turns):
    return sum(share <= TOLERANCE for _, _, share in found.pairs) >= turns
