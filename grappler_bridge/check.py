"""What Grappler must not be given, tried one by one on TensorFlow 2.21; see docs/reference/grappler_checks.md.

Each was tried in its own process. Some of it ends the process, some raises something unclear, most is quietly taken for
something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tensorflow.python.grappler import cluster as grappler_cluster

from grappler_bridge.cluster import full_name
from grappler_bridge.errors import GrapplerInputError

EXECUTIONS = "_execution_count"
"""Attribute by which Grappler is told how often an op runs in a step; it takes loop bodies to run once otherwise."""

MAX_EXECUTIONS = 2**31 - 1
"""Grappler keeps the count in 32 bits and ends the process when it comes out negative."""

_CALLS = {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case"}
_known_ops: set[str] = set()
_FLATTEN = 'Inline it first: grappler_bridge.optimize.optimize_graph(graph_def, fetches, ["function", "pruning"]).'


def fetched_ops(meta: Any) -> list[str]:
    """Names of the ops a MetaGraphDef's `train_op` collection wants."""
    if "train_op" not in meta.collection_def:
        return []
    return [name.removeprefix("^").partition(":")[0] for name in meta.collection_def["train_op"].node_list.value]


def input_op(text: str) -> str:
    """Name of the op behind an input: of "a:1", "a" or "^a"."""
    return text.removeprefix("^").partition(":")[0]


def check_graph(meta: Any, *, flat: bool = True) -> None:
    """Refuses a MetaGraphDef that Grappler would crash on or misunderstand.

    Args:
      meta: the MetaGraphDef.
      flat: whether calls of functions are refused too: Grappler's cost model does not look into them.

    Raises:
      GrapplerInputError: no fetches, absent fetches, names that occur twice, unknown ops, inputs or functions that are
        not there, calls of functions (whose ops Grappler would not count), or impossible execution counts.
    """
    nodes, functions = meta.graph_def.node, {f.signature.name for f in meta.graph_def.library.function}
    names = {node.name for node in nodes}
    if len(names) != len(nodes):
        seen: set[str] = set()
        twice = next(n.name for n in nodes if n.name in seen or seen.add(n.name))  # type: ignore[func-returns-value]
        raise GrapplerInputError(f"two ops named {twice!r}", "unique op names")
    fetches = fetched_ops(meta)
    absent = [name for name in fetches if name not in names]
    if absent or not fetches:
        raise GrapplerInputError(
            f"fetches {fetches[:3]}, absent {absent[:3]}",
            "names of ops of the graph in the `train_op` collection",
            "Without them Grappler has nothing to run.",
        )
    for node in nodes:
        _check_node(node, names, functions, flat)
    for function in meta.graph_def.library.function:
        _check_types((node.op for node in function.node_def), functions, f"function {function.signature.name!r}")
        for node in function.node_def:
            _check_functions(node, functions)


def check_devices(meta: Any, devices: Collection[str]) -> None:
    """Refuses ops that are on no device of the cluster: Grappler would quietly take its default device.

    Fetched `NoOp`s, which only wait for others, need no device.

    Args:
      meta: the MetaGraphDef.
      devices: full names of the cluster's devices.

    Raises:
      GrapplerInputError: an op without a device, with a malformed one, or with one the cluster lacks.
    """
    fetches = set(fetched_ops(meta))
    known = {name: full_name(name) in devices for name in {node.device for node in meta.graph_def.node} if name}
    for node in meta.graph_def.node:
        if not node.device and node.op == "NoOp" and node.name in fetches:
            continue
        if not known.get(node.device, False):
            raise GrapplerInputError(
                f"op {node.name!r} on device {node.device!r}", f"one of the cluster's devices: {', '.join(devices)}"
            )


def _check_node(node: Any, names: Collection[str], functions: Collection[str], flat: bool) -> None:
    _check_types([node.op], functions, f"op {node.name!r}")
    if flat and (node.op in _CALLS or node.op in functions):
        raise GrapplerInputError(
            f"op {node.name!r}, which calls a function ({node.op})",
            "a flat graph: Grappler counts no called op",
            _FLATTEN,
        )
    for text in node.input:
        if input_op(text) not in names:
            raise GrapplerInputError(f"input {text!r} of op {node.name!r}", "the name of an op of the graph")
    _check_functions(node, functions)
    if EXECUTIONS in node.attr and not 0 <= node.attr[EXECUTIONS].i <= MAX_EXECUTIONS:
        raise GrapplerInputError(
            f"{EXECUTIONS} {node.attr[EXECUTIONS].i} of op {node.name!r}",
            f"0 to {MAX_EXECUTIONS}, as others crash Grappler",
        )


def _check_types(types: Iterable[str], functions: Collection[str], where: str) -> None:
    for kind in types:
        if kind not in functions and not _is_known(kind):
            raise GrapplerInputError(f"{where} of type {kind!r}", "an op type that this TensorFlow has")


def _check_functions(node: Any, functions: Collection[str]) -> None:
    for attr in node.attr.values():
        for function in (attr.func, *attr.list.func):
            if function.name and function.name not in functions:
                raise GrapplerInputError(
                    f"op {node.name!r} of {function.name!r}", "functions that are in the graph's library"
                )


def _is_known(kind: str) -> bool:
    """Whether TensorFlow has an op type; one that it lacked may have come with a library since."""
    if kind not in _known_ops:
        _known_ops.update(grappler_cluster.Cluster(devices=[]).ListAvailableOps())
    return kind in _known_ops
