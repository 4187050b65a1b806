"""What the simulator takes into account, and in what order devices work; see docs/reference/simulator_options.md."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.core.placement import BY_USE, CRITICAL_PATH, FREE
from tfplace.errors import InputError, UnknownNameError

ORDERS = ("fifo", "lifo", "inline", "random", "critical_path")
OVERHEAD_ORDERS = ("first", "in turn", "preempt")
GPIPE, ONE_F_ONE_B = "gpipe", "1f1b"
GIVEN = "given"
"""What an order is called whose phases are given."""
PHASE_ORDERS = (FREE, BY_USE, GPIPE, ONE_F_ONE_B, CRITICAL_PATH)


@dataclass(frozen=True)
class Options:
    """How a step is simulated. `Options()` is the best predictor known; everything that simulates takes it by default.

    Attributes:
      overheads: transfers keep their sending and receiving devices from computing for as long as the topology's
        `link_overheads` say. Without such overheads, which none of the presets has, it makes no difference.
      overhead_order: when a device does that work. "first": as soon as the op at hand is done; "in turn": in the order
        of ready times, with the ops; "preempt": at once, the op at hand waits.
      order: which ready op a device starts next. "fifo": the one ready first; "lifo": the one ready last, so that work
        goes depth first; "inline": as TensorFlow's executor, whose threads go on with the cheap successors of what
        they have run and leave the others to a pool; "random": by a random rank of the ops, which shows how much the
        order matters; "critical_path": the one after which most seconds remain, whichever devices they are on.
      seed: of the ranks in a "random" order.
      cheap_s: in an "inline" order an op of a CPU is cheap if one execution takes at most this long (TensorFlow: 8,000
        cycles). Ops of other devices are all cheap.
      parallel: how many ops a device runs at once; n at once each run at 1/n of the speed.
      host_copies: ops whose results lie in host memory, on a device that is no CPU, and readers there that want them
        in the device's memory cost a transfer over the link from the host, and the other way round.
      phase_orders: the phases that a placement of a split step is tried with; what is simulated is the best of them
        (`tfplace.simulation.phases`). "free": none; "by_use": variables are read as the forward pass comes to need
        them; "gpipe": all slices forward, then all backward; "1f1b": one forward, one backward in turn, so that a stage
        holds no more slices than there are stages from it on; "critical_path": as devices work in `order`
        "critical_path", in stretches (`tfplace.simulation.stretches`). A step has to be simulated to find these, so it
        takes twice as long and batches take one placement at a time.

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
"""The default rules for a step whose phases are given, or that has none."""
