"""What groupers cost: the step found by the same search on groups of each kind and number, and seconds of grouping.

    python -m research.benchmarks.grouping  # builds the models, rewrites grouping.json beside it
    python -m research.benchmarks.grouping --graphs a.npz b.npz         # saved OpGraphs instead
    python -m research.benchmarks.grouping --table docs/research/grouping.md  # puts its tables there

Every search has the same number of simulated placements, so the step times do not depend on the machine. The seconds of
grouping do; each is the least of three.
"""

import argparse
import functools
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numba
import numpy as np

from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.files import write_whole
from tfplace.group.acyclic import make_acyclic
from tfplace.group.problem import formulate
from tfplace.registry import GROUPERS, PLACERS
from tfplace.search.budget import Budget
from tfplace.search.grouped import OnGroups
from tfplace.search.search import Search
from tfplace.simulation.bounds import lower_bound
from tfplace.testing import make_problem, make_topology, random_graph

ROOT = Path(__file__).resolve().parents[2]

MODELS = ("inception_v3", "resnet50", "rnnlm_2", "transformer")
SIZES = (32, 100, 300, 1000)
UNITS = (1_000, 10_000, 50_000)
END = "<!-- end -->"


def saved_graphs(models, folder):
    """Extracts the zoo's models into `folder`; the searches run in other processes."""
    from tfplace_zoo import zoo

    import tfplace

    for name in models:
        built = zoo.build(name)
        path = Path(folder) / f"{name}.npz"
        tfplace.extract(built.model, built.batch, name=name).save(str(path))
        yield path


@functools.cache
def problem_of(path, topology):
    graph, devices = OpGraph.load(str(path)), Topology.load(topology)
    return formulate(graph, devices, analytic_costs(graph, devices), Constraints())


def search(task):
    """Milliseconds of the best step that fits; None if none does."""
    path, grouper, groups, seed, flags = task
    placer = PLACERS[flags.placer]()
    run = Search(problem_of(path, flags.topology), Budget(evaluations=flags.budget), seed)
    run.run(OnGroups(placer, grouper, groups) if grouper else placer, "benchmark")
    over, step_s = run.best_key
    return None if over else 1e3 * step_s


def row(path, grouper, groups, times, flags):
    problem = problem_of(path, flags.topology)
    label = GROUPERS[grouper](problem, groups) if grouper else np.arange(problem.num_units, dtype=np.int32)
    fits = [ms for ms in times if ms is not None]
    return {
        "model": path.stem,
        "units": problem.num_units,
        "grouper": grouper or "none",
        "asked": groups or None,
        "groups": int(label.max()) + 1,
        "acyclic": int(make_acyclic(problem, label).max()) + 1,
        "step_ms": [None if ms is None else round(ms, 2) for ms in times],
        "median_ms": round(statistics.median(fits), 2) if fits else None,
        "bound_ms": round(1e3 * lower_bound(problem).seconds, 2),
    }


def quality(paths, flags):
    """A row for each model, grouper and number of groups."""
    cases = [(path, "", 0) for path in paths] + [*itertools.product(paths, flags.groupers, flags.sizes)]
    tasks = [(*case, seed, flags) for case in cases for seed in range(flags.seeds)]
    rows = []
    with ProcessPoolExecutor(flags.workers) as pool:
        found = pool.map(search, tasks)
        for path, grouper, groups in cases:
            entry = row(path, grouper, groups, [next(found) for _ in range(flags.seeds)], flags)
            times = [ms for ms in entry["step_ms"] if ms is not None]
            spread = f"{min(times):.1f} to {max(times):.1f}" if times else "does not fit"
            print(f"{path.stem:<14} {entry['grouper']:<12} {entry['groups']:>5} {spread:>18}", flush=True)
            rows.append(entry)
    return rows


def speed(flags):
    """Seconds of each grouper on random graphs."""
    rows = []
    topology = make_topology(5, types=["CPU", *["GPU"] * 4])
    for units in UNITS:
        problem = make_problem(random_graph(np.random.default_rng(0), round(1.05 * units)), topology)
        for grouper in flags.groupers:
            seconds = min(timed(GROUPERS[grouper], problem, 300) for _ in range(3))
            rows.append({"units": problem.num_units, "grouper": grouper, "seconds": round(seconds, 3)})
            print(f"{problem.num_units:>6} units {grouper:<12} {seconds:.3f} s", flush=True)
    return rows


def timed(grouper, problem, groups):
    begin = time.perf_counter()
    grouper(problem, groups)
    return time.perf_counter() - begin


