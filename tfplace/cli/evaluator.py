"""The evaluator that `--evaluator`, `--workers` and `--cluster` ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfplace.cli.checks import check_addresses, step_timeout_s
from tfplace.cli.flags import PlaceFlags
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, SIMULATED
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.registry import EVALUATORS, OBJECTIVES

if TYPE_CHECKING:
    from tfplace.measurement.backends.backend import Backend


def check_evaluator(flags: PlaceFlags, topology: Topology | None) -> None:
    """Everything that can be wrong without a model.

    Workers of `--cluster` may have several devices each, so these are counted only when they are asked.

    Raises:
      InputError: flags that do not go together, or a topology without as many devices as there are workers to start.
    """
    if flags.step_timeout is not None:
        step_timeout_s(flags.step_timeout)
        if flags.evaluator != MEASURED:
            raise InputError(f"--step_timeout with --evaluator={flags.evaluator}", f"--evaluator={MEASURED}")
    if not flags.workers and not flags.cluster:
        return
    flag = f"--workers={flags.workers}" if flags.workers else f"--cluster={','.join(flags.cluster)}"
    if flags.evaluator != MEASURED:
        raise InputError(f"{flag} with --evaluator={flags.evaluator}", f"--evaluator={MEASURED}")
    if flags.workers and flags.cluster:
        raise InputError(f"{flag} and --cluster={','.join(flags.cluster)}", "one of the two")
    check_addresses("cluster", flags.cluster)
    if topology is None:
        raise InputError(
            f"{flag} without --topology",
            "a topology of the workers' devices",
            f"Make one with: tfplace calibrate {flag} --output=topology.json",
        )
    devices = len(topology.devices)
    if flags.workers and flags.workers != devices:
        raise InputError(
            f"{flag} with the {devices} devices of topology {topology.name!r}",
            f"--workers={devices}, one for each",
            f"Or a topology of as many: tfplace calibrate {flag} --output=topology.json",
        )
    check_addresses("cluster", flags.cluster, reached=True)


@contextlib.contextmanager
def open_evaluator(flags: PlaceFlags, problem: Problem, batch: Any = None) -> Iterator[Evaluator]:
    """The evaluator, closed in the end together with what it needed; steps that are measured get the batch.

    Raises:
      InputError: steps of a graph that has no TensorFlow form; before TensorFlow is loaded.
    """
    if flags.evaluator != SIMULATED and problem.graph.origin is None:
        raise InputError(
            f"--evaluator={flags.evaluator} for a graph made from plain arrays or loaded from a file",
            "a model, which TensorFlow can read",
            f"Or --evaluator={SIMULATED}.",
        )
    if flags.evaluator != SIMULATED:
        load_tensorflow(gpus=flags.measures_here)
    with contextlib.ExitStack() as stack:
        if flags.evaluator == MEASURED:
            from tfplace.measurement.protocol.measured import MeasuredEvaluator

            backend = _workers(flags)
            if backend is not None:
                stack.callback(backend.close)
            limit_s = None if flags.step_timeout is None else step_timeout_s(flags.step_timeout)
            judge: Evaluator = MeasuredEvaluator(
                problem, backend, batch=batch, timeout_s=limit_s, compile=flags.compile
            )
        else:
            make = OBJECTIVES[flags.objective] if flags.evaluator == SIMULATED else EVALUATORS[str(flags.evaluator)]
            judge = make(problem)
        stack.callback(judge.close)
        yield judge


def _workers(flags: PlaceFlags) -> Backend | None:
    """Those that are asked for; None for this process's devices."""
    from tfplace.measurement.backends.cluster import Cluster

    if flags.cluster:
        return Cluster.connect(flags.cluster)
    return Cluster.start(workers=flags.workers) if flags.workers else None
