"""What a split step would take under `tf.distribute.MirroredStrategy`, to set placements beside."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import InputError
from tfplace.group.problem import formulate
from tfplace.placers.data_parallel import by_slice, slice_devices
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT, Options
from tfplace.transforms.mirror import mirrored
from tfplace.transforms.mirrored_graph import copy_name

MIRRORED = "mirrored"
"""What the strategy is called where placements are compared."""


def mirrored_cost(problem: Problem, options: Options = DEFAULT) -> StepCost:
    """A simulated step of `MirroredStrategy` on the same devices, within the same memory.

    Slices are on devices as `data_parallel` has them, and each of these devices is a replica. Copies take as long as
    what they copy, and the exchange of gradients takes its analytic seconds. Rules that pin or forbid do not count, as
    the strategy knows none. `tfplace.transforms.mirror.mirrored` lists what else the strategy does otherwise.

    Args:
      problem: a step in slices, and devices.
      options: what is simulated.

    Raises:
      InputError: the step is not split.
    """
    slices = problem.graph.slices
    if slices is None:
        raise InputError(f"replicas of {problem.graph.name!r}, which has no slices", "a step in at least two slices")
    devices, replica_of = np.unique(slice_devices(problem, slices), return_inverse=True)
    graph = mirrored(problem.graph, replica_of.tolist())
    assert graph.slices is not None
    made = formulate(graph, problem.topology, _costs(problem, graph, len(devices)), Constraints())
    made = dataclasses.replace(made, memory_limit=problem.memory_limit)
    simulator = Simulator(made, options)
    return min((simulator(units) for units in by_slice(made, graph.slices, devices)), key=lambda cost: cost.key)


def _costs(problem: Problem, graph: OpGraph, replicas: int) -> CostTable:
    """Seconds of the mirrored graph: those of the problem where there are any."""
    names = problem.graph.op_names
    known = {copy_name(name, r): v for v, name in enumerate(names) for r in range(replicas)}
    known.update(problem.graph.index)
    source: IntArray = np.array([known.get(name, -1) for name in graph.op_names], np.int32)
    plain = analytic_costs(graph, problem.topology)
    return CostTable(
        np.where(source[:, None] >= 0, problem.costs.compute_s[source], plain.compute_s),
        tuple(plain.provenance[v] if u < 0 else problem.costs.provenance[u] for v, u in enumerate(source.tolist())),
    )
