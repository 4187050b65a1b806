"""How long tensors take from one device to another, and how much of the devices' cores that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.cost.calibrate import TransferTimes
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.calibration.bench import Build, Timings, process_of, products, time_steps, value

SIZES = tuple(1024 * 4**i for i in range(9))
"""1 KiB to 64 MiB."""

_FLOAT_BYTES = 4
_SMALL, _LARGE = 2**20, 2**24
_WORK = 1.5
"""Computation between two transfers, in transfer times, so that the computation is what the step waits for."""

SIDE = 448
"""Of the matrices whose products are computed between two transfers: three of them (2.4 MB) sweep the cache of a core,
as the ops of a model do. Beside small products, which leave the cache alone, small transfers take half as long."""


def measure_transfers(
    backend: Backend,
    src: str,
    dst: str,
    flops: float,
    *,
    sizes: Sequence[int] = SIZES,
    side: int = SIDE,
    progress: Callable[[], None] | None = None,
) -> TransferTimes:
    """Measures one directed pair of devices.

    One way: steps in which tensors go from `src` to `dst` one after the other, each when the completion of the one
    before has come back, with one number of rounds and with a larger one. The difference per round, less the way back
    (half a round without data), is the one-way time: what a step takes by itself drops out.

    The ends: steps in which both devices compute all the time, `src` sending a tensor every now and then or, for
    comparison, keeping it. The difference in processor time of a device's process, per transfer, is what a transfer
    takes of its core. Where that does not tell (processes of other machines, GPUs, two devices of one process) only one
    end computes, and the difference in the step's time stands for it.

    Args:
      backend: where both devices are.
      src: sending device, full name.
      dst: receiving device, full name.
      flops: operations per second of the slower device, for knowing how much to compute.
      sizes: [S] bytes.
      side: of the matrices whose products are computed between two transfers.
      progress: called after each size.

    Raises:
      ApplyError: a step fails.
    """
    pair = _Pair(backend, src, dst, side)
    back_s = pair.round_s(0) / 2
    one_way, send, receive = [], [], []
    for size in sizes:
        one_way.append(max(pair.round_s(size) - back_s, back_s))
        ends = pair.core_s(size, max(1, math.ceil(_WORK * one_way[-1] * flops / (2 * side**3))))
        send.append(ends[0])
        receive.append(ends[1])
        if progress is not None:
            progress()
    arrays = [np.array(a, np.float64) for a in (sizes, one_way, send, receive)]
    return TransferTimes(src, dst, *arrays)


@dataclass(frozen=True)
class _Pair:
    backend: Backend
    src: str
    dst: str
    side: int

    def round_s(self, size: int) -> float:
        """Seconds of a tensor's way to `dst` and of the completion's way back; size 0 sends completions both ways."""
        few, many, repeats = (16, 32, 30) if size < _SMALL else (4, 8, 10) if size < _LARGE else (1, 3, 5)
        timings = time_steps(self.backend, [self._rounds(size, n) for n in (few, many)], repeats)
        return timings.extra_s() / (many - few)

    def _rounds(self, size: int, count: int) -> Build:
        def build() -> list[Any]:
            data = value(self.src, [max(1, size // _FLOAT_BYTES)])
            last = data.op
            for _ in range(count):
                with tf.device(self.src), tf.control_dependencies([last]):
                    sent = tf.identity(data) if size else tf.no_op()
                with tf.device(self.dst), tf.control_dependencies([] if size else [sent]):
                    last = tf.identity(sent).op if size else tf.no_op()
            with tf.device(self.src), tf.control_dependencies([last]):
                return [tf.no_op()]

        return build

    def core_s(self, size: int, work: int) -> tuple[float, float]:
        """Seconds a transfer takes of each end, with `work` products computed between two."""
        count, repeats = (32, 15) if size < _SMALL else (8, 10) if size < _LARGE else (3, 5)
        src, dst = (process_of(self.backend, d) for d in (self.src, self.dst))
        if src is not None and dst is not None and src != dst:
            timings = self._kept_and_sent(size, count, work, repeats, busy=(self.src, self.dst))
            return timings.extra_core_s(src) / count, timings.extra_core_s(dst) / count
        ends = [self._kept_and_sent(size, count, work, repeats, busy=(d,)) for d in (self.src, self.dst)]
        return ends[0].extra_s() / count, ends[1].extra_s() / count

    def _kept_and_sent(self, size: int, count: int, work: int, repeats: int, *, busy: Sequence[str]) -> Timings:
        builds = [self._stream(size, count, work, busy, to=to) for to in (self.src, self.dst)]
        return time_steps(self.backend, builds, repeats)

    def _stream(self, size: int, count: int, work: int, busy: Sequence[str], *, to: str) -> Build:
        """`count` stretches of computation on the busy devices; after each of the sender's, a tensor is for `to`."""

        def build() -> list[Any]:
            chains = {device: products(device, count * work, self.side) for device in busy}
            data = value(self.src, [max(1, size // _FLOAT_BYTES)])
            ends = [chain[-1].op for chain in chains.values()]
            for i in range(count):
                after = [chains[self.src][(i + 1) * work - 1].op] if self.src in chains else []
                with tf.device(self.src), tf.control_dependencies(after):
                    sent = tf.identity(data)
                with tf.device(to):
                    ends.append(tf.identity(sent).op)
            return ends

        return build
