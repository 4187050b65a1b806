"""What holds `gdp` back on graphs of over 50,000 ops: that units draw together, or what its weights say.

    python -m research.benchmarks.gdp_together --graphs=out/graphs           # some minutes; rewrites gdp_together.json
    python -m research.benchmarks.gdp_together --page=docs/research/claims_hold_out.md   # puts its table there

`gdp` with the package's weights, at once, with the units of more and more groups drawing together, up to each for
itself, and with more draws. The graphs are those of `python -m research.reproduce_claims --claim=gdp-hold-out
--graphs=out/graphs`, and one of a family that it has learned from, but not from this one, of `python
scripts/make_families.py --graphs=out/graphs`. Step times are simulated, and do not depend on the machine.
"""

from __future__ import annotations

from dataclasses import replace

from research.benchmarks import common
from research.benchmarks.common import best_step_s, spread
from tfplace.cli.quiet import load_tensorflow
from tfplace.comparison.tables import table

GRAPHS = {"gnmt_8": "gnmt_8.npz", "amoebanet": "cells24/amoebanet.npz", "nmt_11": "nmt_11.npz"}
TOPOLOGY, SEEDS, MOST = "4xP100", 3, 10_000
BESIDE = ("single", "expert", "heft", "metis")
FEW, MANY, NEVER = 48, 480, 10**9
VARIANTS = {
    "gdp, 32 groups as units, then 256 groups": {},
    **{f"gdp, {groups:,} groups": {"together": groups, "coarse": NEVER} for groups in (64, 256, 1024, 4096)},
    "gdp, each unit for itself": {"together": NEVER, "coarse": NEVER},
    f"gdp, 256 groups, {MANY} draws": {"draws": MANY, "coarse": NEVER},
    f"gdp, 1,024 groups, {MANY} draws": {"together": 1024, "draws": MANY, "coarse": NEVER},
}
"""The first as it is; the others place no groups as if they were units."""


def measure(graphs):
    """Graph -> what came out."""
    load_tensorflow(gpus=False)
    return {name: steps_of(name, graphs / file) for name, file in GRAPHS.items()}


def steps_of(name, path):
    """Simulated step seconds by placer or variant, one for each seed; and the number of ops."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.learned.policies.gdp import Gdp, GdpSettings
    from tfplace.registry import PLACERS

    graph = OpGraph.load(path)
    problem = problem_of(graph, Case(name, TOPOLOGY))
    steps = {placer: [best_step_s(problem, PLACERS[placer](), placer, MOST, 0)] for placer in BESIDE}
    for variant, changes in VARIANTS.items():
        settings = replace(GdpSettings(), **changes)
        steps[variant] = [best_step_s(problem, Gdp(settings=settings), "gdp", MOST, seed) for seed in range(SEEDS)]
        print(f"{name:<10} {variant:<28} {spread(steps[variant], steps['single'][0])}", flush=True)
    return {"ops": graph.num_ops, "units": problem.num_units, "step_s": steps}


def text(found):
    """The table: medians over the seeds, and the least and the most."""
    head = (
        f"step over single, {TOPOLOGY}, {SEEDS} seeds, {FEW} draws but where it is said",
        *(f"{name} ({facts['ops']:,} ops)" for name, facts in found.items()),
    )
    steps = [facts["step_s"] for facts in found.values()]
    return table(head, [(row, *(spread(s[row], s["single"][0]) for s in steps)) for row in (*BESIDE[1:], *VARIANTS)])


if __name__ == "__main__":
    common.run("gdp_together", measure, text)
