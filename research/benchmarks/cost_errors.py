"""How much of what placers gain is left where ops and links take other times than were estimated.

    python -m research.benchmarks.cost_errors --graphs=graphs             # ten minutes; rewrites cost_errors.json
    python -m research.benchmarks.cost_errors --page=docs/research/cost_errors.md     # puts its table there

Every graph that is held out is placed by what is estimated. The same placements are then simulated again with errors:
factors, drawn log-normally, of which two thirds are between 1/1.35 and 1.35. Graphs are those of
`python scripts/make_families.py --graphs=graphs`. Steps are simulated.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import statistics

from research.benchmarks import common
from research.benchmarks.common import held_out
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

TOPOLOGY, SEED, DRAWS, SIGMA = "4xP100", 0, 10, 0.3
EVALUATIONS = {"expert": 1_000, "heft": 1_000, "metis": 1_000, "placeto": 5_000, "local_search": 20_000, "auto": 20_000}
"""Placers, and how many placements each may have."""


def measure(graphs):
    """Errors -> graph -> placer -> steps over that of the best single device, draw by draw."""
    names = [name for family in held_out().values() for name in family]
    found = {}
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, Stages(quiet=False) as stages:
        for name, over in zip(names, pool.imap(run, [graphs / f"{name}.npz" for name in names]), strict=True):
            stages.stage(name)
            for errors, placed in over.items():
                found.setdefault(errors, {})[name] = placed
    return found


def run(path):
    """Errors -> placer -> steps over that of the best single device, draw by draw."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.local_search.devices import compute_devices, single_device
    from tfplace.registry import PLACERS
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search
    from tfplace.simulation.evaluate import Simulator

    problem = problem_of(OpGraph.load(path), Case(path.stem, TOPOLOGY))
    placed = {
        name: Search(problem, Budget(evaluations=most), SEED).run(PLACERS[name](), name)
        for name, most in EVALUATIONS.items()
    }
    single = [single_device(problem, d) for d in compute_devices(problem).tolist()]
    found = {}
    for errors, others in with_errors(problem).items():
        found[errors] = {name: [] for name in placed}
        for other, options in others:
            simulator = Simulator(other, options)
            alone = min(simulator.key(one)[1] for one in single)
            for name, one in placed.items():
                found[errors][name].append(simulator.key(one)[1] / alone)
    return found


def with_errors(problem):
    """Errors -> (problem, options), draw by draw."""
    import numpy as np

    from tfplace.core.costs import CostTable
    from tfplace.core.device import LINK_OVERHEADS
    from tfplace.simulation.options import DEFAULT, Options

    rng = np.random.default_rng(SEED)
    graph, topology = problem.graph, problem.topology
    kinds, kind_of = np.unique(graph.op_types, return_inverse=True)

    def ops(factors):
        costs = CostTable(problem.costs.compute_s * factors[:, None], problem.costs.provenance)
        return dataclasses.replace(problem, costs=costs), DEFAULT

    def links(slower, later):
        changed = [
            dataclasses.replace(
                link,
                bandwidth=link.bandwidth / slower,
                latency_s=link.latency_s * later,
                **{what: getattr(link, what) * later for what in LINK_OVERHEADS},
            )
            for link in topology.links
        ]
        return dataclasses.replace(problem, topology=dataclasses.replace(topology, links=tuple(changed))), DEFAULT

    def factors(count):
        return np.exp(SIGMA * rng.standard_normal(count))

    return {
        "no errors": [(problem, DEFAULT)],
        "each type of op": [ops(factors(len(kinds))[kind_of]) for _ in range(DRAWS)],
        "each op": [ops(factors(graph.num_ops)) for _ in range(DRAWS)],
        "all links": [links(*factors(2)) for _ in range(DRAWS)],
        "order of ops": [(problem, Options(order="random", seed=draw)) for draw in range(DRAWS)],
    }


def text(found):
    """The table."""
    lines = [
        (errors, str(len(graphs)), *(middle([placed[name] for placed in graphs.values()]) for name in EVALUATIONS))
        for errors, graphs in found.items()
    ]
    return table((f"step over single, {TOPOLOGY}", "graphs", *EVALUATIONS), lines)


def middle(ratios):
    """Geometric mean over the graphs of medians over the draws, with the least and the most of these."""
    each = [statistics.median(one) for one in ratios]
    return f"{statistics.geometric_mean(each):.3f} ({min(each):.2f}..{max(each):.2f})"


if __name__ == "__main__":
    common.run("cost_errors", measure, text)
