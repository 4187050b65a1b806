"""What `tfplace models` says of a model beside its name: counted and simulated once, since building takes minutes."""

from __future__ import annotations

from typing import Any

from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.group.problem import formulate
from tfplace.local_search.devices import single_device
from tfplace.simulation.evaluate import Simulator

TOPOLOGY = "8xP100"
DEVICE = "GPU:0"
"""Where memory and step time are simulated: everything on one GPU, whether it fits there or not."""


def model_facts(model: Any, graph: OpGraph) -> dict[str, int | float | str]:
    """What is worth knowing of a model of the zoo.

    Args:
      model: a compiled Keras model.
      graph: its training step.

    Returns:
      `ops`; `groups`: units of `tfplace.group.colocation`, which cannot be split; `parameters`: trained numbers;
      `memory_bytes` and `step_s`: simulated peak and seconds of a training step with everything on one GPU, analytic
      costs; `unknown`: tensors whose size is a guess; `fingerprint` of the graph.
    """
    topology = Topology.preset(TOPOLOGY)
    problem = formulate(graph, topology, analytic_costs(graph, topology), Constraints())
    gpu = problem.topology.index(DEVICE)
    cost = Simulator(problem)(single_device(problem, gpu))
    return {
        "ops": graph.num_ops,
        "groups": problem.num_units,
        "parameters": sum(int(weight.shape.num_elements()) for weight in _weights(model)),
        "memory_bytes": int(cost.peak_bytes[gpu]),
        "step_s": round(cost.step_s, 6),
        "unknown": len(graph.unknown),
        "fingerprint": graph.fingerprint,
    }


def _weights(model: Any) -> list[Any]:
    """The variables that are trained, once each."""
    return list({id(v): v.value for v in model.trainable_variables}.values())
