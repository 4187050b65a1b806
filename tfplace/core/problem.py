"""Problem: everything a placer needs, and nothing of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray, digest, freeze
from tfplace.core.compilation import NONE, XLA
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.topology import Topology
from tfplace.errors import PlacementError
from tfplace.registry import SERVICES


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """A graph to be placed on a topology.

    Attributes:
      graph: the ops.
      topology: the devices and links.
      costs: op seconds per device.
      constraints: the user's rules (already folded into the fields below).
      grouping: ops -> units; a placer decides one device per unit.
      allowed: [U, D] devices each unit may be on.
      memory_limit: [D] bytes that may be used on each device.
      follows: [V] for a replicable constant the consumer it follows, for any other op itself.
      compile: how the step is run that the costs are of: `NONE` or `XLA`.
      other_costs: those of the step that is run the other way; None where they are unknown.
    """

    graph: OpGraph
    topology: Topology
    costs: CostTable
    constraints: Constraints
    grouping: Grouping
    allowed: BoolArray
    memory_limit: LongArray
    follows: IntArray
    compile: str = NONE
    other_costs: CostTable | None = None

    def __post_init__(self) -> None:
        ops, units, devices = self.graph.num_ops, self.num_units, self.num_devices
        for what, array, shape in (
            ("costs", self.costs.compute_s, (ops, devices)),
            ("other costs", (self.other_costs or self.costs).compute_s, (ops, devices)),
            ("units", self.grouping.unit_of, (ops,)),
            ("allowed", self.allowed, (units, devices)),
            ("memory_limit", self.memory_limit, (devices,)),
            ("follows", self.follows, (ops,)),
        ):
            if array.shape != shape:
                raise PlacementError(f"{what} of shape {array.shape}", f"shape {shape}")
        if ops and not 0 <= self.follows.min() <= self.follows.max() < ops:
            raise PlacementError("a constant that follows an op out of range", f"0..{ops - 1}")
        if np.any(self.memory_limit < 0):
            raise PlacementError(f"a memory limit of {self.memory_limit.min()} bytes", "at least 0")
        for array in (self.allowed, self.memory_limit, self.follows):
            freeze(array)

    def __repr__(self) -> str:
        where = f"{self.num_devices} devices of {self.topology.name!r}"
        return f"Problem({self.graph.name!r}, {self.num_units} units, {where})"

    @property
    def num_units(self) -> int:
        """U."""
        return self.grouping.num_units

    @property
    def num_devices(self) -> int:
        """D."""
        return len(self.topology.devices)

    @cached_property
    def otherwise(self) -> Problem | None:
        """The problem of the same step op by op where it is compiled, compiled where it is not; None if unknown."""
        if self.other_costs is None:
            return None
        other = NONE if self.compile == XLA else XLA
        return replace(self, costs=self.other_costs, compile=other, other_costs=self.costs)

    @cached_property
    def unit_seconds(self) -> FloatArray:
        """[U, D] seconds all ops of each unit take on each device; infinite where the unit may not be."""
        inside = (self.grouping.unit_of >= 0) & ~self.graph.replicable  # copied constants do not run
        seconds = np.zeros((self.num_units, self.num_devices))
        np.add.at(seconds, self.grouping.unit_of[inside], self.costs.compute_s[inside])
        return freeze(np.where(self.allowed, seconds, np.inf))

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the graph, the topology, the costs or the rules change; not with the machine or the process."""
        return digest(
            [
                self.graph.content,
                self.topology.fingerprint,
                self.costs.compute_s,
                self.grouping.unit_of,
                self.allowed,
                self.memory_limit,
                self.follows,
            ]
        )

    def save(self, path: str | Path) -> None:
        """Writes the problem with its graph, topology, costs and rules to a ".npz" file; see `tfplace.io.archive`.

        Raises:
          SourceError: the path ends otherwise.
        """
        SERVICES["save_archive"](self, path)

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """What `save` wrote, without TensorFlow; its graph has no `origin`, so it cannot be run.

        Raises:
          SourceError: no such file, a graph only, or not a whole archive that this version reads.
        """
        problem: Problem = SERVICES["load_problem"](path)
        return problem

    def expand(self, unit_device: IntArray) -> IntArray:
        """[U] devices of units -> [V] devices of ops.

        Raises:
          PlacementError: wrong length, a device that does not exist, or one the unit may not be on.
        """
        return self.spread(self.check(unit_device))

    def check(self, unit_device: IntArray) -> IntArray:
        """[U] the same devices of units, if they are that.

        Raises:
          PlacementError: as of `expand`.
        """
        given = np.asarray(unit_device)
        if given.shape != (self.num_units,):
            what = f", a {type(unit_device).__name__}" if given.dtype == object else ""
            raise PlacementError(
                f"devices of shape {given.shape}{what}", f"one device for each of {self.num_units} units"
            )
        unit_device = self.rows(given[None])[0]
        wrong = np.flatnonzero(~self.allowed[np.arange(self.num_units), unit_device])
        if len(wrong):
            op = self.graph.op_names[self.grouping.members[wrong[0]][0]]
            device = self.topology.devices[unit_device[wrong[0]]].name
            raise PlacementError(f"{op} on {device}", "a device that has its kernel and that the constraints allow")
        return unit_device

    def rows(self, unit_devices: IntArray) -> IntArray:
        """[B, U] the same devices of units as evaluators take them; whether units may be there is not asked.

        Raises:
          PlacementError: another shape, no whole numbers, or a device that does not exist.
        """
        rows = np.asarray(unit_devices)
        if rows.ndim != 2 or rows.shape[1] != self.num_units:
            raise PlacementError(
                f"devices of shape {rows.shape}", f"rows of one device for each of {self.num_units} units"
            )
        if rows.size and rows.dtype.kind not in "iu":
            raise PlacementError(f"devices of type {rows.dtype}", "whole numbers")
        if rows.size and (rows.min() < 0 or rows.max() >= self.num_devices):
            row, unit = np.argwhere((rows < 0) | (rows >= self.num_devices))[0]
            raise PlacementError(
                f"a device index out of range, {rows[row, unit]} of unit {unit}", f"0..{self.num_devices - 1}"
            )
        return np.ascontiguousarray(rows, np.int32)

    def gather(self, op_device: IntArray) -> IntArray:
        """[V] devices of ops -> [U] devices of units, of which `expand` makes the same devices of ops again."""
        first = [members[0] for members in self.grouping.members]
        return np.asarray(op_device)[first].astype(np.int32)

    def spread(self, unit_device: IntArray) -> IntArray:
        """`expand` without the checks, for the inner loop of a search."""
        units = self.grouping.unit_of[self.follows]
        return np.append(unit_device, 0)[units].astype(np.int32)  # unit -1, a constant that nothing reads: device 0
