"""Placed: a program that runs as a placement says, op by op or compiled."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import NONE, XLA
from tfplace.core.graph import OpGraph
from tfplace.core.placement import BY_USE, CRITICAL_PATH, Placement
from tfplace.errors import ApplyError, InputError, PlacementError
from tfplace.execution.actual import ActualPlacement, compare
from tfplace.execution.clusters import Clusters, find_clusters
from tfplace.execution.compilation import CompilationError, is_compiled
from tfplace.execution.devices import map_devices
from tfplace.execution.phases import phase_waits
from tfplace.execution.program import Program
from tfplace.execution.updates import with_updates_last
from tfplace.execution.waits import Waits

MOST_SHAPES = 8
"""Shapes of data for which a step is compiled."""

if TYPE_CHECKING:
    from tfplace.execution.hosts import Hosts
    from tfplace.execution.session import SessionProgram


class Placed:
    """A placed program. Call it with the arguments of the source's step; it returns the results of the step.

    Variables stay on their placed devices until `restore()`. They remain the same Python objects, so models, optimizers
    and checkpoints see every step. If placed programs share variables, the last one placed decides where they are.

    Args:
      graph: the extracted graph.
      program: the program that runs the graph.
      placement: the placement.
      devices: device of the placement -> TensorFlow device; other devices keep their names.
      compile: see `tfplace.apply`.
    """

    def __init__(
        self,
        graph: OpGraph,
        program: Program,
        placement: Placement,
        devices: Mapping[str, str] | None = None,
        *,
        compile: str = NONE,
    ) -> None:
        self.graph = graph
        self._program = program
        if devices is not None and not isinstance(devices, Mapping):
            raise InputError(f"devices={devices!r}", 'a dict such as {"GPU:0": "CPU:0"}')
        self._map = dict(devices or {})
        self._compile = compile
        self._refused: dict[str, str] = {}  # op -> why XLA could not compile it
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()  # of what it was called with
        self.replace(placement)

    @property
    def placement(self) -> Placement:
        """The current placement."""
        return self._placement

    @property
    def devices(self) -> Mapping[str, str]:
        """Op name -> full name of the requested TensorFlow device."""
        return self._devices

    @property
    def clusters(self) -> Clusters | None:
        """Which ops are compiled, and why others are not; None if the program runs op by op."""
        return self._clusters

    @property
    def stands(self) -> bool:
        """Whether it can be called: not restored, and no other placed program has moved its variables since."""
        return self._program.placed and self._program.stands

    def replace(self, placement: Placement, *, compile: str | None = None) -> None:
        """Changes the placement from the next call on, without tracing again.

        In a compiled step, clusters that do not change are not compiled again.

        Args:
          placement: a placement for the same graph.
          compile: how the program runs from then on, see `tfplace.apply`; None keeps the current way.

        Raises:
          PlacementError: the placement is for another graph, or separates ops that share a resource.
          ApplyError: this machine lacks a device of the placement, or the phases contradict the graph.
        """
        placement.check_graph(self.graph)
        _check_bonds(self.graph, placement)
        self._compile = self._compile if compile is None else compile
        used = [name for d, name in enumerate(placement.device_names) if (placement.op_device == d).any()]
        names = map_devices(used, self._map)
        asked = {op: names[device] for op, device in placement.devices.items()}
        devices = asked | {op: device for op, (device, _) in self._program.fixed.items()}
        compiled = is_compiled(self.graph, self._compile, {names[name] for name in used}, placement.compile)
        # Found for a step that runs op by op, these would cut clusters into as many as they have phases.
        of_ops = placement.order in {BY_USE, CRITICAL_PATH} and placement.compile != XLA
        phases = None if compiled and of_ops else placement.phases
        devices_of = [names.get(name, name) for name in placement.device_names]
        waits = phase_waits(self.graph, placement.op_device, phases, devices_of)
        clusters = self._find_clusters(placement.op_device, devices_of, phases, waits) if compiled else None
        if clusters is None:
            waits = with_updates_last(self.graph, placement.op_device, waits)
        self._program.place(devices, waits, None if clusters is None else clusters.clusters)
        self._clusters = clusters
        self._placement, self._names, self._asked, self._devices = placement, names, asked, devices

    def _find_clusters(
        self, op_device: IntArray, devices: Sequence[str], phases: IntArray | None, waits: Waits
    ) -> Clusters | None:
        without = self._refused | {op: why for op, (_, why) in self._program.fixed.items()}
        found = find_clusters(self.graph, op_device, devices, phases=phases, waits=waits, without=without)
        if self._compile == XLA and not found.clusters and not self._refused:
            raise ApplyError(
                f"compile={XLA!r} for {self.graph.name!r}, none of whose ops can be compiled: "
                + ", ".join(f"{count} {why}" for why, count in found.reasons.items()),
                "ops that XLA knows",
                f"Run it op by op: compile={NONE!r}.",
            )
        return found if found.clusters else None

    def restore(self) -> None:
        """Moves the variables back to where they were before any program was placed.

        The program cannot be called until `replace` places it again.
        """
        if self._program.placed:
            self._program.restore()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step.

        Raises:
          ApplyError: the program was restored, or another placed program has moved the variables.
        """
        if not self._program.placed:
            raise ApplyError(
                "a call of a placed program after restore()",
                "a program that is placed",
                "Place it again with .replace(placement), or call the model itself.",
            )
        if self._clusters is not None:
            self._count_shapes(args, kwargs)
        while True:
            try:
                return self._program(*args, **kwargs)
            except CompilationError as refusal:
                self._leave_out(refusal)

    def _count_shapes(self, args: Any, kwargs: Any) -> None:
        """Goes on op by op when data have had many shapes, as XLA compiles a step anew for each."""
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        shapes = tuple(tuple(leaf.shape) for leaf in leaves if hasattr(leaf, "shape"))
        self._program.compiles = shapes not in self._shapes
        self._shapes.add(shapes)
        if len(self._shapes) > MOST_SHAPES:
            warnings.warn(
                f"{self.graph.name} runs op by op from now on: its data had {len(self._shapes)} shapes, and XLA "
                f"compiles it again for each. Pad data to at most {MOST_SHAPES} shapes. Ops that keep a random state "
                "start over.",
                stacklevel=4,
            )
            self._compile = NONE
            self.replace(self._placement)

    def _leave_out(self, refusal: CompilationError) -> None:
        """Goes on without the ops that XLA refuses, or op by op if it does not say which."""
        if refusal.ops <= self._refused.keys():
            warnings.warn(f"{self.graph.name} runs op by op, as XLA refuses it: {refusal.reason}", stacklevel=4)
            self._compile = NONE
        self._refused |= dict.fromkeys(refusal.ops, "refused by XLA")
        self.replace(self._placement)

    def load(self, values: Mapping[str, Any]) -> None:
        """Sets variables, for programs from graph files only.

        Raises:
          ApplyError: no such variable, or the program's variables are Python objects.
        """
        self._session_program().load(values)

    def state(self) -> dict[str, Any]:
        """The values of the variables by op name, for programs from graph files only.

        Raises:
          ApplyError: the program's variables are Python objects.
        """
        return self._session_program().state()

    def _session_program(self) -> SessionProgram:
        from tfplace.execution.session import SessionProgram

        if not isinstance(self._program, SessionProgram):
            raise ApplyError(
                f"{self.graph.name!r}, whose variables are Python objects",
                "a program read from a graph file",
                "Read and assign the model's own variables.",
            )
        return self._program

    def actual(self) -> ActualPlacement:
        """Where each op really ran, at the first call with the current placement.

        Raises:
          ApplyError: the program has not run yet.
        """
        ran = self._program.ran()
        if ran is None:
            raise ApplyError(
                "a placed program that has not run yet",
                "a program that has run at least once",
                "TensorFlow places ops at the first call: call the program, then ask.",
            )
        return compare(
            self.graph,
            self._asked,
            ran,
            names=_shortest_names(self._names),
            fixed={op: why for op, (_, why) in self._program.fixed.items()},
            arguments=self._program.arguments,
            copies=self._program.copies,
            clusters=self._clusters,
        )

    def __repr__(self) -> str:
        state = f"on {', '.join(self._names)}" if self._program.placed else "restored"
        return f"Placed({self.graph.name!r}, {state})"


