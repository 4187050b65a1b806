"""An evaluator that is not the simulator, and a problem for it."""

import numpy as np

from tfplace.core.stepcost import MEASURED, Failure, FailureKind, Samples, bare, failed
from tfplace.errors import ApplyError
from tfplace.simulation.evaluate import Simulator
from tfplace.sources import formulate
from tfplace.testing import make_graph, make_topology


class Measuring:
    """Says what the simulator says, as if it had been measured; placements that `fails` picks fail.

    Args:
      problem: what is placed.
      fails: called with the number of the evaluation and the devices.
      raises: number of the evaluation at which Ctrl-C is pressed.
      breaks: number of the evaluation from which on the reference does not start.
      reference: whether there is a reference, which takes as long as each placement.
    """

    source = MEASURED

    def __init__(self, problem, fails=lambda number, devices: False, raises=None, reference=True, breaks=np.inf):
        self.problem = problem
        self.calls = 0
        self.closed = False
        self._simulator = Simulator(problem)
        self._fails, self._raises, self._reference, self._breaks = fails, raises, reference, breaks

    def __call__(self, unit_device):
        self.calls += 1
        if self.calls == self._raises:
            raise KeyboardInterrupt
        if self.calls >= self._breaks:
            raise ApplyError("a reference placement that failed", "one that runs")
        limit = self.problem.memory_limit
        if self._fails(self.calls, np.asarray(unit_device)):
            return failed(Failure(FailureKind.WORKER_LOST, "gone"), limit, MEASURED)
        step_s = self._simulator(unit_device).step_s
        steps = step_s * np.array([0.9, 1.0, 1.1])
        return bare(
            step_s, limit, MEASURED, samples=Samples(steps, np.full(3 * self._reference, step_s), rejected=1, warmup=5)
        )

    bound_s = 0.0

    def key(self, unit_device, limit_s=np.inf):
        return self(unit_device).key

    def keys(self, unit_devices, limit_s=np.inf):
        keys = [self.key(row) for row in unit_devices]
        return np.array([k[0] for k in keys]), np.array([k[1] for k in keys])

    def close(self):
        self.closed = True


def problem():
    """Four chains of three ops that meet."""
    ops = {f"{row}{i}": 2**20 for row in "abcd" for i in range(3)}
    edges = [f"{row}{i} -> {row}{i + 1}" for row in "abcd" for i in range(2)] + [f"{row}2 -> end" for row in "abcd"]
    graph = make_graph(ops | {"end": 4}, edges, types=dict.fromkeys(ops, "MatMul"))
    return formulate(graph, make_topology(2))
