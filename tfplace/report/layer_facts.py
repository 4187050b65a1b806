"""Where the layers of a model are, and what they take there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfplace.core.arrays import IntArray, LongArray
from tfplace.core.buffers import aliases
from tfplace.core.graph import OpGraph
from tfplace.core.passes import backward_ops
from tfplace.core.placement import Placement
from tfplace.formatting import format_bytes, format_seconds

LAYER_HEADINGS = ("layer", "ops", "devices", "compute", "variables", "kept for gradients")
LAYERS = "Layers with their gradients and optimizer ops"


@dataclass(frozen=True)
class LayerShare:
    """What a layer has and does on one device.

    Attributes:
      ops: how many of its ops are there.
      compute_s: seconds they compute.
      variable_bytes: variables there, optimizer slots too.
      kept_bytes: results of forward ops there that gradients read.
    """

    ops: int
    compute_s: float
    variable_bytes: int
    kept_bytes: int


@dataclass(frozen=True)
class LayerFacts:
    """A layer with all that belongs to it; an outer layer with those within.

    Attributes:
      name: as in `OpGraph.layers`.
      devices: device name -> what is there, in the topology's order; only devices with ops of the layer.
    """

    name: str
    devices: Mapping[str, LayerShare]

    def total(self, what: str) -> Any:
        """A number of `LayerShare`, over all devices."""
        return sum(getattr(share, what) for share in self.devices.values())

    def cells(self) -> tuple[str, ...]:
        """Texts for a table row under `LAYER_HEADINGS`; inner layers are indented."""
        outer, _, own = self.name.rpartition("/")
        depth = outer.count("/") + 1 if outer else 0
        return (
            "\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}" * depth + own,
            str(self.total("ops")),
            self._where(),
            format_seconds(self.total("compute_s")),
            format_bytes(self.total("variable_bytes")),
            format_bytes(self.total("kept_bytes")),
        )

    def _where(self) -> str:
        """Devices, that with most seconds first; how they share those, if it is more than one."""
        if len(self.devices) == 1:
            return next(iter(self.devices))
        whole = max(self.total("compute_s"), 1e-300)
        ranked = sorted(self.devices.items(), key=lambda item: -item[1].compute_s)
        return ", ".join(f"{name} {100 * share.compute_s / whole:.0f} %" for name, share in ranked)


def layer_facts(placement: Placement) -> list[LayerFacts]:
    """A row for each layer, in the order of the forward pass; none without the problem or if names tell no layers."""
    problem = placement.problem
    if problem is None or not problem.graph.layers:
        return []
    graph, device = problem.graph, placement.op_device
    runs = ~graph.replicable  # copied constants are wherever they are read, and take no time of their own
    seconds = np.where(runs, problem.costs.compute_s[np.arange(graph.num_ops), device], 0.0)
    kept = kept_bytes(graph)
    return [LayerFacts(name, _shares(placement, ops[runs[ops]], seconds, kept)) for name, ops in graph.layers.items()]


def _shares(placement: Placement, ops: IntArray, seconds: Any, kept: LongArray) -> dict[str, LayerShare]:
    assert placement.problem is not None
    held, device = placement.problem.graph.persistent_bytes, placement.op_device
    out = {}
    for d in np.unique(device[ops]).tolist():
        mine = ops[device[ops] == d]
        out[placement.device_names[d]] = LayerShare(
            len(mine), float(seconds[mine].sum()), int(held[mine].sum()), int(kept[mine].sum())
        )
    return out


def kept_bytes(graph: OpGraph) -> LongArray:
    """[V] bytes of each op's results that gradients read, once each, and of what those are views of."""
    backward = backward_ops(graph)
    root = np.arange(graph.num_tensors)
    for t, position in enumerate(aliases(graph).tolist()):
        if position >= 0:
            root[t] = root[graph.inputs[int(graph.tensor_op[t])][position]]
    read = np.zeros(graph.num_tensors, np.bool_)
    data = (graph.edge_tensor >= 0) & ~graph.edge_back
    crossing = data & backward[graph.edge_dst] & ~backward[graph.edge_src]
    read[root[graph.edge_tensor[crossing]]] = True
    read &= np.array([dtype != "resource" for dtype in graph.tensor_dtype], np.bool_)
    read &= graph.persistent_bytes[graph.tensor_op] == 0  # a variable's own memory
    out = np.zeros(graph.num_ops, np.int64)
    np.add.at(out, graph.tensor_op[read], graph.tensor_bytes[read])
    return out
