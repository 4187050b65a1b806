"""What benchmarks share: their program, and trying variants of a placer."""

from __future__ import annotations

import functools
import json
import statistics
from pathlib import Path

from absl import app, flags

from tfplace.cli.scripts import script
from tfplace.comparison.tables import Page
from tfplace.files import check_writable, write_whole, writing

ROOT = Path(__file__).resolve().parents[2]


def run(name, measure, text):
    """The program: measures and keeps what came out, or with --page puts the table of what there is on a page.

    Args:
      name: of the benchmark, and with hyphens of its table.
      measure: the directory of graphs -> results.
      text: results -> the table.
    """
    graphs = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Directory of the graphs.")
    out = flags.DEFINE_string("out", str(ROOT / "research" / "data" / f"{name}.json"), "The results.")
    page = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")

    def main(argv):
        with script(argv, stopped="Stopped; nothing was written."):
            path = Path(out.value)
            if page.value:
                Page(page.value, name.replace("_", "-")).write(text(json.loads(path.read_text())))
                return
            check_writable(path)
            found = measure(Path(graphs.value))
            with writing(path):
                write_whole(path, json.dumps(found, indent=1) + "\n")
            print(text(found))

    app.run(main)


def graphs_of(built):
    """What reads a zoo model's step in so many slices, packed or not, once for each."""
    from tfplace.sources import graph_of
    from tfplace.transforms.whole_step import WholeStep

    @functools.cache
    def whole():
        return WholeStep(read(None, False))

    @functools.cache
    def read(sizes, pack):
        unsplit = None if sizes is None else whole()
        return graph_of(built.model, built.batch, slices=sizes, pack=pack, unsplit=unsplit)

    return lambda sizes, pack=False: read(sizes, pack)


def plan_of(graph, options):
    """What `tfplace.plan` does for steps that were read before.

    Args:
      graph: of `graphs_of`.
      options: `SearchOptions`, checked.
    """
    from tfplace.api import place_problem
    from tfplace.search.planning import make_plan
    from tfplace.sources import made_to_fit, problem_of

    def read(sizes, pack=False):
        return problem_of(
            graph(sizes, pack),
            options.topology,
            None,
            None,
            options.max_memory,
            compile=options.compile,
            some_slices=True,
        )

    search = functools.partial(place_problem, both_ways=False)
    return make_plan(read, search, options, made_to_fit, read_packed=functools.partial(read, pack=True))


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
    from tfplace_zoo import families

    return {family: [f"{family}_{i}" for i in families.split(family)[1]] for family in families.names()}


def over(graphs, arm, usual):
    """Of steps by arm, seed by seed: geometric mean over the graphs of medians, with the least and the most."""
    ratios = [statistics.median(one[arm]) / statistics.median(one[usual]) for one in graphs]
    return f"{statistics.geometric_mean(ratios):.3f} ({min(ratios):.2f}..{max(ratios):.2f})"
