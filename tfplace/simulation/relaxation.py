"""The linear relaxation of sharing out work, in which units may be divided over devices, from its dual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray

_STEPS = 300
_SCALES = 4


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A lower bound with its proof.

    Attributes:
      seconds: no division of the work over the devices has a smaller largest load.
      weight: [D] of the devices, at least 0, their sum 1.
      price: [D] of a byte in seconds, at least 0.
    """

    seconds: float
    weight: FloatArray
    price: FloatArray


def relax(unit_s: FloatArray, unit_bytes: FloatArray | None = None, limit: FloatArray | None = None) -> Relaxation:
    """The least seconds in which the devices can do all units' work within their memory, were units divisible.

    Let x[u, d] be the part of unit u on device d, T the largest load. For weights w of the devices that sum to 1 and
    prices p of their bytes, both at least 0,

        T >= sum over d of w[d] * (sum over u of x[u, d] * unit_s[u, d])
          >= sum over u and d of x[u, d] * (w[d] * unit_s[u, d] + p[d] * unit_bytes[u]) - sum over d of p[d] * limit[d]
          >= sum over u of min over d of (w[d] * unit_s[u, d] + p[d] * unit_bytes[u]) - sum over d of p[d] * limit[d]

    where the second line holds because what lies on d is within its limit, and the third because the parts of a unit
    sum to 1: Lagrangian duality for scheduling on unrelated machines (Lenstra, Shmoys and Tardos 1990, section 2) with
    memory. The last line is concave in w and p. Subgradient steps of Polyak's length (Polyak 1969), towards a target a
    little above the best value so far, come close to the best; the value is valid at every step, so the largest is
    returned.

    Args:
      unit_s: [U, D] seconds of a unit on a device, infinite where it may not be.
      unit_bytes: [U] bytes it holds there.
      limit: [D] bytes.

    Returns:
      The bound; infinite if it shows that no division fits the memory.
    """
    units, devices = unit_s.shape
    nothing = Relaxation(0.0, np.full(devices, 1.0 / devices), np.zeros(devices))
    quickest = float(unit_s.min(axis=1).sum()) / devices if units else 0.0
    if quickest <= 0:
        return nothing
    slowest = float(np.where(np.isfinite(unit_s), unit_s, 0.0).max(axis=1).sum())
    if unit_bytes is None or limit is None:
        return _climb(nothing, _sharing(unit_s, np.zeros(units), np.ones(devices), slowest), quickest)
    sharing = _sharing(unit_s, unit_bytes, np.maximum(limit, 1.0), slowest)
    best = nothing
    for scale in np.geomspace(quickest, slowest / devices, _SCALES).tolist():
        best = _climb(best, sharing, scale)
    return best


class _Sharing(NamedTuple):
    """Units of K kinds; those of one kind take the same seconds and bytes, as most units of a large graph do.

    Attributes:
      unit_s: [K, D] seconds, infinite where not allowed.
      held: [K] bytes.
      units: [K] how many.
      limit: [D] bytes.
      slowest: seconds; no division that fits takes longer.
    """

    unit_s: FloatArray
    held: FloatArray
    units: FloatArray
    limit: FloatArray
    slowest: float


def _sharing(unit_s: FloatArray, held: FloatArray, limit: FloatArray, slowest: float) -> _Sharing:
    kinds, count = np.unique(np.column_stack([unit_s, held]), axis=0, return_counts=True)
    return _Sharing(np.ascontiguousarray(kinds[:, :-1]), kinds[:, -1], count.astype(np.float64), limit, slowest)


def _climb(start: Relaxation, sharing: _Sharing, scale: float) -> Relaxation:
    """Subgradient steps from a start; prices are of a device's whole memory in units of `scale` seconds meanwhile."""
    allowed = np.isfinite(sharing.unit_s)
    seconds = np.where(allowed, sharing.unit_s, 0.0)
    share = sharing.held[:, None] / sharing.limit
    rows, devices = np.arange(len(share)), len(sharing.limit)
    best, weight, price = start, start.weight, start.price * sharing.limit / scale
    reach = 0.1  # of the target above the best value
    for _ in range(_STEPS if np.isfinite(start.seconds) else 0):
        chosen = np.where(allowed, seconds * weight + share * (price * scale), np.inf).argmin(axis=1)
        load = np.bincount(chosen, sharing.units * seconds[rows, chosen], minlength=devices)
        over = np.bincount(chosen, sharing.units * share[rows, chosen], minlength=devices) - 1.0
        value = float(load @ weight + scale * (price @ over))
        reach = min(reach * 2, 2.0) if value > best.seconds * (1 + reach / 4) else max(reach * 0.95, 1e-4)
        if value > sharing.slowest * (1 + 1e-6):
            return Relaxation(np.inf, weight, price * scale / sharing.limit)
        if value > best.seconds:
            best = Relaxation(value, weight, price * scale / sharing.limit)
        slope = load - load.mean()
        steep = np.where((price <= 0) & (over < 0), 0.0, scale * over)
        steepness = float(slope @ slope + steep @ steep)
        if steepness <= (1e-9 * scale) ** 2:
            break  # level: this is the top
        length = (best.seconds * (1 + reach) - value) / steepness
        weight = _to_simplex(weight + length * slope)
        price = np.maximum(price + length * steep, 0.0)
    return best


def _to_simplex(point: FloatArray) -> FloatArray:
    """The nearest point with no negative part and sum 1 (Duchi et al. 2008, figure 1)."""
    falling = np.sort(point)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(point) + 1)
    nearest: FloatArray = np.maximum(point - excess[np.flatnonzero(falling > excess)[-1]], 0.0)
    return nearest
