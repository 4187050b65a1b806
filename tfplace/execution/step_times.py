"""Seconds of a few steps of a placed program on the devices at hand, after which all is as it was."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfplace.core.placement import Placement
from tfplace.errors import InputError
from tfplace.execution.placed import apply_placement

WARMUP = 2
"""Steps that do not count: the first compiles, or builds what runs."""


def median_step_s(placement: Placement, batch: Any, steps: int, devices: Mapping[str, str] | None = None) -> float:
    """Median seconds of a step. Variables get back the values and the devices that they had.

    Args:
      placement: that knows its problem, of a graph extracted in this process.
      batch: what a step is given.
      steps: that count.
      devices: as in `tfplace.apply`.

    Raises:
      ApplyError: this machine lacks a device, or the graph has no TensorFlow program.
      InputError: the placement was loaded from a file.
    """
    if placement.problem is None:
        raise InputError("a placement that was loaded from a file", "one made in this process, which has its graph")
    graph = placement.problem.graph
    data = tf.nest.map_structure(tf.convert_to_tensor, batch)
    placed = apply_placement(graph, placement, devices=devices, compile=placement.compile)
    before = [(variable, variable.numpy()) for variable in getattr(graph.origin, "variables", dict)().values()]
    took = []
    try:
        for _ in range(WARMUP + steps):
            began = time.perf_counter()
            for leaf in tf.nest.flatten(placed(data), expand_composites=True):
                if isinstance(leaf, tf.Tensor) and leaf.shape.rank == 0:
                    leaf.numpy()  # devices may still be at work
            took.append(time.perf_counter() - began)
    finally:
        placed.restore()
        for variable, value in before:
            variable.assign(value)
    return statistics.median(took[WARMUP:])
