"""How far off simulated steps are, by where their costs come from, as a table."""

from __future__ import annotations

from tfplace.comparison.tables import table
from tfplace.core.compilation import XLA
from tfplace.core.fidelity import BANDS


def bands_table():
    """A row for each kind of costs and each way to run a step."""
    head = ["costs", "run", "half of the steps are off by less than", "nine of ten by less than", "steps"]
    return table(
        head,
        [
            [
                costs,
                "compiled" if compile == XLA else "op by op",
                f"{100 * band.median:.0f} %",
                f"{100 * band.most:.0f} %",
                f"{band.steps} on {band.on}",
            ]
            for (costs, compile), band in BANDS.items()
        ],
    )
