"""Auto: every cheap placer, then local search from the best of them."""

from __future__ import annotations

import contextlib

from tfplace.core.arrays import IntArray
from tfplace.core.stepcost import Key
from tfplace.placers.base import BudgetSpentError, Placer, Study
from tfplace.registry import PLACERS

MEMBERS = ("single", "expert", "heft", "round_robin")
"""In the order in which they run, so that a small budget goes to what is most worth it."""

_SCOUTS = 2
_SCOUTING = 0.3


class Auto:
    """A portfolio: the constructive placers, short anneals from the best of them, a long one from the best of all.

    It is never worse than any of its members within the same study, since every placement a member evaluates counts. It
    stops early when the best placement reaches the lower bound, so cannot be improved.
    """

    citation = (
        "Portfolio of tfplace's placers; see the citations of single, expert, heft, round_robin and local_search."
    )

    def place(self, study: Study) -> IntArray:
        """Spends the whole budget unless the bound is reached."""
        bound = study.bound_s
        starts = _construct(study)
        for scout in range(_SCOUTS):
            if _settled(study, bound):
                break
            # each takes the same part of the whole, whatever those before have left
            part = _SCOUTING / _SCOUTS / (1 - _SCOUTING * scout / _SCOUTS)
            start = starts[scout % len(starts)]
            _run(PLACERS["local_search"](starts=[start]), study.share(part, f"local_search {scout + 1}"))
        if not _settled(study, bound) and study.best is not None:
            _run(PLACERS["local_search"](starts=[study.best]), study.share(1.0, "local_search"))
        return starts[0] if study.best is None else study.best


def _settled(study: Study, bound_s: float) -> bool:
    """Whether the best placement fits and cannot be faster."""
    return study.best_key is not None and study.best_key <= (0, bound_s * (1 + 1e-6))


def _construct(study: Study) -> list[IntArray]:
    """What the members place, best first."""
    found: list[tuple[Key, int, IntArray]] = []
    for i, name in enumerate(MEMBERS):
        devices = _run(PLACERS[name](), study.share(1.0, name))
        if devices is not None:
            found.append((study.key(devices), i, devices))
    return [devices for _, _, devices in sorted(found, key=lambda item: item[:2])]


def _run(placer: Placer, share: Study) -> IntArray | None:
    """What the placer returns, or the best it evaluated when its share ran out; None if it evaluated nothing."""
    with contextlib.suppress(BudgetSpentError):
        return placer.place(share)
    return share.best
