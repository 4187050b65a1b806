"""Op seconds of a step that XLA compiles: groups of fused ops cost one overhead and the traffic of their ends.

    seconds of a group = executions * (overhead + max(flops / rate, external bytes / memory_bandwidth))

A product or a convolution keeps the overhead of an op, which was measured to be the same on a CPU. A kernel that XLA
made itself costs `KERNEL_OVERHEAD_S` there. On other devices the overhead stays the device's own: a kernel launch. That
is an assumption, as is that XLA's kernels are as fast as TensorFlow's but for `SLOWER_ON_CPU`. What the call of a
compiled program takes counts nowhere, as the call of a step does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.costs import CostTable
from tfplace.core.device import Device
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs, arithmetic_s
from tfplace.cost.flops import NOTHING
from tfplace.cost.fusion import Role, external_bytes, fusion_groups, roles
from tfplace.cost.profile import DeviceProfile, Profile
from tfplace.cost.profiled import BETWEEN, overhead_of, profiled_costs
from tfplace.cost.work import OpWork, op_work

KERNEL_OVERHEAD_S = 0.2e-6
"""Of a kernel that XLA made, on a CPU: an estimate, as so little could not be told from nothing."""

SLOWER_ON_CPU = {
    "Conv2D": 1.25,
    "Conv2DBackpropFilter": 1.33,
    "DepthwiseConv2dNative": 37.0,
    "DepthwiseConv2dNativeBackpropFilter": 11.0,
    "DepthwiseConv2dNativeBackpropInput": 34.0,
    "MaxPool": 1.3,
    "MaxPoolGrad": 1.5,
}
"""Op type -> seconds of XLA's kernel over those of TensorFlow's, on one core of a CPU; measured by
research/benchmarks/compiled_costs.py, as are others that are alike."""


_LEAST = 0.01
"""Part of their predicted seconds that compiled ops keep where a measured step leaves them less."""


class FusedStep:
    """The kernels of a compiled step.

    Args:
      graph: [V] ops.
      loops: whether loops are compiled, too; see `tfplace.cost.fusion.roles`.

    Attributes:
      graph: [V] ops.
      groups: [V] the kernel of each op; see `fusion_groups`.
      work: [V] what ops do.
      compiled: [V] whether XLA compiles the op.
      computes: [V] whether it is compiled and does something.
      external_bytes: [G] what an execution of a group reads and writes.
      library: [G] whether the group is one op that has a kernel of its own, such as a product.
      trips: [G] executions of each group; 0 for those that compute nothing.
    """

    def __init__(self, graph: OpGraph, *, loops: bool = False) -> None:
        self.graph = graph
        self.work: OpWork = op_work(graph)
        role = roles(graph, self.work, loops=loops)
        self.groups: IntArray = fusion_groups(graph, role)
        self.compiled: BoolArray = role != Role.NOT_COMPILED
        self.computes: BoolArray = self.compiled & np.array([kind != NOTHING for kind in self.work.kind])
        self.external_bytes: FloatArray = external_bytes(graph, self.groups, self.work)
        self.library: BoolArray = np.zeros(len(self.external_bytes), bool)
        self.library[self.groups[self.computes & (role == Role.ALONE)]] = True
        self.trips: FloatArray = np.zeros(len(self.external_bytes))
        self.trips[self.groups[self.computes]] = graph.trips[self.computes]

    def total(self, of_ops: FloatArray) -> FloatArray:
        """[G] the sum over each group's ops that compute of [V] numbers."""
        here = self.computes
        return np.bincount(self.groups[here], of_ops[here], len(self.trips)).astype(np.float64)

    def spread(self, group_s: FloatArray, op_s: FloatArray) -> FloatArray:
        """[V] seconds in which the ops of each group share its own by what they take op by op, and are never more.

        Args:
          group_s: [G] seconds of all executions of each group.
          op_s: [V] seconds op by op, which those that are not compiled keep.
        """
        apart = self.total(op_s)
        share = np.minimum(np.divide(group_s, apart, out=np.zeros_like(apart), where=apart > 0), 1.0)
        return np.where(self.computes, op_s * np.append(share, 0.0)[self.groups], np.where(self.compiled, 0.0, op_s))

    def words(self, provenance: Sequence[str]) -> list[str]:
        """[V] where numbers came from, such as "analytic:fused elementwise" for an op in a kernel of several.

        Args:
          provenance: [V] where those of the ops by themselves came from.
        """
        several = self.total(np.ones(len(self.groups))) > 1
        fused = self.computes & np.append(several, False)[self.groups]
        return [_word(text, fused[v]) if self.compiled[v] else text for v, text in enumerate(provenance)]


