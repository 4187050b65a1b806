"""What a move of `local_search` takes to draw, compiled and in plain Python.

    python -m research.benchmarks.draws --graphs=out/graphs            # a minute; rewrites draws.json
    python -m research.benchmarks.draws --page=docs/research/local_search.md      # puts the table of draws.json there

Both draw the same moves (tests/local_search/test_move_kernel.py), eight at a time, of one placement after the other,
each of which has one of these made. Graphs are those of `python scripts/make_zoo.py --graphs=out/graphs`.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from research.benchmarks import common
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

GRAPHS = ("rnnlm_2", "transformer", "inception_v3", "nmt_2", "nasnet", "gnmt_8")
TOPOLOGY, AHEAD, TURNS, ROUNDS = "4xP100", 8, 100, 5


def measure(graphs):
    """Graph -> microseconds of processor time for a draw of each kind, and for an evaluation, round by round."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph

    found = {}
    with Stages(quiet=False) as stages:
        for name in GRAPHS:
            stages.stage(name)
            problem = problem_of(OpGraph.load(graphs / f"{name}.npz"), Case(name, TOPOLOGY))
            found[name] = {"units": problem.num_units, **draws(problem)}
    return found


def draws(problem):
    """Of one graph; rounds of all kinds take turns."""
    from tests.local_search.plain_moves import PlainMoves
    from tfplace.local_search.devices import single_devices
    from tfplace.local_search.moves import Moves
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search
    from tfplace.simulation.evaluate import Simulator

    simulator = Simulator(problem, threads=1)
    kinds = {
        kind: make(Search(problem, Budget(evaluations=10**6), 0).context("x"))
        for kind, make in (("plain", PlainMoves), ("compiled", Moves))
    }
    taken = {"plain": [], "compiled": [], "evaluation": []}
    for turn in range(ROUNDS + 1):
        for kind, moves in kinds.items():
            draw = getattr(moves, "draw_all", moves.draw)
            devices = single_devices(problem)[0]
            draw(devices, AHEAD)  # asks for the critical path, which is an evaluation; later draws go by that one
            moves.context.critical_path = lambda _: None
            seconds, rows = 0.0, []
            for _ in range(TURNS):
                begun = time.process_time()
                found = draw(devices, AHEAD)
                seconds += time.process_time() - begun
                devices = devices.copy()
                devices[found[0].units] = found[0].devices
                rows.append(devices)
            if turn:  # the first is of compiling
                taken[kind].append(1e6 * seconds / (TURNS * AHEAD))
        begun = time.process_time()
        simulator.keys(np.array(rows))
        if turn:
            taken["evaluation"].append(1e6 * (time.process_time() - begun) / TURNS)
    return taken


def text(found):
    """The table."""
    lines = [
        (
            name,
            f"{one['units']:,}",
            *(f"{statistics.median(one[kind]):.0f}" for kind in ("plain", "compiled", "evaluation")),
        )
        for name, one in found.items()
    ]
    return table(("microseconds", "units", "a draw in Python", "compiled", "an evaluation"), lines)


if __name__ == "__main__":
    common.run("draws", measure, text)
