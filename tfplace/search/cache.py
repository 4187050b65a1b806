"""What slow evaluators have said already."""

from __future__ import annotations

import hashlib

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.stepcost import Key


class Cache:
    """Asks an evaluator for each placement once.

    A placement that failed, or whose step was given up, is asked for again: a worker may be back, the limit higher.

    Args:
      evaluator: tells what placements cost, each the same whenever it is asked, or nearly so.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._known: dict[bytes, Key] = {}

    def keys(self, unit_devices: IntArray, limit_s: float) -> tuple[LongArray, FloatArray]:
        """See `Evaluator.keys`."""
        known = [self._known.get(_name(row)) for row in unit_devices]
        missing = [i for i, key in enumerate(known) if key is None]
        over, step_s = np.zeros(len(known), np.int64), np.zeros(len(known))
        for i, key in enumerate(known):
            if key is not None:
                over[i], step_s[i] = key
        if missing:
            rows = unit_devices[missing]
            over[missing], step_s[missing] = self._evaluator.keys(rows, limit_s)
            self.learn(rows, over[missing], step_s[missing])
        return over, step_s

    def key(self, unit_device: IntArray, limit_s: float) -> Key:
        """See `Evaluator.key`."""
        name = _name(unit_device)
        if name not in self._known:
            key = self._evaluator.key(unit_device, limit_s)
            if not np.isfinite(key[1]):
                return key
            self._known[name] = key
        return self._known[name]

    def learn(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> None:
        """Takes in what is known of the rows of [B, U]."""
        for row, missing, seconds in zip(unit_devices, over.tolist(), step_s.tolist(), strict=True):
            if np.isfinite(seconds):
                self._known[_name(row)] = (missing, seconds)


def _name(unit_device: IntArray) -> bytes:
    return hashlib.blake2b(np.asarray(unit_device, np.int32).tobytes(), digest_size=16).digest()
