"""How much longer is a step within some memory by the greedy choice than by the best one?

On small training steps, some with residual connections, with seconds and bytes drawn at random. The best schedule is
that of P. Jain et al., Checkmate, MLSys 2020, sections 4.2 to 4.7, solved by CP-SAT instead of MILP: in stage t, op t
is run for the first time, and any op before it may be run again. It may run an op as often as it likes, gradients too,
and keep what it likes between stages, where tfplace runs a forward op twice at most. So it is a bound that the greedy
choice need not reach. Memory is counted alike: what is kept, and what an op reads and makes while it runs.

    python -m research.benchmarks.rematerialization_optimum     # some minutes; pip install 'tfplace[exact]'
"""

from __future__ import annotations

import statistics
import sys

import numpy as np
from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table

BUDGETS = (0.9, 0.8, 0.7, 0.6)
_TICKS = 1000
_GRADIENT = "gradient_tape/"


def measure(_):
    asked = flags.FLAGS
    rows = []
    for residual in (False, True):
        for seed in range(asked.seeds):
            rows += _rows(problem(asked.layers, seed, residual), seed, residual, asked.seconds)
    command = " ".join(["python -m research.benchmarks.rematerialization_optimum", *sys.argv[1:]])
    return {"command": command, "layers": asked.layers, "rows": rows}


def problem(layers, seed, residual):
    """A training step on one device: layers, a loss and gradients, which read what their layer reads and makes."""
    from tfplace.testing import make_graph, make_problem, make_topology

    random = np.random.default_rng(seed)
    forward = [f"a{i}" for i in range(layers)]
    sizes = (random.integers(1, 9, layers) * 2**20).tolist()
    ops = dict(zip(forward, sizes, strict=True)) | {"loss": 4, f"{_GRADIENT}loss": sizes[-1]}
    ops |= {f"{_GRADIENT}a{i}": sizes[max(i - 1, 0)] for i in reversed(range(layers))}
    edges = [f"a{i} -> a{i + 1}" for i in range(layers - 1)] + [f"a{layers - 1} -> loss", f"loss -> {_GRADIENT}loss"]
    if residual:
        edges += [f"a{i} -> a{i + 2}" for i in range(0, layers - 2, 2)]
    for i in range(layers):
        comes = [f"{_GRADIENT}a{j}" for j in range(layers) if f"a{i} -> a{j}" in edges] or [f"{_GRADIENT}loss"]
        edges += [f"{u} -> {_GRADIENT}a{i}" for u in [*comes, f"a{i}", *([f"a{i - 1}"] if i else [])]]
    graph = make_graph(ops, edges, types=dict.fromkeys(ops, "MatMul"))  # whose result takes over no other memory
    seconds = dict.fromkeys(ops, 1.0) | {name: float(random.integers(1, 6)) for name in forward}
    return make_problem(graph, make_topology(1), seconds)


def _rows(problem, seed, residual, seconds):
    from tfplace.errors import InfeasibleError
    from tfplace.rematerialization.rematerialize import one_device, with_less_memory

    trials, rows = one_device(problem), []
    whole = trials(()).cost
    for budget in BUDGETS:
        try:
            found = with_less_memory(trials, None, budget).cost.step_s
        except InfeasibleError:
            found = None
        best, proven = optimum(problem, int(budget * whole.peak_bytes[0]), seconds)
        rows.append({"residual": residual, "seed": seed, "budget": budget, "whole_s": whole.step_s})
        rows[-1] |= {"greedy_s": found, "best_s": best, "proven": proven}
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def optimum(problem, limit_bytes, seconds):
    """Seconds of the shortest schedule within some memory, or None; and whether that is proven."""
    from ortools.sat.python import cp_model

    graph = problem.graph
    count = graph.num_ops
    cost = np.rint(problem.costs.compute_s[:, 0] * _TICKS).astype(int).tolist()
    size = [int(graph.tensor_bytes[v]) for v in range(count)]  # each op makes one tensor
    edges = sorted({(int(u), int(v)) for u, v in zip(graph.edge_src, graph.edge_dst, strict=True)})
    readers = [[v for u, v in edges if u == i] for i in range(count)]
    model = cp_model.CpModel()
    runs = [[model.new_bool_var(f"runs{t},{i}") for i in range(t + 1)] for t in range(count)]
    kept = [[model.new_bool_var(f"kept{t},{i}") for i in range(t)] for t in range(count + 1)]
    for i in range(count):
        model.add(kept[count][i] == 0)
    for t in range(count):
        model.add(runs[t][t] == 1)
        for i in range(t):
            if t and i < t - 1:
                model.add_bool_or([kept[t][i].negated(), runs[t - 1][i], kept[t - 1][i]])
        for u, v in edges:
            if v <= t:
                model.add_bool_or([runs[t][v].negated(), runs[t][u], *([kept[t][u]] if u < t else [])])
        held = sum(size[i] * kept[t][i] for i in range(t))
        for k in range(t + 1):
            held += size[k] * runs[t][k]
            model.add(held <= limit_bytes)
            for i in [*(u for u, v in edges if v == k), k]:
                later = [runs[t][v] for v in readers[i] if k < v <= t]
                stays = [kept[t + 1][i]] if i < t + 1 else []
                freed = model.new_bool_var(f"freed{t},{i},{k}")
                for other in (*later, *stays):
                    model.add_implication(freed, other.negated())
                model.add_implication(freed, runs[t][k])
                held -= size[i] * freed
        for i in range(t):  # what is run again beside being kept would be freed twice
            model.add_bool_or([runs[t][i].negated(), kept[t][i].negated()])
    model.minimize(sum(cost[i] * runs[t][i] for t in range(count) for i in range(t + 1)))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, status == cp_model.INFEASIBLE
    return solver.objective_value / _TICKS, status == cp_model.OPTIMAL


def text(found):
    rows = []
    for residual in (False, True):
        for budget in BUDGETS:
            own = [r for r in found["rows"] if (r["residual"], r["budget"]) == (residual, budget)]
            both = [r for r in own if r["greedy_s"] and r["best_s"]]
            ratios = [r["greedy_s"] / r["best_s"] for r in both]
            rows.append(
                [
                    "residual" if residual else "chain",
                    f"{budget:.0%}",
                    f"{sum(r['best_s'] is not None for r in own)} of {len(own)}",
                    f"{sum(r['greedy_s'] is not None for r in own)} of {len(own)}",
                    f"{statistics.median(r['best_s'] / r['whole_s'] for r in both):.2f}" if both else "-",
                    f"{statistics.median(r['greedy_s'] / r['whole_s'] for r in both):.2f}" if both else "-",
                    f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if both else "-",
                    f"{sum(r['proven'] for r in own)} of {len(own)}",
                ]
            )
    head = ["graph", "memory", "best fits", "greedy fits", "best: step", "greedy: step", "greedy over best", "proven"]
    return table(head, rows)


if __name__ == "__main__":
    flags.DEFINE_integer("layers", 12, "Of each step.", 2)
    flags.DEFINE_integer("seeds", 5, "Steps of each kind.", 1)
    flags.DEFINE_float("seconds", 20.0, "For each optimum.", 0.1)
    run("rematerialization_optimum", measure, text)
