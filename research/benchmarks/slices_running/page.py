"""The table of the study."""

from __future__ import annotations

import statistics

from scipy.stats import spearmanr

from research.benchmarks.slices_running.variants import OTHERS
from tfplace.comparison.tables import table

_FEWEST = 3
"""Placements without which there are no ranks to speak of."""


def text(found):
    """A row for each model: how its variants compare to one worker, measured and simulated.

    Args:
      found: what the study keeps.
    """
    others = {f"{placer} K={k}" for placer in OTHERS for k in (2, 4)}
    names = list(dict.fromkeys(name for model in found["models"] for name in list(model["variants"])[1:]))
    names = [name for name in names if name not in others]
    rows = []
    for model in found["models"]:
        variants = model["variants"]
        one, *_ = variants.values()
        cells = [_cell(variants.get(name), one["simulated_s"]) for name in names]
        rows.append([model["model"], f"{1e3 * statistics.median(one['measured_s']):.0f} ms", *cells])
    ranks = [[model["model"], *_agreement(model["variants"])] for model in found["models"]]
    agreement = table(["model", "split placements", "rank correlation", "median error", "largest error"], ranks)
    return f"{table(['model', 'one worker', *names], rows)}\n\n{agreement}"


def _agreement(variants):
    """Of the split placements: how many, and how well simulated ratios to one worker agree with measured ones."""
    one, *_ = variants.values()
    split = [v for v in variants.values() if v.get("slices") and not v["failed"]]
    measured = [statistics.median(v["measured"]) for v in split]
    simulated = [v["simulated_s"] / one["simulated_s"] for v in split]
    if len(split) < _FEWEST:
        return [str(len(split)), "-", "-", "-"]
    errors = [abs(s / m - 1) for s, m in zip(simulated, measured, strict=True)]
    rank = spearmanr(measured, simulated).statistic
    return [str(len(split)), f"{rank:.2f}", f"{100 * statistics.median(errors):.0f} %", f"{100 * max(errors):.0f} %"]


def _cell(variant, one_s):
    if variant is None:
        return "-"
    if variant["failed"]:
        return variant["failed"]
    low, middle, high = statistics.quantiles(variant["measured"], n=4, method="inclusive")
    measured = f"{middle:.2f} ({low:.2f}..{high:.2f})"
    return f"{measured}, {variant['simulated_s'] / one_s:.2f}" if "simulated_s" in variant else measured