def tables(data):
    """The tables of the page, as text."""
    rows, config = data["quality"], data["config"]
    models = list(dict.fromkeys(r["model"] for r in rows))
    found = {(r["model"], r["grouper"], r["asked"]): r for r in rows}
    sizes = {r["model"]: f"{r['units']:,} units, bound {r['bound_ms']:.1f}" for r in rows}
    lines = [
        f"Milliseconds of the best simulated step after {config['budget']:,} placements by `{config['placer']}` on "
        f"{config['topology']}: median of {config['seeds']} seeds, and their spread. Bold: best grouping of the model.",
        "",
        "| grouper | groups | " + " | ".join(f"{m} ({sizes[m]})" for m in models) + " |",
        "|---|---:|" + "---:|" * len(models),
    ]
    fits = [r for r in rows if r["asked"] and r["median_ms"]]
    best = {m: min((r["median_ms"] for r in fits if r["model"] == m), default=None) for m in models}
    for grouper, asked in dict.fromkeys((r["grouper"], r["asked"]) for r in rows):
        cells = [cell(found.get((m, grouper, asked)), best[m]) for m in models]
        lines.append(f"| {grouper} | {asked or ''} | " + " | ".join(cells) + " |")
    if data["speed"]:
        lines += ["", *_means_table(rows), "", *_speed_table(data["speed"])]
    return "\n".join(lines) + "\n"


def cell(entry, best_ms):
    if entry is None or entry["median_ms"] is None:
        return "does not fit" if entry else ""
    times = [ms for ms in entry["step_ms"] if ms is not None]
    text = f"{entry['median_ms']:.1f}"
    text = f"**{text}**" if entry["asked"] and entry["median_ms"] == best_ms else text
    return f"{text} ({min(times):.1f} to {max(times):.1f})"


def _means_table(rows):
    medians = {(r["model"], r["grouper"], r["asked"]): r["median_ms"] for r in rows}
    models = [m for m in dict.fromkeys(r["model"] for r in rows) if medians.get((m, "none", None))]
    alone = [medians[m, "none", None] for m in models]
    groupers = list(dict.fromkeys(r["grouper"] for r in rows if r["asked"]))
    yield f"Geometric means over the {len(models)} models, relative to the search on single units:"
    yield ""
    yield "| groups | " + " | ".join(groupers) + " |"
    yield "|---:|" + "---:|" * len(groupers)
    for asked in dict.fromkeys(r["asked"] for r in rows if r["asked"]):
        ratios = {g: [medians.get((m, g, asked)) for m in models] for g in groupers}
        cells = ("" if None in ms or not ms else f"{mean_ratio(ms, alone):.2f}" for ms in ratios.values())
        yield f"| {asked} | " + " | ".join(cells) + " |"


def mean_ratio(some, others):
    return statistics.geometric_mean([a / b for a, b in zip(some, others, strict=True)])


def _speed_table(rows):
    units = list(dict.fromkeys(r["units"] for r in rows))
    seconds = {(r["grouper"], r["units"]): r["seconds"] for r in rows}
    yield "Seconds to make 300 groups of random graphs:"
    yield ""
    yield "| grouper | " + " | ".join(f"{u:,} units" for u in units) + " |"
    yield "|---|" + "---:|" * len(units)
    for grouper in dict.fromkeys(r["grouper"] for r in rows):
        yield f"| {grouper} | " + " | ".join(f"{seconds[grouper, u]:.2f}" for u in units) + " |"


def begin(name):
    """What comes before the tables of a file of results."""
    return f"<!-- research/data/{name}.json: begin -->\n"


def put_tables(page, data, name):
    before, mark, rest = page.read_text().partition(begin(name))
    old, end, after = rest.partition(END)
    if not mark or not end or "<!-- research/data/" in old:
        raise ValueError(f"{page} has no lines {begin(name).strip()!r} and {END!r} to put the tables between")
    write_whole(page, before + mark + "\n" + tables(data) + "\n" + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=Path, nargs="*", default=[], help="saved OpGraphs instead of the zoo's models")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--groupers", nargs="*", default=[name for name in GROUPERS if name != "units"])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--placer", default="local_search")
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--budget", type=int, default=1000, help="simulated placements of each search")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=ROOT / "research" / "data" / "grouping.json")
    parser.add_argument("--no_speed", action="store_true", help="leave out the seconds of grouping")
    parser.add_argument("--table", type=Path, help="only put the tables of --out into this page")
    flags = parser.parse_args()
    if flags.table:
        put_tables(flags.table, json.loads(flags.out.read_text()), flags.out.stem)
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = flags.graphs or [*saved_graphs(flags.models, folder)]
        data = {"quality": quality(paths, flags), "speed": [] if flags.no_speed else speed(flags)}
    config = {name: getattr(flags, name) for name in ("placer", "topology", "budget", "seeds")}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    flags.out.write_text(json.dumps({"config": config, "versions": versions, **data}, indent=1) + "\n")


if __name__ == "__main__":
    main()
