"""The table of how long the ways to run a step take."""

from __future__ import annotations

import statistics

from tfplace.comparison.tables import table

PLAIN = "plain"
"""Keras's own step with jit_compile=False."""

COMPILED = "plain, compiled"
"""Keras's own step with jit_compile=True."""

PLACED_PLAIN, PLACED_COMPILED = "placed", "placed, compiled"
OVER = {PLACED_COMPILED: COMPILED}
"""Way -> what it is compared to; all others to the plain step."""


def text(found):
    """A row for each model: how long the other ways take over the plain one."""
    called, fit = (_ways(one[kind] for one in found["models"]) for kind in ("called", "fit"))
    rows = [
        [
            one["model"],
            str(one["ops"]),
            f"{1e3 * statistics.median(one['called'][PLAIN]['wall_s']):.0f} ms",
            *(_cell(one["called"], way) for way in called),
            *(_cell(one["fit"], way) for way in fit),
        ]
        for one in found["models"]
    ]
    heads = [*map(_called, called), *(f"{_called(way)}, in fit" for way in fit)]
    return table(["model", "ops", PLAIN, *heads], rows)


def _ways(models):
    """All ways but the plain one, in their order."""
    return [way for way in dict.fromkeys(way for ways in models for way in ways) if way != PLAIN]


def _called(way):
    return f"{way}, over {OVER[way]}" if way in OVER else way


def _cell(found, way):
    """Wall clock over the plain step's of the same turn, median and quartiles; then processor time likewise, median."""
    if way not in found:
        return "-"
    wall, processor = (ratios(found, way, clock) for clock in ("wall_s", "processor_s"))
    low, middle, high = statistics.quantiles(wall, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f}..{high:.2f}), {statistics.median(processor):.2f}"


def ratios(found, way, clock):
    """Of each turn, a way's seconds over those of what it is compared to."""
    other = OVER.get(way, PLAIN)
    return [own / plain for own, plain in zip(found[way][clock], found[other][clock], strict=True)]
