"""Expert: contiguous blocks of layers, as a person would lay a model over several devices."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.flow import flow
from tfplace.group.layers import is_backward, layers, unit_edges
from tfplace.placers.base import Study, compute_devices, settle, unit_persistent_bytes

_FULL = 0.9


class Expert:
    """Layers in the order of the forward pass, cut into one block per accelerator so that the slowest is quickest.

    A layer is what a name scope says it is. Backward ops carry the scope of their layer inside their own; ops of
    variables and optimizers join the layer whose variable or gradient they touch. Where names tell nothing, layers are
    chunks of units in the order in which an unlimited machine would start them.

    A block's time is its compute and the transfers over its two borders, so cuts fall where little crosses.

    Papers leave their human experts' placements unspecified but for sketches; this is the common denominator: balanced
    compute, contiguous layers, gradients and variables beside their layer, and no block that overfills its device.
    """

    citation = (
        "The human expert's placement of A. Mirhoseini et al.: Device Placement Optimization with Reinforcement "
        "Learning. ICML 2017, section 4.2, generalised from its sketches."
    )

    def place(self, study: Study) -> IntArray:
        """Cuts once; needs no evaluation."""
        problem = study.problem
        devices = compute_devices(problem)
        layer = layers(problem, len(devices), devices)
        seconds, size_bytes = _layer_seconds(problem, layer, devices), _layer_bytes(problem, layer)
        block = _cut(seconds, _crossing_seconds(problem, layer), size_bytes, problem.memory_limit[devices])
        return settle(problem, devices[block[layer]])


def _layer_seconds(problem: Problem, layer: IntArray, devices: IntArray) -> FloatArray:
    """[L, K] seconds of each layer on each device; units that cannot be there take nothing."""
    seconds = problem.unit_seconds[:, devices]
    out = np.zeros((int(layer.max()) + 1, len(devices)))
    np.add.at(out, layer, np.where(np.isfinite(seconds), seconds, 0.0))
    return out


def _crossing_seconds(problem: Problem, layer: IntArray) -> FloatArray:
    """[L + 1] seconds of the transfers between the layers before and from each border on, forward and backward."""
    src, dst, seconds = unit_edges(problem)
    ends = np.sort(np.stack([layer[src], layer[dst]]), axis=0)
    steps = np.zeros(int(layer.max()) + 2)
    np.add.at(steps, ends[0] + 1, seconds)
    np.add.at(steps, ends[1] + 1, -seconds)
    crossing: FloatArray = np.maximum(np.cumsum(steps), 0.0)
    return crossing


def _layer_bytes(problem: Problem, layer: IntArray) -> FloatArray:
    """[L] bytes a layer is taken to need at once: its variables and every tensor that its backward pass reads."""
    graph, unit_of = problem.graph, problem.grouping.unit_of
    out: FloatArray = np.bincount(layer, unit_persistent_bytes(problem), int(layer.max()) + 1).astype(np.float64)
    backward = np.array([is_backward(name) for name in graph.op_names])
    kept = np.zeros(graph.num_tensors, bool)
    edges = flow(problem)
    rows = (edges.tensor >= 0) & backward[edges.dst] & ~backward[edges.src]
    kept[edges.tensor[rows]] = True
    tensors = np.flatnonzero(kept)
    np.add.at(out, layer[unit_of[graph.tensor_op[tensors]]], graph.tensor_bytes[tensors])
    return out


def _cut(seconds: FloatArray, crossing: FloatArray, size_bytes: FloatArray, limit: LongArray) -> IntArray:
    """[L] the block of each layer: contiguous blocks whose largest time is least (dynamic programming).

    A block over 90 % of its device's memory counts as slower than any that fits, the more so the more it is over.

    Args:
      seconds: [L, K] of each layer on each device.
      crossing: [L + 1] seconds of the transfers over each border.
      size_bytes: [L].
      limit: [K] bytes.
    """
    count, blocks = seconds.shape
    time = np.concatenate([np.zeros((1, blocks)), np.cumsum(seconds, axis=0)])
    size = np.concatenate([[0.0], np.cumsum(size_bytes)])
    borders = crossing[None, :] + crossing[:, None]
    np.fill_diagonal(borders, 0.0)  # an empty block
    worst = float(seconds.sum()) + 1.0
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    cuts = np.zeros((blocks, count + 1), np.int64)
    for k in range(blocks):
        over = np.maximum((size[None, :] - size[:, None]) / (_FULL * limit[k]) - 1.0, 0.0)
        cost = time[None, :, k] - time[:, None, k] + borders + worst * over
        reach = np.maximum(best[:, None], cost)
        reach[np.tril_indices(count + 1, -1)] = np.inf
        cuts[k] = reach.argmin(axis=0)
        best = reach.min(axis=0)
    block = np.zeros(count, np.int32)
    end = count
    for k in reversed(range(blocks)):
        begin = int(cuts[k, end])
        block[begin:end] = k
        end = begin
    return block
