"""What a row of a plan is as slow as it is for, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfplace.core.critical_path import Waiting
from tfplace.core.plan import PlanRow
from tfplace.formatting import format_bytes

_TOLD, _LARGEST = 4, 2


def bottleneck(row: PlanRow) -> str:
    """The parts of the row's critical path, or the memory that is missing.

    >>> waiting_words([Waiting("GPU:0", 3.0), Waiting("GPU:0 to GPU:1", 1.0, sends=True)], 4.0)
    'computing on GPU:0 75 %, sending GPU:0 to GPU:1 25 %'
    """
    if not row.cost.feasible:
        return _missing(row)
    if row.waits:
        return waiting_words(row.waits, row.cost.step_s)
    return _busiest(row)


def waiting_words(waits: Sequence[Waiting], step_s: float) -> str:
    """Parts of a step's critical path, by their part of the step; of many, what is computed and sent, with the largest.

    >>> waiting_words([*[Waiting(f"GPU:{i}", 3.0) for i in range(4)], Waiting("GPU:0 to GPU:1", 1.0, sends=True)], 13.0)
    'computing 92 % (GPU:0 23 %, GPU:1 23 %, 2 more), sending 8 % (GPU:0 to GPU:1 8 %)'
    """
    if len(waits) <= _TOLD:
        each = (f"{'sending' if one.sends else 'computing on'} {one.what}" for one in waits)
        return ", ".join(f"{what} {_percent(one.seconds, step_s)}" for what, one in zip(each, waits, strict=True))
    kinds = {"computing": [one for one in waits if not one.sends], "sending": [one for one in waits if one.sends]}
    told = [(sum(one.seconds for one in parts), kind, parts) for kind, parts in kinds.items() if parts]
    return ", ".join(
        f"{kind} {_percent(total, step_s)} ({_largest(parts, step_s)})"
        for total, kind, parts in sorted(told, key=lambda one: -one[0])
    )


def _largest(parts: Sequence[Waiting], step_s: float) -> str:
    shown = [f"{one.what} {_percent(one.seconds, step_s)}" for one in parts[:_LARGEST]]
    return ", ".join([*shown, *([f"{len(parts) - _LARGEST} more"] if len(parts) > _LARGEST else [])])


def _missing(row: PlanRow) -> str:
    cost = row.cost
    if cost.failure is not None:
        return str(cost.failure)
    over = cost.peak_bytes - cost.limit_bytes
    worst = int(np.argmax(over))
    names = _names(row)
    where = names[worst] if names else f"device {worst}"
    return f"memory of {where}: {format_bytes(over[worst])} more than it may use"


def _busiest(row: PlanRow) -> str:
    """Of a step whose critical path is not known: what its busiest device does."""
    cost = row.cost
    if np.isnan(cost.compute_s).any() or cost.step_s <= 0:
        return ""
    busiest = int(np.argmax(cost.compute_s))
    names = _names(row)
    where = names[busiest] if names else "the busiest device"
    computes, moves = (_percent(float(part[busiest]), cost.step_s) for part in (cost.compute_s, cost.transfer_s))
    return f"{where} computes {computes} and sends or receives {moves} of the step"


def _names(row: PlanRow) -> tuple[str, ...]:
    """Devices of a row whose placement has all of them: that of several replicas has those of one."""
    return () if row.placement is None or row.replicas > 1 else row.placement.device_names


def _percent(seconds: float, step_s: float) -> str:
    return f"{100 * seconds / step_s:.0f} %" if step_s > 0 else "0 %"
