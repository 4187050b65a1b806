"""Timeline: when each op runs and each tensor moves in a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray, freeze
from tfplace.core.stepcost import SIMULATED
from tfplace.errors import GraphError


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """When each op of a step ran and each tensor moved. Times count from the start of the step.

    Attributes:
      device_names: [D] device names.
      op_names: [V] op names.
      op_types: [V] op types.
      op_device: [V] device index of each op.
      start_s: [V] start of each op, in seconds.
      finish_s: [V] end of each op, in seconds.
      moved: [M] for each transfer, the op whose output (or completion, for a control edge) was sent.
      moved_bytes: [M] bytes of each transfer.
      moved_src: [M] index of the sending device.
      moved_dst: [M] index of the receiving device.
      moved_start_s: [M] start of each transfer, in seconds.
      moved_finish_s: [M] end of each transfer, in seconds.
      memory_s: [N] times, in seconds and ascending, at which a device's memory in use changed.
      memory_device: [N] index of that device.
      memory_bytes: [N] bytes in use there from that time on.
      replicated: [V] whether the op is a copied constant, which takes no time.
      source: "simulated" or "measured". Measured ops on a device may overlap: TensorFlow runs several at a time.
      parallel: number of simulated ops that may overlap on one device.

    Raises:
      GraphError: an op or transfer ends before it starts, or too many simulated ops overlap on a device.
    """

    device_names: tuple[str, ...]
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    op_device: IntArray
    start_s: FloatArray
    finish_s: FloatArray
    moved: tuple[str, ...]
    moved_bytes: LongArray
    moved_src: IntArray
    moved_dst: IntArray
    moved_start_s: FloatArray
    moved_finish_s: FloatArray
    memory_s: FloatArray
    memory_device: IntArray
    memory_bytes: LongArray
    replicated: BoolArray
    source: str = SIMULATED
    parallel: int = 1

    def __post_init__(self) -> None:
        if np.any(self.finish_s < self.start_s) or np.any(self.moved_finish_s < self.moved_start_s):
            raise GraphError("an op or transfer that ends before it starts", "a finish no earlier than the start")
        for device in range(len(self.device_names)) if self.source == SIMULATED else ():
            mine = np.flatnonzero((self.op_device == device) & ~self.replicated)
            begun = mine[np.argsort(self.start_s[mine], kind="stable")]
            done = mine[np.argsort(self.finish_s[mine], kind="stable")]
            # as an op starts, all before it but `parallel - 1` must have finished
            late = self.start_s[begun[self.parallel :]] < self.finish_s[done[: -self.parallel]] - 1e-12
            if np.any(late):
                a = int(np.flatnonzero(late)[0])
                both = f"{self.op_names[done[a]]} and {self.op_names[begun[a + self.parallel]]}"
                raise GraphError(f"{both} at once on {self.device_names[device]}", self._at_once)
        for array in (self.op_device, self.start_s, self.finish_s, self.moved_start_s, self.moved_finish_s):
            freeze(array)

    @property
    def _at_once(self) -> str:
        return "one op at a time per device" if self.parallel == 1 else f"at most {self.parallel} ops at a time"

    def __repr__(self) -> str:
        return f"Timeline({len(self.op_names)} ops, {len(self.moved)} transfers, {len(self.device_names)} devices)"

    def save(self, path: str, *beside: Timeline) -> None:
        """Writes a trace that https://ui.perfetto.dev opens (Chrome trace event JSON).

        Args:
          path: path of the file.
          *beside: more timelines to show beside it, such as the measured one of the same placement.
        """
        from tfplace.registry import SERVICES

        SERVICES["timeline_save"](path, self, *beside)
