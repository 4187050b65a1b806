"""Seconds of a few steps of a placed program on the devices at hand, after which all is as it was."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.compilation import AUTO
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.errors import InputError
from tfplace.execution.placed import apply_placement
from tfplace.extraction.batch import as_arguments, as_specs, made_up
from tfplace.extraction.function import FunctionOrigin
from tfplace.extraction.keras_model import float_type

WARMUP = 2
"""Steps that do not count: the first compiles, or builds what runs."""


def median_step_s(placement: Placement, batch: Any, steps: int, devices: Mapping[str, str] | None = None) -> float:
    """Median seconds of a step. Variables get back the values and the devices that they had.

    Args:
      placement: that knows its problem, of a graph extracted in this process.
      batch: what a step is given, as in `tfplace.extract`; of a graph file its placeholders' values by name. Values
        are made up for specs; see `made_up`.
      steps: that count.
      devices: as in `tfplace.apply`.

    Raises:
      ApplyError: this machine lacks a device, or the graph has no TensorFlow program.
      InputError: the placement was loaded from a file, or the batch has a spec of an open shape.
      SourceError: the batch has what is no array or tensor.
    """
    if placement.problem is None:
        raise InputError(
            "a placement that was loaded from a file", "a placement made in this process, which has its graph"
        )
    graph = placement.problem.graph
    arguments = _arguments(graph, batch)
    placed = apply_placement(graph, placement, devices=devices, compile=AUTO)
    before = [(variable, variable.numpy()) for variable in getattr(graph.origin, "variables", dict)().values()]
    took = []
    try:
        for _ in range(WARMUP + steps):
            began = time.perf_counter()
            for leaf in tf.nest.flatten(placed(*arguments), expand_composites=True):
                if isinstance(leaf, tf.Tensor) and leaf.shape.rank == 0:
                    leaf.numpy()  # devices may still be at work
            took.append(time.perf_counter() - began)
    finally:
        placed.restore()
        for variable, value in before:
            variable.assign(value)
    return statistics.median(took[WARMUP:])


def _arguments(graph: OpGraph, batch: Any) -> tuple[Any, ...]:
    """What the placed program is called with, its arrays as tensors of the types that were traced."""
    origin = graph.origin
    if not isinstance(origin, FunctionOrigin):
        return (batch,)
    if origin.model is None:
        arguments, float_dtype = as_arguments(batch), None
    else:
        arguments = (tuple(batch) if isinstance(batch, list) else batch,)
        float_dtype = float_type(origin.model)
    rng = np.random.default_rng(0)

    def value(leaf: Any, spec: Any) -> Any:
        if isinstance(leaf, tf.TensorSpec):
            if not leaf.shape.is_fully_defined():
                raise InputError(f"the spec {leaf} in a batch to measure", "a spec with a known shape, or an array")
            leaf = made_up(leaf.dtype, leaf.shape.as_list(), rng)
        return tf.cast(leaf, spec.dtype) if isinstance(spec, tf.TensorSpec) else leaf

    found: tuple[Any, ...] = tf.nest.map_structure(value, arguments, as_specs(arguments, float_dtype=float_dtype))
    return found
