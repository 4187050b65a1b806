"""A placed step whose clusters XLA compiles, running on a backend."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfplace.core.arrays import IntArray
from tfplace.execution.clusters import find_clusters
from tfplace.execution.compilation import refusal_of
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running

COMPILING_TIMEOUT_S = 600.0
"""Seconds a compiled step may take if nothing else is said: the first compiles."""


def compiled_running(
    program: StepGraph,
    backend: Backend,
    op_device: IntArray,
    devices: Sequence[str],
    refused: dict[str, str],
    *,
    waits: Waits = NO_WAITS,
    phases: IntArray | None = None,
    timeout_s: float | None = None,
) -> Running | None:
    """The step, after a first run that compiles it, with the variables' first values; None if nothing can be compiled.

    Args:
      program: the step.
      backend: whose devices it runs on.
      op_device: [V] device of each op.
      devices: [D] TensorFlow devices.
      refused: ops that XLA refuses -> why; those that it refuses now are added.
      waits: see `StepGraph.place`; with phases those of theirs, see `tfplace.execution.phases.phase_waits`.
      phases: [V] see `Placement.phases`.
      timeout_s: seconds a step may take.

    Raises:
      What `backend.failure_of` understands.
    """
    graph = program.graph
    names = {op: devices[d] for op, d in zip(graph.op_names, op_device.tolist(), strict=True)}
    while True:
        found = find_clusters(graph, op_device, devices, phases=phases, waits=waits, without=refused)
        if not found.clusters:
            return None
        program.place(names, waits, found.clusters)
        running = Running(program, backend, timeout_s or COMPILING_TIMEOUT_S)
        try:
            running()
        except tf.errors.OpError as error:
            running.close()
            refusal = None if program.called is None else refusal_of(error, program.called)
            if refusal is None or refusal.ops <= refused.keys():
                raise
            refused |= dict.fromkeys(refusal.ops, "refused by XLA")
            continue
        running.reset()
        return running
