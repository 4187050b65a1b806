"""The table of the study."""

from __future__ import annotations

import statistics

from tfplace.comparison.tables import table


def text(found):
    """A row for each model: how its variants compare to one worker, measured and simulated.

    Args:
      found: what the study keeps.
    """
    names = list(dict.fromkeys(name for model in found["models"] for name in list(model["variants"])[1:]))
    rows = []
    for model in found["models"]:
        variants = model["variants"]
        one, *_ = variants.values()
        cells = [_cell(variants.get(name), one["simulated_s"]) for name in names]
        rows.append([model["model"], f"{1e3 * statistics.median(one['measured_s']):.0f} ms", *cells])
    return table(["model", "one worker", *names], rows)


def _cell(variant, one_s):
    if variant is None:
        return "-"
    if variant["failed"]:
        return variant["failed"]
    low, middle, high = statistics.quantiles(variant["measured"], n=4, method="inclusive")
    measured = f"{middle:.2f} ({low:.2f}..{high:.2f})"
    return f"{measured}, {variant['simulated_s'] / one_s:.2f}" if "simulated_s" in variant else measured