def compiled_costs(step: FusedStep, topology: Topology, profile: Profile | None = None) -> CostTable:
    """Seconds of every op on every device in a step that XLA compiles.

    Ops that XLA does not compile keep what they take op by op. Of those that it does, only groups cost something by
    themselves (`tfplace.cost.fusion`), and their ops share that. Where a profile has measured the device, kernels take
    the measured seconds; those of a group are multiplied by its external bytes over those of its ops by themselves. If
    the compiled step itself was measured, all are scaled by one factor so that they add up to it.

    Args:
      step: [V] ops, and which are one kernel.
      topology: [D] devices.
      profile: what was measured op by op.

    Raises:
      InputError: as `Profile.check`.
    """
    graph = step.graph
    plain = analytic_costs(graph, topology) if profile is None else profiled_costs(graph, topology, profile)
    columns = []
    for d, device in enumerate(topology.devices):
        measured = None if profile is None else profile.of(device)
        op_s = plain.compute_s[:, d]
        if measured is None:
            group_s = _analytic_s(step, device)
        else:
            group_s = _profiled_s(step, device, op_s, overhead_of(graph, measured))
        seconds = step.spread(group_s, op_s)
        seconds = seconds * _slower(step) if device.type == "CPU" else seconds
        columns.append(seconds if measured is None else _as_measured(step, seconds, measured))
    return CostTable(np.stack(columns, axis=1), tuple(step.words(plain.provenance)))


def _as_measured(step: FusedStep, seconds: FloatArray, measured: DeviceProfile) -> FloatArray:
    """[V] seconds whose compiled part adds up to what the compiled step took, if that was measured."""
    known = measured.step(step.graph.fingerprint)
    compiled_s = float(seconds[step.compiled].sum())
    if known is None or known.compiled_s <= 0 or compiled_s <= 0:
        return seconds
    rest_s = known.compiled_s - known.empty_s - float(seconds[~step.compiled].sum())
    return np.where(step.compiled, seconds * max(rest_s / compiled_s, _LEAST), seconds)


def _slower(step: FusedStep) -> FloatArray:
    """[V] seconds of a compiled op over those that it takes op by op, on a CPU."""
    factor = [SLOWER_ON_CPU.get(op, 1.0) for op in step.graph.op_types]
    return np.where(step.compiled, factor, 1.0)


def _overhead_s(step: FusedStep, device: Device, op_overhead_s: float) -> FloatArray:
    """[G] seconds of overhead of each execution of a group."""
    made = min(KERNEL_OVERHEAD_S, op_overhead_s) if device.type == "CPU" else op_overhead_s
    return np.where(step.library, op_overhead_s, made)


def _analytic_s(step: FusedStep, device: Device) -> FloatArray:
    """[G] seconds of all executions of each group."""
    arithmetic = step.total(arithmetic_s(step.graph, device, step.work))
    memory = step.external_bytes / device.memory_bandwidth
    if device.type != "CPU":
        on_host = step.total(step.graph.host_memory.astype(np.float64)) > 0
        arithmetic, memory = np.where(on_host, 0.0, arithmetic), np.where(on_host, 0.0, memory)
    return step.trips * (_overhead_s(step, device, device.op_overhead_s) + np.maximum(arithmetic, memory))


def _profiled_s(step: FusedStep, device: Device, op_s: FloatArray, overhead_s: float) -> FloatArray:
    """[G] seconds of all executions of each group, of ops that take [V] seconds op by op, the overhead included."""
    graph, own = step.graph, np.arange(step.graph.num_ops, dtype=np.int32)
    kernel_s = step.total(np.maximum(op_s - graph.trips * overhead_s, 0.0))
    apart = step.total(external_bytes(graph, own, step.work))
    part = np.divide(step.external_bytes, apart, out=np.ones_like(apart), where=apart > 0)
    return step.trips * _overhead_s(step, device, overhead_s) + kernel_s * np.minimum(part, 1.0)


def _word(text: str, fused: bool) -> str:
    """Where a compiled op's number came from, on each of the devices that a text of the op by itself names.

    >>> _word("profiled on CPU:0; analytic:elementwise on GPU:0", True)
    'profiled:fused on CPU:0; analytic:fused elementwise on GPU:0'
    """
    how = "fused" if fused else "compiled"
    parts = []
    for part in text.split(BETWEEN):
        said, on, devices = part.partition(" on ")
        source, _, rest = said.partition(":")
        parts.append(f"{source}:{how} {rest}".rstrip() + on + devices)
    return BETWEEN.join(parts)
