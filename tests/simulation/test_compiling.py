"""What the first placement on a machine compiles."""

import json
import os
import subprocess
import sys

import pytest

KERNELS = {
    "schedule.list_scheduling.kernel.by_order", "schedule.list_scheduling.kernel.by_start",
    "schedule.list_scheduling.ranks._upward", "simulation.critical._walk_back",
    "simulation.event.simulate", "simulation.joint._heads", "local_search.move_kernel.draw",
}  # fmt: skip
"""What is optimized and kept. Each has machine code of its own, with that of all its helpers."""

ALL = 122
"""Functions, with helpers and those of numba that they call; each takes some 0.05 to 0.2 s."""

CHILD = """
import collections, json
import numpy as np
from numba.core import event

class Counts(event.Listener):
    def __init__(self):
        self.compiled = []
    def on_start(self, event):
        dispatcher = event.data["dispatcher"]
        function = dispatcher.py_func
        self.compiled.append((function.__module__, function.__name__, bool(dispatcher.stats.cache_path)))
    def on_end(self, event):
        pass

counts = Counts()
event.register("numba:compile", counts)
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.simulation.evaluate import Simulator
from tfplace.local_search.moves import Moves
from tfplace.testing import random_problem

problem = random_problem(np.random.default_rng(0), 20, 3)
scheduler, simulator = Scheduler.of(problem), Simulator(problem)
devices = scheduler.by_order().unit_device
scheduler.by_start()
step_s = simulator.key(devices)[1]
simulator.key(devices, 2 * step_s), simulator.keys([devices] * 3), simulator(devices), simulator.critical_path(devices)
Moves(Search(problem, Budget(evaluations=100), 0).context("x")).draw(devices, 4)
print(json.dumps(counts.compiled))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """(module, function, whether it is kept) for everything compiled with an empty cache."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("cache")), "NUMBA_OPT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=env, check=True, capture_output=True, text=True, timeout=300
    )
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def test_kernels_are_few(compiled):
    kept = [f"{module}.{name}".removeprefix("tfplace.") for module, name, kept in compiled if kept]
    assert sorted(name for name in kept if not name.startswith("numba.")) == sorted(KERNELS)


def test_helpers_are_compiled_once_for_all_types(compiled):
    own = [row[:2] for row in compiled if row[0].startswith("tfplace.")]
    assert len(own) == len({*own})


def test_functions_are_few(compiled):
    assert len(compiled) <= ALL
