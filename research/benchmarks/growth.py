"""What every part of tfplace costs as graphs grow: GNMT of 8 layers, unrolled over more and more word pieces.

    python -m research.benchmarks.growth                     # rewrites growth.json and growth.png; about 20 minutes
    python -m research.benchmarks.growth --lengths 64        # 51,396 ops; other rows stay as they are

Extraction runs in a process of its own, and so does the rest, which works without TensorFlow on the saved graph. Peak
memory is the larger of the two. All step times are simulated, on 4xP100. First compilations by numba are not counted:
each process places a small graph before.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "research" / "data" / "growth.json"
TOPOLOGY, BUDGET, SEED = "4xP100", "60s", 0
LENGTHS = (2, 4, 8, 16, 32, 64, 128)
MEMBERS = ("single", "expert", "heft", "etf", "m_etf", "m_sct", "critical_path", "metis", "scotch", "min_cut")
TIMED = ("extract", "formulate", "bound", "group", "simulate", "heft", "m_etf", "metis")


def clock(what):
    """What `what()` gives, and the seconds it took."""
    begin = time.perf_counter()
    found = what()
    return found, round(time.perf_counter() - begin, 4)


def peak_gb():
    """Largest resident memory of this process so far, in GB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)


def extract(length, path, pipe):
    """In a process of its own: from nothing to a saved graph."""

    def work():
        from tfplace.cli.quiet import load_tensorflow

        load_tensorflow(gpus=False)
        from tfplace_zoo import zoo

        import tfplace

        built = zoo.build("gnmt_8", length=length)
        return tfplace.extract(built.model, built.batch, name=f"gnmt_8 of {length}")

    graph, seconds = clock(work)
    graph.save(path)
    pipe.send({"length": length, "ops": graph.num_ops, "extract_s": seconds, "extract_gb": peak_gb()})


def plan(path, pipe):
    """In a process of its own: everything after extraction."""
    import numpy as np

    from tfplace import OpGraph
    from tfplace.registry import GROUPERS, PLACERS
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search
    from tfplace.simulation.evaluate import Simulator
    from tfplace.sources import formulate
    from tfplace.testing import random_problem

    def placed(problem, name, budget):
        search = Search(problem, budget, SEED)
        _, seconds = clock(lambda: search.run(PLACERS[name](), name))
        return search, seconds

    few = Budget(evaluations=8)
    small = random_problem(np.random.default_rng(0), 300, 4, unit=1e-3)
    for name in (*MEMBERS, "auto"):
        placed(small, name, Budget(evaluations=200) if name == "auto" else few)
    GROUPERS["merge"](small, 30)

    problem, formulate_s = clock(lambda: formulate(OpGraph.load(path), TOPOLOGY))
    simulator = Simulator(problem)
    _, bound_s = clock(lambda: simulator.bound_s)
    _, group_s = clock(lambda: GROUPERS["merge"](problem, 300))
    row = {"units": problem.num_units, "formulate_s": formulate_s, "bound_s": bound_s, "group_s": group_s}
    rng = np.random.default_rng(SEED)
    accelerators = problem.allowed & np.array([False, True, True, True, True])
    rows = np.where(accelerators.any(axis=1), rng.integers(1, 5, (8, problem.num_units)), 0).astype(np.int32)
    rows = np.where(problem.allowed[np.arange(problem.num_units), rows], rows, problem.allowed.argmax(axis=1))
    row["simulate_s"] = min(clock(lambda r=r: simulator.key(r))[1] for r in rows.astype(np.int32))
    row["bound_ms"] = round(simulator.bound_s * 1e3, 3)
    steps = {}
    for name in MEMBERS:
        search, row[f"{name}_s"] = placed(problem, name, few)
        over, step_s = search.best_key
        steps[name] = math.inf if over else step_s
    best_s = min(steps.values())
    search, _ = placed(problem, "auto", Budget.parse(BUDGET))
    better = [i.seconds for i in search.history if i.key[0] == 0 and i.key[1] < best_s * (1 - 1e-6)]
    row |= {
        "step_ms": {name: round(s * 1e3, 3) if math.isfinite(s) else None for name, s in steps.items()},
        "auto_ms": round(search.best_key[1] * 1e3, 3),
        "auto_evaluations": search.evaluations,
        "auto_better_than_all_after_s": round(better[0], 2) if better else None,
        "plan_gb": peak_gb(),
    }
    pipe.send(row)


def child(target, *args):
    """What a process of its own sends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*args, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise SystemExit(f"{target.__name__} ended without a result; see above.") from None
    finally:
        process.join()


def exponent(rows, key):
    """Slope of log seconds over log ops, by least squares, from 5,000 ops on; 1 is linear, NaN is unknown."""
    points = [(math.log(r["ops"]), math.log(r[key])) for r in rows if r["ops"] > 5000]
    if len(points) < 2:
        return math.nan
    x, y = (sum(p) / len(points) for p in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def plot(rows, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name in TIMED:
        axes.loglog([r["ops"] for r in rows], [r[f"{name}_s"] for r in rows], marker="o", label=name)
    ops = [rows[0]["ops"], rows[-1]["ops"]]
    axes.loglog(ops, [1e-4 * o / ops[0] for o in ops], color="gray", linestyle=":", label="linear")
    axes.set_xlabel("ops")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def show(rows):
    """The table of docs/research/growth.md."""
    from tfplace.comparison.tables import table

    head = ("ops", *(f"{name}, s" for name in TIMED), "auto beats all after, s", "peak, GB")
    lines = [
        (
            f"{r['ops']:,}",
            *(f"{r[f'{name}_s']:.3g}" for name in TIMED),
            str(r["auto_better_than_all_after_s"]),
            f"{max(r['extract_gb'], r['plan_gb']):.2f}",
        )
        for r in rows
    ]
    slopes = ("exponent", *(f"{exponent(rows, f'{name}_s'):.2f}" for name in TIMED), "", "")
    return table(head, [*lines, slopes])


def main():
    # not at the top, which every child runs before its clock starts
    from tfplace.comparison.tables import replace_between
    from tfplace.files import write_whole

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", type=Path, help="a page whose table named `growth` is rewritten")
    parser.add_argument("--table", action="store_true", help="only print the results there are")
    args = parser.parse_args()
    rows = {r["length"]: r for r in json.loads(args.out.read_text())["rows"]} if args.out.exists() else {}
    for length in () if args.table else args.lengths:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.npz"
            rows[length] = child(extract, length, path) | child(plan, path)
        print(json.dumps(rows[length]), flush=True)
        config = {"model": "gnmt_8", "topology": TOPOLOGY, "budget": BUDGET, "seed": SEED, "cpus": os.cpu_count()}
        kept = {"config": config, "rows": [rows[n] for n in sorted(rows)]}
        write_whole(args.out, json.dumps(kept, indent=1) + "\n")
    found = [rows[n] for n in sorted(rows)]
    print(show(found))
    if args.page:
        args.page.write_text(replace_between(args.page.read_text(), "growth", show(found)))
    if not args.table:
        plot(found, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
