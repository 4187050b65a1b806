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
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.cost.profile import DeviceProfile, Profile
from tfplace.cost.profiled import profiled_costs, profiled_share
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.calibration.profile import profile_graph
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options

ONE = "one worker"
"""The unsplit step on the first worker, to which all others are compared."""

AUTO, ACCUMULATED = "auto, unsplit", "4 slices on one worker"
PACKED = "2, packed"
"""Two slices whose small tensors are sent together."""
PARALLEL = {2: "data_parallel K=2", PACKED: "data_parallel K=2, packed", 4: "data_parallel K=4"}
PIPELINE, SPLIT = "one_f_one_b K=4", "auto, split"
OTHERS = ("expert", "heft", "metis", "scotch", "critical_path")
"""Placers whose placements of K=2 and K=4 are not in the table: they show whether ranks are simulated right."""
IN_LOOP = "data_parallel K=2, kernels read in the loop"
"""Of a step with a loop: as TensorFlow reads the kernels, in every iteration where they are."""

_TRACED = 4
"""Steps of a round's profile of a graph."""


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


def variants_of(model, batch, topology: Topology, *, evaluations: int, rounds: int, seed: int, tell) -> list[Variant]:
    """All variants of a model's step. The ops of each graph are profiled, as a part of a batch takes its own time.

    Args:
      model: compiled.
      batch: of a step.
      topology: the workers, calibrated.
      evaluations: simulated placements that `auto` may try.
      rounds: in which graphs are profiled, in turns; the fastest counts, as of transfers when a cluster is calibrated.
      seed: of `auto`.
      tell: called with what is being done.
    """
    tell(f"{model.name}: extracting")
    graphs = {1: tfplace.extract(model, batch)}
    graphs |= {slices: tfplace.extract(model, batch, slices=slices) for slices in (2, 4)}
    graphs[PACKED] = tfplace.extract(model, batch, slices=2, pack=True)
    if "LoopCond" in graphs[1].op_types:
        with mock.patch("tfplace.transforms.split.hoist_reads", lambda graph_def: 0):
            graphs[IN_LOOP] = tfplace.extract(model, batch, slices=2)
    out, split = [], []
    for which, (problem, facts) in problems_of(graphs, batch, topology, rounds, tell).items():
        tell(f"{model.name}: placing {problem.graph.num_ops} ops")
        if which != IN_LOOP:
            auto = tfplace.place(problem, placer="auto", budget=f"{evaluations} evaluations", seed=seed, progress=False)
        if which == 1:
            out += [Variant(ONE, _on_one(auto), facts), Variant(AUTO, auto, facts)]
            continue
        parallel = tfplace.place(problem, placer="data_parallel", progress=False)
        out.append(Variant(PARALLEL.get(which, which), parallel, facts))
        split += [Variant(SPLIT, auto, facts)] if which != IN_LOOP else []
        if which == 4:
            out.append(Variant(ACCUMULATED, _on_one(parallel), facts))
            out.append(Variant(PIPELINE, tfplace.place(problem, placer="one_f_one_b", progress=False), facts))
        for placer in OTHERS if which in {2, 4} else ():
            other = tfplace.place(problem, placer=placer, progress=False, budget="100 evaluations")
            out.append(Variant(f"{placer} K={which}", other, facts))
    out.append(min(split, key=lambda variant: variant.placement.cost.step_s))
    return [dataclasses.replace(each, facts={**each.facts, **_simulated(each.placement)}) for each in out]


def problems_of(graphs, batch, topology: Topology, rounds: int, tell) -> dict[Any, tuple[Problem, dict[str, Any]]]:
    """Each graph with costs of a profile of its own, and what is kept of both.

    Args:
      graphs: by anything.
      batch: of a step.
      topology: the workers, calibrated.
      rounds: in which all are profiled, in turns; the fastest counts.
      tell: called with what is being done.
    """
    profiles = profiles_of(graphs, batch, topology, rounds, tell)
    return {which: _problem(graph, topology, profiles[which]) for which, graph in graphs.items()}


def profiles_of(
    graphs, batch, topology: Topology, rounds: int, tell, *, compiled: bool = False
) -> dict[Any, DeviceProfile]:
    """A profile of each graph, with seconds of the step compiled if asked for; see `problems_of`."""
    profiled: dict[Any, list[DeviceProfile]] = {which: [] for which in graphs}
    for turn in range(rounds):
        tell(f"profiling {sum(graph.num_ops for graph in graphs.values())} ops, round {turn + 1}")
        for which, graph in graphs.items():
            one = profile_graph(
                graph,
                _one_thread,
                topology.devices[0].model,
                batch=batch,
                warmup=2,
                steps=_TRACED,
                compiled=compiled,
            )
            profiled[which].append(one.device)
    return {which: _fastest(found) for which, found in profiled.items()}


def _one_thread():
    return Cluster.start(1, inter_op=1)


def _fastest(profiles: list[DeviceProfile]) -> DeviceProfile:
    """Of each op and of the step the least seconds of several profiles of one graph."""
    first, *_ = profiles
    ops = {known: min((p.ops[known] for p in profiles), key=lambda time: time.seconds) for known in first.ops}
    step = min((p.steps[0] for p in profiles), key=lambda step: step.step_s)
    step = dataclasses.replace(step, compiled_s=min(p.steps[0].compiled_s for p in profiles))
    return dataclasses.replace(first, ops=ops, steps=(step,))


def _problem(graph: OpGraph, topology: Topology, profile: DeviceProfile):
    """What is placed, with costs of its own profile, and what is kept of both."""
    problem = tfplace.formulate(graph, topology, costs=profiled_costs(graph, topology, Profile((profile,))))
    return problem, {
        "ops": graph.num_ops,
        "slices": str(graph.slices) if graph.slices is not None else None,
        "gathered": list(graph.slices.gathered) if graph.slices is not None else [],
        "profiled_share": profiled_share(problem.costs),
        "one_thread_s": profile.steps[0].step_s,
        "executions": profile.steps[0].executions,
    }


def _on_one(placement):
    device = np.zeros_like(placement.op_device)
    order, phases = Simulator(placement.problem).phases(device)
    return dataclasses.replace(placement, op_device=device, order=order, phases=phases)


def _simulated(placement):
    options = Options(phase_orders=(placement.order,))
    cost = Simulator(placement.problem, options).devices(placement.op_device)
    return {
        "order": placement.order,
        "simulated_s": cost.step_s,
        "moved_bytes": int(cost.moved_bytes),
        "transfers": _transfers(placement),
    }


def _transfers(placement):
    """Tensors sent from a device to another."""
    graph, device = placement.problem.graph, placement.op_device
    moved = (graph.edge_tensor >= 0) & (device[graph.edge_src] != device[graph.edge_dst])
    moved &= ~graph.replicable[graph.edge_src]
    return len({*zip(graph.edge_tensor[moved].tolist(), device[graph.edge_dst[moved]].tolist(), strict=True)})
