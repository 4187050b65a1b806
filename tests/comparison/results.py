"""A small case, and results of it."""

from tfplace.comparison.cells import Case, Run
from tfplace.testing import make_graph

CASE = Case("branches", "2xP100")
HEADER = {"budget": "20 evaluations"}


def branches():
    """Two chains of heavy ops with weights, which two devices share."""
    names = [f"{c}{i}" for c in "ab" for i in range(4)]
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(3)]
    return make_graph(dict.fromkeys(names, 10**6), edges)


def run(placer, step_s, seed=0, case=CASE, **more):
    return Run(case, placer, seed, step_s, 0, evaluations=1, seconds=0.1, cpu_s=0.1, **more)
