"""Ways to run a model's training step on two devices: each a graph, and a device for each of its ops."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import tfplace
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.topology import Topology
from tfplace.cost.profile import DeviceProfile
from tfplace.cost.profiled import profiled_costs, profiled_share
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.calibration.profile import profile_graph
from tfplace.simulation.evaluate import Simulator

ONE = "one worker"
"""The unsplit step on the first worker, to which all others are compared."""

AUTO, ACCUMULATED = "auto, unsplit", "4 slices on one worker"
PARALLEL = {2: "data_parallel K=2", 4: "data_parallel K=4"}
IN_LOOP = "data_parallel K=2, kernels read in the loop"
"""Of a step with a loop: as TensorFlow reads the kernels, in every iteration where they are."""

OURS = (ONE, AUTO, *PARALLEL.values(), ACCUMULATED)


@dataclass(frozen=True)
class Variant:
    """A placed step.

    Attributes:
      name: one of the above.
      placement: of its graph on the two workers.
      facts: what is kept of it, simulated seconds among them.
    """

    name: str
    placement: Placement
    facts: dict[str, Any]

    @property
    def graph(self) -> OpGraph:
        """What is placed."""
        assert self.placement.problem is not None  # it was just made
        return self.placement.problem.graph

    @property
    def devices(self) -> dict[str, int]:
        """Op -> number of its device."""
        return dict(zip(self.placement.op_names, self.placement.op_device.tolist(), strict=True))


def variants_of(model, batch, topology: Topology, *, evaluations: int, steps: int, seed: int, tell) -> list[Variant]:
    """All variants of a model's step. The ops of each graph are profiled, as a part of a batch takes its own time.

    Args:
      model: compiled.
      batch: of a step.
      topology: the workers, calibrated.
      evaluations: simulated placements that `auto` may try.
      steps: traced, of a profile.
      seed: of `auto`.
      tell: called with what is being done.
    """
    out = []
    graphs = {1: tfplace.extract(model, batch)}
    graphs |= {slices: tfplace.extract(model, batch, slices=slices) for slices in PARALLEL}
    for slices, graph in graphs.items():
        tell(f"{graph.name}: profiling {graph.num_ops} ops of {slices} slices")
        problem, facts = _problem(graph, topology, batch, steps)
        tell(f"{graph.name}: placing {slices} slices")
        if slices == 1:
            auto = tfplace.place(problem, placer="auto", budget=f"{evaluations} evaluations", seed=seed, progress=False)
            out += [Variant(ONE, _on_one(auto), facts), Variant(AUTO, auto, facts)]
            continue
        parallel = tfplace.place(problem, placer="data_parallel", progress=False)
        out.append(Variant(PARALLEL[slices], parallel, facts))
        if slices == 4:
            out.append(Variant(ACCUMULATED, _on_one(parallel), facts))
    if "while" in "".join(graphs[2].op_names):
        with mock.patch("tfplace.transforms.split.hoist_reads", lambda graph_def: 0):
            graph = tfplace.extract(model, batch, slices=2)
        problem, facts = _problem(graph, topology, batch, steps)
        out.append(Variant(IN_LOOP, tfplace.place(problem, placer="data_parallel", progress=False), facts))
    return [dataclasses.replace(each, facts={**each.facts, **_simulated(each.placement)}) for each in out]


def _problem(graph, topology, batch, steps):
    """What is placed, with costs of its own profile, and what is kept of both."""
    model = topology.devices[0].model
    outcome = profile_graph(graph, lambda: Cluster.start(1, inter_op=1), model, batch=batch, steps=steps)
    problem = tfplace.formulate(graph, topology, costs=profiled_costs(graph, topology, outcome.profile))
    return problem, {
        "ops": graph.num_ops,
        "slices": str(graph.slices) if graph.slices is not None else None,
        "gathered": list(graph.slices.gathered) if graph.slices is not None else [],
        "profiled_share": profiled_share(problem.costs),
        "one_thread": _one_thread(outcome.device, graph),
        "disturbed_profile_steps": outcome.disturbed,
    }


def _one_thread(device: DeviceProfile, graph: OpGraph):
    """The step on one thread as it was profiled: seconds, and those within its ops."""
    step = device.step(graph.fingerprint)
    assert step is not None  # it was just measured
    return {"step_s": step.step_s, "ops_s": step.ops_s, "executions": step.executions}


def _on_one(placement):
    return dataclasses.replace(placement, op_device=np.zeros_like(placement.op_device))


def _simulated(placement):
    cost = Simulator(placement.problem).devices(placement.op_device)
    return {"simulated_s": cost.step_s, "moved_bytes": int(cost.moved_bytes), "transfers": _transfers(placement)}


def _transfers(placement):
    """Tensors sent from a device to another."""
    graph, device = placement.problem.graph, placement.op_device
    moved = (graph.edge_tensor >= 0) & (device[graph.edge_src] != device[graph.edge_dst])
    moved &= ~graph.replicable[graph.edge_src]
    return len({*zip(graph.edge_tensor[moved].tolist(), device[graph.edge_dst[moved]].tolist(), strict=True)})
