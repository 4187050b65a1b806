"""Split steps as pipelines of two stages, with their phases by the usual rules."""

from __future__ import annotations

import dataclasses

import numpy as np

import tfplace
from tests.placing import placement_on
from tfplace.core.graph import OpGraph
from tfplace.core.placement import CRITICAL_PATH, Placement
from tfplace.group.colocation import colocate
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options
from tfplace.testing import make_topology

DEVICES = ["CPU:0", "CPU:1"]


def turns(order: str, stage: int, stages: int, slices: int) -> list[tuple[str, int]]:
    """What a stage does one after the other: "forward" or "backward" of a slice.

    "gpipe" is all forward, then all backward. Under "1f1b" a stage goes as many slices ahead as there are stages from
    it to the end, and then backward and forward in turns (PipeDream, Narayanan et al., SOSP 2019, section 3.2).
    """
    forward, backward = ([(way, k) for k in range(slices)] for way in ("forward", "backward"))
    if order == "gpipe":
        return forward + backward
    ahead = min(stages - stage, slices)
    alternating = [turn for pair in zip(backward, forward[ahead:], strict=False) for turn in pair]
    return forward[:ahead] + alternating + backward[slices - ahead :]


def pipeline(graph: OpGraph, first_stage: tuple[str, ...], order: str = "free") -> Placement:
    """Layers of the first stage on CPU:0, all else on CPU:1, its phases in an order.

    Args:
      graph: a split step.
      first_stage: names of layers.
      order: "free", "gpipe", "1f1b" or "critical_path".
    """
    units = colocate(graph)
    device = np.ones(units.num_units, int)
    for layer in first_stage:
        device[units.unit_of[graph.layers[layer]]] = 0
    placement = placement_on(graph, DEVICES, device)
    return (
        placement
        if order == "free"
        else dataclasses.replace(placement, phases=phases(placement, graph, order), order=order)
    )


def phases(placement: Placement, graph: OpGraph, order: str) -> np.ndarray:
    """[V] the turn of each slice's op on its stage; or the stretch of the critical path, by estimated seconds."""
    assert graph.slices is not None
    if order == CRITICAL_PATH:
        problem = tfplace.formulate(graph, make_topology(len(DEVICES), types="CPU"))
        _, found = Simulator(problem, Options(phase_orders=(CRITICAL_PATH,))).phases(placement.op_device)
        assert found is not None
        return found
    count = len(graph.slices.sizes)
    turn = [{did: i for i, did in enumerate(turns(order, stage, 2, count))} for stage in range(2)]
    out = np.full(graph.num_ops, -1, np.int32)
    backward = after_the_loss(graph)
    for v, k in enumerate(graph.slices.slice_of.tolist()):
        if k >= 0:
            out[v] = turn[placement.op_device[v]]["backward" if backward[v] else "forward", k]
    return out


def after_the_loss(graph: OpGraph) -> list[bool]:
    """[V] whether an op needs the loss, which itself is a part of the forward pass."""
    loss = [name.startswith("compile_loss") for name in graph.base_names]
    after = [False] * graph.num_ops
    for u, v in sorted(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True), key=lambda edge: edge[1]):
        after[v] |= not loss[v] and (loss[u] or after[u])
    return after
