"""What benchmarks that try variants of a placer share."""

from __future__ import annotations

import statistics


def best_step_s(problem, placer, name, evaluations, seed):
    """Simulated seconds of the best step that a placer finds."""
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search

    run = Search(problem, Budget(evaluations=evaluations), seed)
    over, step_s = run.evaluator.key(run.run(placer, name))
    assert not over, f"{problem.graph.name} fits on one device"
    return step_s


def spread(steps, single_s):
    """Steps over the best single device's: their median, and of several the least and the most."""
    if not steps:
        return "-"
    low, middle, high = (f(steps) / single_s for f in (min, statistics.median, max))
    return f"{middle:.2f}" if len(steps) == 1 else f"{middle:.2f} ({low:.2f}..{high:.2f})"


def held_out():
    """Family -> names of the graphs that are held out."""
    from models import families

    return {family: [f"{family}_{i}" for i in families.split(family)[1]] for family in families.names()}


def over(graphs, arm, usual):
    """Of steps by arm, seed by seed: geometric mean over the graphs of medians, with the least and the most."""
    ratios = [statistics.median(one[arm]) / statistics.median(one[usual]) for one in graphs]
    return f"{statistics.geometric_mean(ratios):.3f} ({min(ratios):.2f}..{max(ratios):.2f})"