def apply_placement(
    graph: OpGraph,
    placement: Placement,
    *,
    devices: Mapping[str, str] | None = None,
    compile: str = NONE,
    hosts: Hosts | None = None,
) -> Placed:
    """Makes an extracted graph run as placed; see `tfplace.apply`.

    Raises:
      ApplyError: the graph has no TensorFlow program behind it, or this machine lacks a device, or XLA.
      InputError: no such `compile`.
      PlacementError: the placement is for another graph.
    """
    placement.check_graph(graph)
    if hosts is not None:
        devices = hosts.devices_for(placement.device_names, devices)
    return Placed(graph, _program(graph, hosts), placement, devices, compile=compile)


def _program(graph: OpGraph, hosts: Hosts | None) -> Program:
    from tfplace.extraction.file_source import program_origin
    from tfplace.extraction.function import FunctionOrigin
    from tfplace.extraction.metagraph import GraphOrigin

    origin = program_origin(graph)
    if isinstance(origin, FunctionOrigin):
        if hosts is not None:
            from tfplace.execution.remote import RemoteProgram

            return RemoteProgram(graph, origin.flat, hosts)
        from tfplace.execution.function import FunctionProgram

        return FunctionProgram(graph, origin.flat)
    if hosts is not None:
        raise ApplyError(
            f"cluster={','.join(hosts.addresses)!r} for a graph file",
            "a Keras model or a function",
            "To measure a graph file on a cluster, use `tfplace place --evaluator=measured`.",
        )
    if isinstance(origin, GraphOrigin):
        from tfplace.execution.session import SessionProgram

        return SessionProgram(graph, origin)
    raise ApplyError(
        "a graph without a TensorFlow program: made from plain arrays, or loaded from a file",
        "a graph extracted in this process",
        "tfplace.apply(model, placement, batch) extracts it again; the fingerprint says whether the placement fits.",
    )


def _check_bonds(graph: OpGraph, placement: Placement) -> None:
    first: dict[int, int] = {}
    for v, bond in enumerate(graph.resource.tolist()):
        if bond < 0:
            continue
        u = first.setdefault(bond, v)
        if placement.op_device[u] != placement.op_device[v]:
            a, b = graph.op_names[u], graph.op_names[v]
            raise PlacementError(
                f"{a} on {placement.devices[a]} and {b} on {placement.devices[b]}, which use the same resource",
                "both on one device: TensorFlow would silently move one",
            )


def _shortest_names(names: Mapping[str, str]) -> dict[str, str]:
    """Full TensorFlow device -> the placement's name; the first where two share a device."""
    out: dict[str, str] = {}
    for name, device in names.items():
        out.setdefault(device, name)
    return out
