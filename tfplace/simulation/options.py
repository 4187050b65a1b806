"""Simulation options, such as the order in which ops start; see docs/reference/simulator_options.md."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.core.placement import BY_USE, CRITICAL_PATH, FREE
from tfplace.errors import InputError, UnknownNameError

ORDERS = ("fifo", "lifo", "inline", "random", "critical_path")
OVERHEAD_ORDERS = ("first", "in turn", "preempt")
GPIPE, ONE_F_ONE_B = "gpipe", "1f1b"
GIVEN = "given"
"""Name of the order if the phases are given."""
PHASE_ORDERS = (FREE, BY_USE, GPIPE, ONE_F_ONE_B, CRITICAL_PATH)


@dataclass(frozen=True)
class Options:
    """How a step is simulated. The defaults are the best predictor known, and all simulations use them by default.

    Attributes:
      overheads: whether transfers keep their sending and receiving devices from computing, for as long as the
        `link_overheads` of the topology say. Without such overheads, as in all presets, this makes no difference.
      overhead_order: when a device does that work. "first": as soon as the current op is done; "in turn": in the order
        of ready times, together with the ops; "preempt": at once, while the current op waits.
      order: which ready op a device starts next. "fifo": the one ready first; "lifo": the one ready last, so that the
        device works depth first; "inline": as in TensorFlow's executor, whose threads continue with an op's cheap
        successors and leave the others to a pool; "random": by a random rank of the ops, which shows how much the order
        matters; "critical_path": the one with the longest path of ops after it, each op on its fastest device.
      seed: seed of the ranks in "random" order.
      cheap_s: in "inline" order, an op on a CPU is cheap if one execution takes at most this many seconds (TensorFlow:
        8,000 cycles). Ops on other devices are all cheap.
      parallel: number of ops that a device runs at once. With n ops at once, each runs at 1/n of the speed.
      host_copies: whether copies between the memory of a device that is not a CPU and the memory of its host cost a
        transfer over their link.
      phase_orders: the orders of phases that are tried for a split step; the best one counts
        (`tfplace.simulation.phases`). "free": no phases; "by_use": variables are read shortly before the forward pass
        needs them; "gpipe": all slices forward, then all backward; "1f1b": one forward and one backward pass in turn,
        so that a stage holds at most as many slices as there are stages from it on; "critical_path": stretches of the
        order "critical_path" (`tfplace.simulation.stretches`). The last one needs a simulation to find the stretches,
        so it takes twice as long, and batches take one placement at a time.

    Raises:
      UnknownNameError: an unknown order. The error lists the known ones.
      InputError: a number is out of range, or there is no order of phases.

    >>> Options(order="fast")
    Traceback (most recent call last):
    tfplace.errors.UnknownNameError: received order 'fast'; expected one of critical_path, fifo, inline, lifo, random.
    """

    overheads: bool = True
    overhead_order: str = "in turn"
    order: str = "fifo"
    seed: int = 0
    cheap_s: float = 3e-6
    parallel: int = 1
    host_copies: bool = False
    phase_orders: tuple[str, ...] = (FREE, BY_USE, ONE_F_ONE_B)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownNameError("order", self.order, ORDERS)
        if self.overhead_order not in OVERHEAD_ORDERS:
            raise UnknownNameError("overhead order", self.overhead_order, OVERHEAD_ORDERS)
        for name in self.phase_orders:
            if name not in PHASE_ORDERS:
                raise UnknownNameError("order of phases", name, PHASE_ORDERS)
        if not self.phase_orders:
            raise InputError("no order of phases", f"one or more of {', '.join(PHASE_ORDERS)}")
        if self.parallel < 1:
            raise InputError(f"parallel {self.parallel!r}", "at least 1 op at once")
        if not self.cheap_s >= 0:
            raise InputError(f"cheap_s {self.cheap_s!r}", "seconds of at least 0")


DEFAULT = Options()

WITHOUT_PHASES = Options(phase_orders=(FREE,))
"""The default options for a step whose phases are given, or that has none."""
