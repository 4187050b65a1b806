"""What more workers would give a search: from one to 512, by searches that are run one after the other.

    python scripts/make_zoo.py --nofacts --graphs=out/graphs --only=rnnlm_2,transformer_xl_2
    python -m research.benchmarks.workers_growth   # half an hour; workers_growth.json, docs/research/many_workers.png
    python -m research.benchmarks.workers_growth --page=docs/research/many_workers.md

Each worker has the same budget in evaluations, as in equal time.

- *independent*: the best of n searches, in the mean over all ways to draw n of 512 (an order statistic).
- *exchange*: `local_search` on workers, with the budget of all of them; it does not depend on how many do the work.
- *one core*: one search with n times the budget, which takes n times as long.

What handing out parts takes is measured by itself: processor seconds of the searching process for a part, and bytes.
Steps are simulated, on 4xP100. What is in the file is not run again: stopped, the same command goes on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import pickle
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from research.benchmarks.common import ROOT, run
from tfplace.comparison.tables import table
from tfplace.files import write_whole

GRAPHS = ("transformer_xl_2", "rnnlm_2")
TOPOLOGY, EVALUATIONS = "4xP100", 2500
INDEPENDENT, SEEDS = 512, 3
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOGETHER, LONGER = (8, 64), (2, 4, 8, 16, 32, 64)
SHOWN = (1, 2, 8, 64, 512)
ROUND_S = 10.0
"""The longest round of a search."""


def measure(graphs: Path) -> dict[str, Any]:
    """Runs what the file lacks, writes it after each, and draws the picture."""
    from tfplace.version import versions

    path = Path(flags.FLAGS["out"].value)
    facts: dict[str, Any] = {"topology": TOPOLOGY, "evaluations": EVALUATIONS, "versions": versions(), "runs": {}}
    if path.exists():
        facts["runs"] = json.loads(path.read_text())["runs"]
    for name in GRAPHS:
        problem = _problem(graphs / f"{name}.npz")
        runs: dict[str, Any] = facts["runs"].setdefault(name, {"independent": [], "exchange": {}, "one core": {}})
        if "part_s" not in runs:
            runs |= overheads(problem)
            _write(path, facts)
        kinds = [(alone, "independent", None, INDEPENDENT)]
        kinds += [(functools.partial(longer, n), "one core", n, SEEDS) for n in LONGER]
        kinds += [(functools.partial(together, n), "exchange", n, SEEDS) for n in TOGETHER]
        for search, kind, n, seeds in kinds:
            steps = runs[kind] if n is None else runs[kind].setdefault(str(n), [])
            for seed in range(len(steps), seeds):
                steps.append(search(problem, seed))
                if n is not None or seed % 16 == 15:
                    _write(path, facts)
            print(name, kind, n or "", flush=True)
    draw(facts, flags.FLAGS.figure)
    return facts


def _write(path: Path, facts: dict[str, Any]) -> None:
    write_whole(path, json.dumps(facts, indent=1) + "\n")


def _problem(path: Path) -> Any:
    from tfplace import Topology
    from tfplace.core.constraints import Constraints
    from tfplace.core.graph import OpGraph
    from tfplace.cost.analytic import analytic_costs
    from tfplace.group.problem import formulate

    graph, topology = OpGraph.load(path), Topology.load(TOPOLOGY)
    return formulate(graph, topology, analytic_costs(graph, topology), Constraints())


def alone(problem: Any, seed: int) -> float:
    """Seconds of the step that one worker finds."""
    return longer(1, problem, seed)


def longer(times: int, problem: Any, seed: int) -> float:
    """The same with a longer budget."""
    from research.benchmarks.common import best_step_s
    from tfplace.registry import PLACERS

    return best_step_s(problem, PLACERS["local_search"](), "local_search", times * EVALUATIONS, seed)


def together(workers: int, problem: Any, seed: int) -> float:
    """Seconds of the step that so many workers find together."""
    from tfplace.engines.in_process import InProcessEngine
    from tfplace.placers.local_search import LocalSearch
    from tfplace.search.budget import Budget
    from tfplace.search.crew import Crew
    from tfplace.search.many_workers import OnWorkers
    from tfplace.search.search import Search

    search, placer = Search(problem, Budget(evaluations=workers * EVALUATIONS), seed), OnWorkers(LocalSearch())
    with contextlib.closing(Crew(InProcessEngine(), search.evaluator)) as placer.crew:
        over, step_s = search.evaluator.key(search.run(placer, "local_search"))
    assert not over
    return float(step_s)


def overheads(problem: Any) -> dict[str, float]:
    """Processor seconds and bytes that handing out one part takes, and bytes of the problem, sent once a worker."""
    from tfplace.core.search_context import Left
    from tfplace.engines.process_workers import ProcessEngine
    from tfplace.local_search.devices import single_devices
    from tfplace.search.crew import Crew
    from tfplace.search.parts import Done, Part, Walk
    from tfplace.simulation.evaluate import Simulator

    evaluator, start = Simulator(problem), single_devices(problem)[0]
    key = evaluator.key(start)
    walk = Walk(start, key, key)
    parts = [Part("empty", Left(None, 1), 0, walk=walk)] * 200
    with contextlib.closing(Crew(ProcessEngine(1), evaluator)) as crew:
        crew.ready()
        begun = time.process_time()
        assert len([*crew.answers(parts, until_s=None, waiting=lambda: None)]) == len(parts)
        part_s = (time.process_time() - begun) / len(parts)
    sent = len(pickle.dumps(parts[0])) + len(pickle.dumps(Done(1, start, key, walk)))
    return {"part_s": part_s, "part_bytes": sent, "problem_bytes": len(pickle.dumps(evaluator))}


def least_of(steps: Sequence[float], n: int) -> float:
    """The mean of the least of n of them, over all ways to draw n."""
    ranked, total = sorted(steps), len(steps)
    chances = [math.comb(total - 1 - i, n - 1) / math.comb(total, n) for i in range(total - n + 1)]
    return math.fsum(chance * step for chance, step in zip(chances, ranked, strict=False))


def curves(found: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Steps over the mean one of one worker by the number of workers: geometric means over the graphs."""
    lines: dict[str, dict[int, list[float]]] = {"independent": {}, "exchange": {}, "one core, n times as long": {}}
    for runs in found["runs"].values():
        mean = statistics.mean(runs["independent"])
        for n in COUNTS:
            lines["independent"].setdefault(n, []).append(least_of(runs["independent"], n) / mean)
        for kind, line in (("exchange", "exchange"), ("one core", "one core, n times as long")):
            lines[line].setdefault(1, []).append(1.0)
            for n, steps in runs[kind].items():
                lines[line].setdefault(int(n), []).append(statistics.mean(steps) / mean)
    return {name: {n: statistics.geometric_mean(r) for n, r in sorted(line.items())} for name, line in lines.items()}


def text(found: dict[str, Any]) -> str:
    """The table."""
    lines, part_s = curves(found), statistics.mean(runs["part_s"] for runs in found["runs"].values())
    rows = [
        (
            str(n),
            *(f"{line[n]:.3f}" if n in line else "-" for line in lines.values()),
            f"{100 * n * part_s / ROUND_S:.1f} %",
        )
        for n in SHOWN
    ]
    return table(("workers", *lines, "of ten seconds, to hand out parts"), rows)


def draw(found: dict[str, Any], path: str) -> None:
    """Writes the picture."""
    from research.tables.plots import gain_curves

    points = {name: sorted(line.items()) for name, line in curves(found).items()}
    gain_curves(path, points, axes=("workers", "step over that of one worker, simulated"))


if __name__ == "__main__":
    flags.DEFINE_string("figure", str(ROOT / "docs" / "research" / "many_workers.png"), "The picture.")
    run("workers_growth", measure, text)
