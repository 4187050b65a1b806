"""The fidelity experiment: models on one-core workers of this machine, simulated and measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from research.fidelity.agreement import Agreement
from research.fidelity.predictions import Fidelity, fidelity
from tfplace.core.arrays import IntArray
from tfplace.core.compilation import NONE
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.topology import Topology
from tfplace.cost.profile import Profile
from tfplace.cost.profiled import profiled_share
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running
from tfplace.measurement.calibration.profile import profile_graph
from tfplace.measurement.protocol.interference import ProcessorWatch
from tfplace.measurement.protocol.measured import MeasuredEvaluator
from tfplace.measurement.protocol.sampling import take_samples
from tfplace.search.compilations import cost_as_run
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options
from tfplace.sources import formulate
from tfplace.testing.variety import variety

OPTIONS = {
    "default": Options(),
    "no overheads": Options(overheads=False),
    "overheads first": Options(overhead_order="first"),
    "overheads in turn": Options(overhead_order="in turn"),
    "overheads preempt": Options(overhead_order="preempt"),
    "lifo": Options(order="lifo"),
    "inline": Options(order="inline"),
    "random": Options(order="random"),
    "4 ops at once": Options(parallel=4),
}
"""Ways to simulate that are compared."""


class AsRun(Simulator):
    """The simulator that tells a step of clusters cluster by cluster, none of them cut, as it is measured."""

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """See `cost_as_run`."""
        if self.problem.compile == NONE:
            return super().__call__(unit_device)
        return cost_as_run(self, np.asarray(unit_device, np.int32), quick=True)


@dataclass(frozen=True)
class Experiment:
    """What one model's experiment gave.

    Attributes:
      fidelity: simulated against measured.
      ops: of the graph.
      bound_s: no placement is simulated to be faster.
      profiled: share of the simulated seconds that were measured op by op.
      options: agreement under other options of the simulator, by name.
      plain_ratio: step time of plain TensorFlow, one process on all the workers' cores, over the reference placement's.
    """

    fidelity: Fidelity
    ops: int
    bound_s: float
    profiled: float
    options: Mapping[str, Agreement]
    plain_ratio: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.fidelity.to_dict(),
            "ops": self.ops,
            "bound_s": self.bound_s,
            "profiled_share": self.profiled,
            "options": {name: dataclasses.asdict(agreement) for name, agreement in self.options.items()},
            "plain_tensorflow_ratio": self.plain_ratio,
        }


def run_experiment(
    graph: OpGraph,
    topology: Topology,
    cluster: Cluster,
    *,
    batch: Any = None,
    cache: str | Path | None = None,
    seed: int = 0,
    repeats: int = 10,
    compile: str = NONE,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] | None = None,
) -> Experiment:
    """Profiles a graph, places it in many ways, and simulates and measures them all.

    Args:
      graph: an extracted graph.
      topology: of the workers, calibrated.
      cluster: workers, one for each of the topology's devices.
      batch: what a step is given.
      cache: a profile file that is read and added to.
      seed: of the placements.
      repeats: steps measured for each placement.
      compile: how steps are run, and what the costs are of: `NONE` or `XLA`.
      tell: called with what is being done.
      progress: called with the placements measured and their number.
    """
    tell(f"{graph.name}: profiling ops on one worker")
    problem = formulate(graph, topology, profile=_profile(graph, topology, batch, cache), compile=compile)
    tell(f"{graph.name}: making placements")
    placements = variety(problem, seed=seed)
    tell(f"{graph.name}: measuring placements")
    reference = next(iter(placements))
    evaluator = MeasuredEvaluator(
        problem, cluster, batch=batch, reference=placements[reference], repeats=repeats, compile=compile
    )
    try:
        result = fidelity(
            problem,
            AsRun(problem),
            evaluator,
            placements,
            reference=reference,
            progress=progress,
        )
    finally:
        evaluator.close()
    tell(f"{graph.name}: plain TensorFlow")
    return Experiment(
        result,
        graph.num_ops,
        lower_bound(problem).seconds,
        profiled_share(problem.costs),
        {name: result.under(Simulator(problem, o), placements).agreement for name, o in OPTIONS.items()},
        plain_ratio(problem, cluster, placements[reference], batch, repeats),
    )


def _profile(graph: OpGraph, topology: Topology, batch: Any, cache: str | Path | None) -> Profile:
    """Op seconds on one worker that runs one op at a time."""
    device = topology.devices[0]
    one = profile_graph(graph, lambda: Cluster.start(workers=1, inter_op=1), device.model, batch=batch, cache=cache)
    return one.profile


def plain_ratio(problem: Problem, cluster: Cluster, reference: IntArray, batch: Any, repeats: int) -> float:
    """Step time without any placement, in one process on all cores of the cluster, over the reference placement's.

    That process has one thread per core within ops and as many between ops, as plain TensorFlow has.

    Args:
      problem: what is placed.
      cluster: runs the reference.
      reference: [U] devices.
      batch: what a step is given.
      repeats: steps measured.
    """
    cores = cluster.cores
    program = StepGraph(problem.graph, batch)
    twin = program.twin()
    with Cluster.start(workers=1, cores=[cores], inter_op=len(cores), intra_op=len(cores)) as plain:
        program.place(dict.fromkeys(problem.graph.op_names, plain.devices[0]))
        names = np.array(cluster.devices)[problem.expand(reference)]
        twin.place(dict(zip(problem.graph.op_names, names.tolist(), strict=True)))
        candidate = Running(program, plain, None)
        beside = Running(twin, cluster, None)
        try:
            watch = ProcessorWatch((*plain.pids, *cluster.pids), cores)
            ratio = take_samples(candidate, beside, watch, repeats=repeats).ratio
        finally:
            candidate.close()
            beside.close()
    assert ratio is not None  # there was a reference
    return ratio
