"""Step times of placements by running them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import AUTO, NONE, XLA
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, Failure, Samples, StepCost, bare, failed
from tfplace.core.timeline import Timeline
from tfplace.errors import ApplyError, InputError, PlacementError
from tfplace.execution.compilation import can_compile, is_compiled
from tfplace.execution.devices import match_devices
from tfplace.execution.updates import with_updates_last
from tfplace.execution.waits import NO_WAITS
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.backends.chain import chained, refuse_control_flow, schedule
from tfplace.measurement.backends.compiled import compiled_running
from tfplace.measurement.backends.local import ChainedLogicalDevices, LocalDevices
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running, empty_step_s
from tfplace.measurement.backends.stepstats import measured_timeline
from tfplace.measurement.protocol.interference import watch_backend
from tfplace.measurement.protocol.sampling import REPEATS, TOLERANCE, WARMUP, SplitHalf, split_half, take_samples
from tfplace.simulation.evaluate import Simulator

_ATTEMPTS = 3
"""Times a reference that ran, or should, is started before giving up."""


class MeasuredEvaluator(Evaluator):
    """Measures placements of one problem by running their training step.

    Each evaluation runs the placement in turns with a reference placement (see
    `tfplace.measurement.protocol.sampling`), both from the variables' first values. `StepCost.step_s` is the ratio of
    the two medians times the reference's median in the first evaluation: seconds of this machine as it was then, so
    that a machine that drifts does not favor what was measured at a good time. The seconds as they were are in
    `StepCost.samples`.

    A step's seconds run from the request to the last op's end, and include the way to the devices and back: see
    `empty_step_s`, which is part of both sides of a ratio.

    A placement that fails costs one evaluation: its cost says why, and the devices are repaired for the next.

    Args:
      problem: what is placed.
      backend: where steps run; by default this process's devices. It is closed with the evaluator only if made here.
      batch: what a step is given; see `step_inputs`.
      reference: the placement measured beside each: "single" for everything on the fastest device, [U] devices, or None
        for none, which saves half of the time and leaves the machine's drift in the results.
      warmup: turns dropped.
      repeats: turns that count.
      timeout_s: seconds a step may take, the first with the building of its graphs; by default the backend's.
      devices: topology's device -> device of the backend; by default those of the same names, else in the same order.
      tolerance: share of a core that others may use during a step that counts; see `Interference.share`.
      compile: how steps run, those of the reference too; see `tfplace.apply`.

    Attributes:
      taken: samples of every placement that ran.
      scale_s: the reference's median in the first evaluation; None before it. May be set to that of another evaluator,
        so that both tell seconds of one scale.

    Raises:
      ApplyError: the step cannot run by itself, or the backend lacks a device, or XLA.
      InputError: no such `compile`, or one that the backend cannot do.
    """

    source = MEASURED
    batch_limit = 1

    def __init__(
        self,
        problem: Problem,
        backend: Backend | None = None,
        *,
        batch: Any = None,
        reference: str | ArrayLike | None = "single",
        warmup: int = WARMUP,
        repeats: int = REPEATS,
        timeout_s: float | None = None,
        devices: Mapping[str, str] | None = None,
        tolerance: float = TOLERANCE,
        compile: str = NONE,
    ) -> None:
        self.problem = problem
        self.taken: list[Samples] = []
        self._owned = backend is None
        self.backend = backend if backend is not None else LocalDevices()
        types = [device.type for device in problem.topology.devices]
        self.device_names = match_devices(problem.topology.device_names, types, self.backend.devices, devices)
        self._protocol: dict[str, Any] = {"warmup": warmup, "repeats": repeats, "tolerance": tolerance}
        self._timeout_s = timeout_s
        self._simulator = self._chaining_order()
        self._compiled = is_compiled(problem.graph, compile, self.device_names)
        if self._simulator is not None and compile == AUTO:
            self._compiled = False
        if self._compiled and self._simulator is not None:
            raise InputError(f"compile={compile!r} on {self.backend!r}, which runs op by op", f"compile={NONE!r}")
        self._refused: dict[str, str] = {}  # op -> why XLA could not compile it
        self._program = StepGraph(problem.graph, batch)
        self._reference_units = self._units(reference)
        self._reference_program = self._program.twin() if self._reference_units is not None else None
        self._reference: Running | None = None

    def __repr__(self) -> str:
        return f"MeasuredEvaluator({self.problem.graph.name!r} on {self.backend!r})"

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The measured cost of a step with unit u on device `unit_device[u]`, [U] indices.

        Raises:
          PlacementError: a wrong length or an index out of range.
          ApplyError: the reference does not run.
        """
        return self._cost(unit_device, compiled=self._compiled)

    @property
    def compile(self) -> str:
        """See `Evaluator.compile`."""
        return XLA if self._compiled else NONE

    def otherwise(self, unit_device: ArrayLike) -> StepCost | None:
        """See `Evaluator.otherwise`; None on a backend or devices where nothing is compiled.

        Raises:
          PlacementError, ApplyError: as of a call.
        """
        if self._simulator is not None or not can_compile(self.device_names):
            return None
        return self._cost(unit_device, compiled=not self._compiled)

    def close(self) -> None:
        """Ends the reference's session, and the backend if it was made here."""
        self._end_reference()
        if self._owned:
            self.backend.close()

    def _cost(self, unit_device: ArrayLike, *, compiled: bool) -> StepCost:
        units = self._checked(unit_device)
        reference = self._running_reference()
        try:
            samples = self._measure(units, reference, compiled)
        except Exception as error:
            return failed(self._failure(error), self.problem.memory_limit, self.source)
        self.taken.append(samples)
        return bare(self._step_s(samples), self.problem.memory_limit, self.source, samples=samples)

    @property
    def agreement(self) -> SplitHalf:
        """How well the measurements so far agree with themselves.

        Raises:
          InputError: nothing was measured yet.
        """
        return split_half(self.taken)

    def step_stats(self, unit_device: ArrayLike) -> Any:
        """The `RunMetadata` of one fully traced step under a placement, after `warmup` others.

        Tracing slows a step down (1.6 to 1.8 times where it was looked at): op times are good, the step's is not.

        Raises:
          PlacementError: a wrong length or an index out of range.
          ApplyError: the placement cannot be run.
        """
        units = self._checked(unit_device)
        try:
            with contextlib.closing(self._running(self._program, units, self._compiled)) as run:
                for _ in range(self._protocol["warmup"]):
                    run()
                return run.traced()
        except Exception as error:
            failure = self._failure(error)
            raise ApplyError(f"a placement that failed ({failure})", "a placement that runs") from error

    def timeline(self, unit_device: ArrayLike) -> Timeline:
        """When each op ran and each tensor moved in one traced step under a placement.

        Raises:
          PlacementError, ApplyError: as `step_stats`.
        """
        problem, names = self.problem, self.problem.topology.device_names
        metadata = self.step_stats(unit_device)
        op_device = problem.expand(self._checked(unit_device)).tolist()
        placement = {op: names[d] for op, d in zip(problem.graph.op_names, op_device, strict=True)}
        devices = dict(zip(names, self.device_names, strict=True))
        return measured_timeline(metadata, problem.graph, names, placement, devices=devices)

    def empty_step_s(self, device: int = 0) -> float:
        """Median seconds of a step that does nothing on a device; see `backends.running.empty_step_s`."""
        return empty_step_s(self.backend, self.device_names[device])

    # ---- placements ----------------------------------------------------------------------------------------------

    def _checked(self, unit_device: ArrayLike) -> IntArray:
        units = np.asarray(unit_device, np.int32)
        shape = (self.problem.num_units,)
        if units.shape != shape:
            raise PlacementError(f"devices of shape {units.shape}", f"shape {shape}")
        if units.size and (units.min() < 0 or units.max() >= self.problem.num_devices):
            raise PlacementError("a device index out of range", f"0..{self.problem.num_devices - 1}")
        return units

    def _units(self, reference: str | ArrayLike | None) -> IntArray | None:
        if reference is None:
            return None
        if isinstance(reference, str):
            if reference != "single":
                raise PlacementError(f"reference {reference!r}", '"single", [U] device indices, or None')
            return fastest_single(self.problem)
        return self._checked(reference)

    def _chaining_order(self) -> Simulator | None:
        if not isinstance(self.backend, ChainedLogicalDevices):
            return None
        refuse_control_flow(self.problem.graph)
        return Simulator(self.problem)

    def _running(self, program: StepGraph, units: IntArray, compiled: bool) -> Running:
        op_device = self.problem.spread(units)
        names = [self.device_names[d] for d in op_device.tolist()]
        order = self._simulator
        waits = NO_WAITS if order is None else chained(schedule(order.timeline(op_device)))
        devices = dict(zip(self.problem.graph.op_names, names, strict=True))
        if compiled:
            running = compiled_running(
                program,
                self.backend,
                op_device,
                self.device_names,
                self._refused,
                waits=waits,
                timeout_s=self._timeout_s,
            )
            if running is not None:
                return running
        program.place(devices, with_updates_last(self.problem.graph, op_device, waits) if order is None else waits)
        return Running(program, self.backend, self._timeout_s)

    # ---- measuring -----------------------------------------------------------------------------------------------

    def _measure(self, units: IntArray, reference: Running | None, compiled: bool) -> Samples:
        with contextlib.closing(self._running(self._program, units, compiled)) as candidate:
            if reference is not None:
                reference.reset()
            return take_samples(candidate, reference, watch_backend(self.backend), **self._protocol)

    def _step_s(self, samples: Samples) -> float:
        if samples.ratio is None:
            return samples.median_s
        if self.scale_s is None:
            self.scale_s = float(np.median(samples.reference_s))
        return samples.ratio * self.scale_s

    def _running_reference(self) -> Running | None:
        """The reference, started (again) if need be."""
        if self._reference is not None or self._reference_units is None or self._reference_program is None:
            return self._reference
        for _ in range(_ATTEMPTS):
            try:
                self._reference = self._running(self._reference_program, self._reference_units, self._compiled)
                self._reference()
                return self._reference
            except Exception as error:
                failure = self._failure(error)
        raise ApplyError(
            f"a reference placement that failed ({failure})",
            "a reference placement that runs",
            "Set another with reference=[a device for each unit], or none with reference=None.",
        )

    def _failure(self, error: Exception) -> Failure:
        """What the error says of the placement; the devices are repaired. Raises it if it says nothing of it."""
        failure = self.backend.failure_of(error)
        if failure is None:
            raise error
        self._end_reference()
        self.backend.repair()
        return failure

    def _end_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
            self._reference = None


def fastest_single(problem: Problem) -> IntArray:
    """[U] everything on the device with the least compute seconds; what may not be there where it is fastest."""
    device = int(problem.costs.compute_s.sum(axis=0).argmin())
    fastest = problem.unit_seconds.argmin(axis=1)
    chosen: IntArray = np.where(problem.allowed[:, device], device, fastest).astype(np.int32)
    return chosen
