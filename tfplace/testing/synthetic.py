"""Random problems on which a search is known to find more than constructive placers do.

Learned placers cannot win where list scheduling is already optimal, so REGAL (Paliwal et al., ICLR 2020) publishes
synthetic graphs filtered for head-room: those on which its genetic search, given many evaluations, is 20 % faster than
given few, or alone fits the memory. Here a candidate is kept if a search of `EVALUATIONS` is `MARGIN` faster than the
best of `CONSTRUCTIVE`, or alone fits. scripts/make_synthetic.py applies the filter to candidates 0, 1, 2, ... and
writes which were kept, with their head-room, to synthetic.json; `synthetic` makes those again from their numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.local_search.devices import single_device
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing.graphs import make_graph
from tfplace.testing.problems import make_problem, make_topology

CONSTRUCTIVE = (
    "single",
    "round_robin",
    "expert",
    "m_topo",
    "heft",
    "critical_path",
    "etf",
    "m_etf",
    "m_sct",
)
SEARCH = "local_search"
EVALUATIONS = 5000
MARGIN = 0.1
"""Fraction of the best constructive step time by which the search must be below it."""

KEPT = Path(__file__).parent / "synthetic.json"

SECONDS, BANDWIDTH, LATENCY_S = 200e-6, 10e9, 10e-6
"""Of an average op; bytes per second and seconds of every link."""

_KINDS = {"Conv2D": (4.0, 1.0), "MatMul": (2.0, 0.5), "Softmax": (0.5, 1.0), "Relu": (0.25, 1.0), "AddV2": (0.25, 1.0)}
"""Op type -> its seconds and its output's bytes relative to the average."""

_Reads = Callable[[np.random.Generator, int], list[tuple[int, int]]]


def candidate(number: int) -> Problem:
    """One of endlessly many random problems: 50 to 200 ops on 2 or 4 GPUs, some of unequal speed.

    The shape of the graph goes round with the number: layered, Erdos-Renyi, Barabasi-Albert, Watts-Strogatz, blocks;
    edges lead from earlier to later ops. Transfers of an average tensor take 0.1 to 3 times an average op. In a third
    of the problems the memory of a GPU is 0.6 of what all ops on one GPU need.

    Args:
      number: from 0; the same number always gives the same problem.
    """
    rng = np.random.default_rng([7, number])
    ops, devices = int(rng.integers(50, 201)), int(rng.choice([2, 4]))
    shape = list(SHAPES)[number % len(SHAPES)]
    ratio = float(rng.choice([0.1, 0.3, 1.0, 3.0]))
    kinds = rng.choice(list(_KINDS), ops).tolist()
    relative = np.array([_KINDS[kind] for kind in kinds]) * rng.lognormal(-0.125, 0.5, (ops, 2))
    sizes = np.ceil(relative[:, 1] * ratio * SECONDS * BANDWIDTH).astype(int)
    graph = make_graph(
        {f"{shape}/{kind}_{i}": int(size) for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True))},
        types={f"{shape}/{kind}_{i}": kind for i, kind in enumerate(kinds)},
        edges=[f"{shape}/{kinds[a]}_{a} -> {shape}/{kinds[b]}_{b}" for a, b in SHAPES[shape](rng, ops)],
        name=f"synthetic_{number}",
    )
    speed = rng.choice([1.0, 2.0], devices) if rng.random() < 1 / 3 else np.ones(devices)
    topology = make_topology(devices, speed=speed.tolist(), bandwidth=BANDWIDTH, latency=LATENCY_S, name="synthetic")
    seconds = relative[:, :1] * SECONDS / speed
    problem = make_problem(graph, topology, seconds)
    if rng.random() >= 1 / 3:
        return problem
    alone = int(Simulator(problem)(single_device(problem, 0)).peak_bytes[0])
    return make_problem(graph, topology, seconds, memory_limit=[round(0.6 * alone)] * devices)


