"""Timeline: when everything in a step happens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray, freeze
from tfplace.core.stepcost import SIMULATED
from tfplace.errors import GraphError


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """When each op ran and each tensor moved.

    Attributes:
      device_names: [D].
      op_names: [V].
      op_types: [V].
      op_device: [V] device index.
      start_s: [V] seconds.
      finish_s: [V] seconds.
      moved: [M] name of the op whose output (or completion, for a control edge) was sent.
      moved_bytes: [M] bytes.
      moved_src: [M] device index.
      moved_dst: [M] device index.
      moved_start_s: [M] seconds.
      moved_finish_s: [M] seconds.
      memory_s: [N] times at which a device's memory in use changed, ascending.
      memory_device: [N] which device.
      memory_bytes: [N] bytes in use there from then on.
      replicated: [V] ops that are copies of constants and take no time of their own.
      source: "simulated" or "measured". Measured ops of one device may overlap: TensorFlow runs several at once.
      parallel: how many simulated ops of one device may overlap.
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
          path: the file.
          *beside: further timelines to show in it, such as the measured one of the same placement.
        """
        from tfplace.registry import SERVICES

        SERVICES["timeline_save"](path, self, *beside)
