"""The evaluator that `--evaluator`, `--workers` and `--cluster` ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from absl import flags

from tfplace.cli.flagset import check_addresses, step_timeout_s
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, SIMULATED
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.registry import EVALUATORS, OBJECTIVES
from tfplace.search.objective import check_objective

if TYPE_CHECKING:
    from tfplace.measurement.backends.backend import Backend


def check_evaluator(fv: flags.FlagValues, topology: Topology | None) -> None:
    """Everything that can be wrong without a model.

    Workers of `--cluster` may have several devices each, so these are counted only when they are asked.

    Raises:
      InputError: flags that do not go together, or a topology without as many devices as there are workers to start.
    """
    check_objective(fv.objective, fv.evaluator)
    if fv.step_timeout is not None:
        step_timeout_s(fv.step_timeout)
        if fv.evaluator != MEASURED:
            raise InputError(f"--step_timeout with --evaluator={fv.evaluator}", f"--evaluator={MEASURED}")
    if not fv.workers and not fv.cluster:
        return
    flag = f"--workers={fv.workers}" if fv.workers else f"--cluster={','.join(fv.cluster)}"
    if fv.evaluator != MEASURED:
        raise InputError(f"{flag} with --evaluator={fv.evaluator}", f"--evaluator={MEASURED}")
    if fv.workers and fv.cluster:
        raise InputError(f"{flag} and --cluster={','.join(fv.cluster)}", "one of the two")
    check_addresses("cluster", fv.cluster)
    if topology is None:
        raise InputError(
            f"{flag} without --topology",
            "a topology of the workers' devices",
            f"Make one with: tfplace calibrate {flag} --output=topology.json",
        )
    devices = len(topology.devices)
    if fv.workers and fv.workers != devices:
        raise InputError(
            f"{flag} with the {devices} devices of topology {topology.name!r}",
            f"--workers={devices}, one for each",
            f"Or a topology of as many: tfplace calibrate {flag} --output=topology.json",
        )


@contextlib.contextmanager
def open_evaluator(fv: flags.FlagValues, problem: Problem, batch: Any = None) -> Iterator[Evaluator]:
    """The evaluator, closed in the end together with what it needed; steps that are measured get the batch.

    Raises:
      InputError: steps of a graph that has no TensorFlow form; before TensorFlow is loaded.
    """
    if fv.evaluator != SIMULATED and problem.graph.origin is None:
        raise InputError(
            f"--evaluator={fv.evaluator} for a graph made from plain arrays or loaded from a file",
            "a model, which TensorFlow can read",
            f"Or --evaluator={SIMULATED}.",
        )
    with contextlib.ExitStack() as stack:
        if fv.evaluator == MEASURED:
            from tfplace.measurement.protocol.measured import MeasuredEvaluator

            backend = _workers(fv)
            if backend is not None:
                stack.callback(backend.close)
            limit_s = None if fv.step_timeout is None else step_timeout_s(fv.step_timeout)
            judge: Evaluator = MeasuredEvaluator(problem, backend, batch=batch, timeout_s=limit_s)
        else:
            make = OBJECTIVES[fv.objective] if fv.evaluator == SIMULATED else EVALUATORS[fv.evaluator]
            judge = make(problem)
        stack.callback(judge.close)
        yield judge


def _workers(fv: flags.FlagValues) -> Backend | None:
    """Those that are asked for; None for this process's devices."""
    from tfplace.measurement.backends.cluster import Cluster

    if fv.cluster:
        return Cluster.connect(fv.cluster)
    return Cluster.start(workers=fv.workers) if fv.workers else None
