"""Random placements of extracted graphs, whole bonded units at a time; no search."""

import numpy as np

from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.stepcost import StepCost
from tfplace.group.colocation import colocate


def placement_on(graph: OpGraph, devices: list[str], unit_device: np.ndarray) -> Placement:
    """A placement without predictions, from a device number for each unit."""
    units = colocate(graph).unit_of
    op_device = np.where(units >= 0, unit_device[units], 0).astype(np.int32)
    zeros, no_bytes = np.zeros(len(devices)), np.zeros(len(devices), np.int64)
    return Placement(
        op_names=graph.op_names,
        device_names=tuple(devices),
        op_device=op_device,
        cost=StepCost(0.0, zeros, zeros, zeros, no_bytes, no_bytes, 0),
        bound_s=0.0,
        placer="random",
        seed=0,
        graph_fingerprint=graph.fingerprint,
        topology_fingerprint="",
        topology_name="test",
    )


def random_placement(graph: OpGraph, devices: list[str], seed: int = 0) -> Placement:
    """Every bonded unit on a random device."""
    rng = np.random.default_rng(seed)
    return placement_on(graph, devices, rng.integers(len(devices), size=colocate(graph).num_units))
