"""Problem: everything that a placer needs, without TensorFlow."""

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
    """A graph to place on a topology, with costs and rules.

    Attributes:
      graph: the graph of the step.
      topology: the devices and links.
      costs: seconds of each op on each device.
      constraints: the user's rules. `grouping`, `allowed` and `memory_limit` already respect them.
      grouping: ops -> units. A placer chooses one device for each unit.
      allowed: [U, D] whether each unit may be on each device.
      memory_limit: [D] bytes that may be used on each device.
      follows: [V] for a replicable constant the op whose device it follows; for any other op itself.
      compile: how the step runs that `costs` are for: `NONE` (op by op) or `XLA` (compiled).
      other_costs: costs of the step run the other way; None if unknown.

    Raises:
      PlacementError: an array has a wrong shape, an index is out of range, or a memory limit is negative.
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
        """U, the number of units."""
        return self.grouping.num_units

    @property
    def num_devices(self) -> int:
        """D, the number of devices."""
        return len(self.topology.devices)

    @cached_property
    def otherwise(self) -> Problem | None:
        """The problem of this step run the other way: op by op if it is compiled, else compiled; None if unknown."""
        if self.other_costs is None:
            return None
        other = NONE if self.compile == XLA else XLA
        return replace(self, costs=self.other_costs, compile=other, other_costs=self.costs)

    @cached_property
    def unit_seconds(self) -> FloatArray:
        """[U, D] seconds that all ops of each unit take on each device; infinite if the unit may not be there."""
        inside = (self.grouping.unit_of >= 0) & ~self.graph.replicable  # copied constants do not run
        seconds = np.zeros((self.num_units, self.num_devices))
        np.add.at(seconds, self.grouping.unit_of[inside], self.costs.compute_s[inside])
        return freeze(np.where(self.allowed, seconds, np.inf))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of graph, topology, costs and rules. It is the same on every machine and in every process."""
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
          SourceError: the path does not end in ".npz".
        """
        SERVICES["save_archive"](self, path)

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Reads a file that `save` wrote, without TensorFlow. Its graph has no `origin`, so it cannot be run.

        Raises:
          SourceError: no such file, a file of a graph only, or no complete archive that this version can read.
        """
        problem: Problem = SERVICES["load_problem"](path)
        return problem

    def expand(self, unit_device: IntArray) -> IntArray:
        """Converts [U] devices of units to [V] devices of ops.

        Raises:
          PlacementError: a wrong length, a device that does not exist, or one that a unit may not be on.
        """
        return self.spread(self.check(unit_device))

    def check(self, unit_device: IntArray) -> IntArray:
        """Checks devices of units, and returns them as [U] 32-bit integers.

        Raises:
          PlacementError: as for `expand`.
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
        """Converts [B, U] devices of units to the array that evaluators take. Does not check which are allowed.

        Raises:
          PlacementError: a wrong shape, a type other than integers, or a device that does not exist.
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
        """Converts [V] devices of ops to [U] devices of units; the inverse of `expand`."""
        first = [members[0] for members in self.grouping.members]
        return np.asarray(op_device)[first].astype(np.int32)

    def spread(self, unit_device: IntArray) -> IntArray:
        """Like `expand`, but without checks, for the inner loop of a search."""
        units = self.grouping.unit_of[self.follows]
        return np.append(unit_device, 0)[units].astype(np.int32)  # unit -1, a constant that nothing reads: device 0