def headroom(problem: Problem) -> float:
    """By which fraction the search is faster than the best constructive placer; 1 if it alone fits the memory.

    0 if neither fits. Each constructive placer has as many evaluations as there are devices.
    """
    few = Budget(evaluations=problem.num_devices)
    built = min(_key(problem, name, few) for name in CONSTRUCTIVE)
    found = min(built, _key(problem, SEARCH, Budget(evaluations=EVALUATIONS)))
    if found[0] > 0 or built[0] > 0:
        return float(found[0] == 0)
    return 1 - found[1] / built[1]


def _key(problem: Problem, name: str, budget: Budget) -> Key:
    placer: Placer = PLACERS[name]()
    search = Search(problem, budget, seed=0)
    return search.evaluator.key(search.run(placer, name))


def synthetic(index: int) -> Problem:
    """A problem that the filter kept.

    Args:
      index: from 0 to `size() - 1`.

    Raises:
      IndexError: there are fewer.
    """
    return candidate(kept()["numbers"][index])


def size() -> int:
    """How many problems there are."""
    return len(kept()["numbers"])


def split() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Indices of the problems to train on, and of the quarter to test on: those whose names have the lowest SHA-256."""
    names = [f"synthetic_{number}".encode() for number in kept()["numbers"]]
    order = sorted(range(len(names)), key=lambda i: hashlib.sha256(names[i]).hexdigest())
    count = len(names) // 4
    return tuple(sorted(order[count:])), tuple(sorted(order[:count]))


@lru_cache
def kept() -> dict[str, Any]:
    """What scripts/make_synthetic.py wrote: candidates `tried`, and the `numbers` and `headroom` of those kept."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


# ---- shapes: who reads whom, as (earlier op, later op) without repetition --------------------------------------------


def _layered(rng: np.random.Generator, ops: int) -> list[tuple[int, int]]:
    """Layers of 2 to 8 ops; each op reads one to three of the layer before."""
    edges, before, start = set(), range(0), 0
    while start < ops:
        layer = range(start, min(start + int(rng.integers(2, 9)), ops))
        if before:
            for dst in layer:
                count = min(int(rng.integers(1, 4)), len(before))
                edges |= {(int(src), dst) for src in rng.choice(np.array(before), count, replace=False)}
        before, start = layer, layer.stop
    return sorted(edges)


def _erdos_renyi(rng: np.random.Generator, ops: int) -> list[tuple[int, int]]:
    """Every pair with the same probability, two inputs an op on average."""
    chosen = np.triu(rng.random((ops, ops)) < 4.0 / ops, 1)
    return [(int(a), int(b)) for a, b in np.argwhere(chosen)]


def _barabasi_albert(rng: np.random.Generator, ops: int) -> list[tuple[int, int]]:
    """Each op reads two before it, those with many readers more likely."""
    edges, degree = [], np.ones(ops)
    for dst in range(1, ops):
        weights = degree[:dst] / degree[:dst].sum()
        for src in rng.choice(dst, min(2, dst), replace=False, p=weights).tolist():
            edges.append((src, dst))
            degree[[src, dst]] += 1
    return edges


def _watts_strogatz(rng: np.random.Generator, ops: int) -> list[tuple[int, int]]:
    """Each op next to two neighbors in a ring; one edge in five leads anywhere."""
    edges = set()
    for a in range(ops):
        for step in (1, 2):
            b = int(rng.integers(ops)) if rng.random() < 0.2 else (a + step) % ops
            edges.add((min(a, b), max(a, b)))
    return sorted((a, b) for a, b in edges if a != b)


def _blocks(rng: np.random.Generator, ops: int) -> list[tuple[int, int]]:
    """Four groups of ops, with many edges inside and few between: a stochastic block model."""
    block = rng.integers(4, size=ops)
    likely = np.where(block[:, None] == block, 12.0 / ops, 0.8 / ops)
    return [(int(a), int(b)) for a, b in np.argwhere(np.triu(rng.random((ops, ops)) < likely, 1))]


SHAPES: dict[str, _Reads] = {
    "layered": _layered,
    "erdos_renyi": _erdos_renyi,
    "barabasi_albert": _barabasi_albert,
    "watts_strogatz": _watts_strogatz,
    "blocks": _blocks,
}
