"""Scopes that are layers: Keras layers, name scopes and modules, by the names of ops and variables.

Keras 3 counts the scopes of its layers, and functions that were inlined leave their own names in those of their ops.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tfplace.core.arrays import BoolArray
from tfplace.core.buffers import variable_of
from tfplace.core.graph import OpGraph
from tfplace.core.passes import is_backward
from tfplace.group.layers import name_parts
from tfplace.group.slots import readers_of

Path = tuple[str, ...]
"""A layer's name, or a scope, part by part from the outside in."""

_COUNTED = re.compile(r"^(.+)_\d+$")
_CALL = re.compile(r"^(Func|(Stateful)?PartitionedCall(_\d+)?)$")
"""Names of calls that were inlined, and of what passes their arguments."""

_NUMBER = re.compile(r"^_\d+$")
"""What inlining puts between the name of a loop or branch and those of its ops, and at the end of names of its own."""

_PASSED = re.compile(r"^(?!(\w+/)?gradients/)(?!gradient_tape/).*[^/]/gradient_tape/.*/_\d+$")
"""What passes a gradient into a branch of the optimizer is named after the gradient, but is no part of its pass."""

_CAPTURED = "/resource"
"""The end of what TensorFlow calls the handle of a variable; a file may have no other name of the variable."""

_FIRST = re.compile(r"_1$")


class Step:
    """What is known of a graph's ops before any is in a layer.

    Attributes:
      backward: [V] named as one that computes gradients.
      forward: [V] the backward pass depends on it, or it follows on such ops without that pass, as a last layer may;
        without one, every op. Variables are left out.
      touched: [V] variables that each op reads or writes, by the op that makes the handle.
      scopes: [V] scope of each op, part by part.
      homes: variable, by that op -> the scope that its own name tells, () if it has no name of its own.
      readers: [V] ops that read a tensor of each op.
    """

    def __init__(self, graph: OpGraph) -> None:
        handle = variable_of(graph)
        self.homes: dict[int, Path] = {
            v.op: () if v.name.endswith(_CAPTURED) else tuple(v.name.split("/")[:-1]) for v in graph.variables
        }
        self.readers = readers_of(graph)
        names = {*graph.base_names}  # slices share them
        backward = {name: is_backward(name) and not _PASSED.search(name) for name in names}
        self.backward = np.array([backward[name] for name in graph.base_names], np.bool_)
        self.touched = [
            sorted({int(handle[t]) for t in tensors if int(handle[t]) in self.homes}) for tensors in graph.inputs
        ]
        parts = {name: _parts(name) for name in names}
        self.names = [parts[name] for name in graph.base_names]
        self.scopes = [name[:-1] for name in self.names]
        own = np.ones(graph.num_ops, np.bool_)
        own[list(self.homes)] = False
        self.forward = own
        if self.backward.any():
            own &= ~self.after(self.backward)
            self.forward = own & self.after(own & _reaching(graph, self.backward))

    def reads(self) -> list[tuple[int, Path, Path]]:
        """(variable, scope of the op, scope that the variable's name tells) of forward ops that use variables."""
        return [
            (u, self.scopes[v], self.homes[u]) for v in np.flatnonzero(self.forward).tolist() for u in self.touched[v]
        ]

    def after(self, begins: BoolArray) -> BoolArray:
        """[V] ops that depend on one of `begins`, and those themselves."""
        after = begins.tolist()
        for v, readers in enumerate(self.readers):
            if after[v]:
                for reader in readers:
                    after[reader] = True
        return np.array(after, np.bool_)


def is_call(part: str) -> bool:
    """Whether a part of a name is that of a function that was inlined there."""
    return _CALL.match(part) is not None


def _parts(name: str) -> Path:
    """An op's name, part by part, as if no function had been inlined."""
    parts = [part for part in name_parts(name) if not is_call(part)] or [name]
    if _NUMBER.match(parts[-1]) and len(parts) > 1:  # what passes values into and out of a loop or call
        parts = parts[:-1]
    out: list[str] = []
    for i, part in enumerate(parts):
        if _NUMBER.match(part) and i + 1 < len(parts):
            out = out[: _repeated(out, parts[i + 1 :])]
        else:
            out.append(part)
    again = [i for i in range(1, len(out) - 2) if out[i : i + 2] == out[:2]]  # gradients of a loop's ops
    return tuple(out[again[-1] :] if again else out)


def _repeated(before: list[str], behind: list[str]) -> int:
    """Where the loop's scope begins that its body's ops repeat, such as ["while"] in ["lstm", "while", "body"]."""
    for begin in range(len(before) - 1):
        scope = before[begin:-1]
        if scope == behind[: len(scope)]:
            return begin
    return len(before)


def _reaching(graph: OpGraph, ends: BoolArray) -> BoolArray:
    """[V] ops on whose results one of `ends` depends, and those themselves."""
    data = np.flatnonzero((graph.edge_tensor >= 0) & ~graph.edge_back)
    order = data[np.argsort(-graph.edge_dst[data], kind="stable")]
    reach = ends.tolist()
    for src, dst in zip(graph.edge_src[order].tolist(), graph.edge_dst[order].tolist(), strict=True):
        if reach[dst]:
            reach[src] = True
    return np.array(reach, np.bool_)


# ---- scopes that are layers ------------------------------------------------------------------------------------------


def by_scope(graph: OpGraph, step: Step) -> list[Path]:
    """[V] the layer in whose scope each op is, () for none."""
    known = _counted_layers(step) if _counts_scopes(step) else _scope_layers(step)
    layer = [_inside(scope, known) for scope in step.scopes]
    tops = _tops(graph, step, layer)
    held = {layer[v][0] for v in np.flatnonzero(step.forward).tolist() if layer[v] and step.touched[v]} & tops
    whole = held or tops
    model = next(iter(whole)) if len(whole) == 1 else None
    if not any(len(path) > 1 and path[0] == model for path in layer):
        model = None
    out = [path if path and path[0] in tops else () for path in layer]
    return [path[1:] if path and path[0] == model else path for path in out]


def _inside(scope: Path, known: Mapping[Path, Path]) -> Path:
    """The layer of the innermost scope that is known; gradients have more of their own within."""
    for depth in range(len(scope), 0, -1):
        if scope[:depth] in known:
            return known[scope[:depth]]
    return ()


def _counts_scopes(step: Step) -> bool:
    """Whether scopes are layers' names with a number: Keras 3 opens a layer's scope once before it calls the layer.

    Where variables have no names, a first call's number tells, if the name without it is not there.
    """
    counted = plain = 0
    for _, scope, home in step.reads():
        if home and home[-1] in scope:
            plain += 1
        elif home:
            counted += any(_uncounted(part) == home[-1] for part in scope)
    if counted or plain:
        return counted > plain
    taken, ops = _prefixes(step.names), set(step.names)
    for outer in _prefixes([scope[:-1] for _, scope, _ in step.reads()]) - ops:  # the last is that of what reads
        first = _FIRST.search(outer[-1]) and (*outer[:-1], _uncounted(outer[-1])) not in taken
        counted, plain = counted + bool(first), plain + (not first)
    return counted > plain


def _uncounted(part: str) -> str:
    """A part of a scope without its number; "" if it has none."""
    found = _COUNTED.match(part)
    return found[1] if found else ""


def _counted_layers(step: Step) -> dict[Path, Path]:
    """Scope -> layer where scopes are counted.

    Other scopes get numbers too where the name itself is taken, such as "Cast_1" beside "Cast". That of a layer is
    taken by nothing that is left. Scopes without numbers are within a layer, or around all of them.
    """
    taken, ops = _prefixes(step.names), set(step.names)
    variables = {part for home in step.homes.values() for part in home}

    def is_layer(outer: Path, part: str) -> bool:
        name = _uncounted(part)
        if not name or (*outer, f"{name}_0") in taken:  # TensorFlow counts from 1, people from 0
            return False
        return name in variables or (*outer, name) not in taken or is_layer(outer, name)

    known: dict[Path, Path] = {}
    for v in np.flatnonzero(step.forward).tolist():
        path: Path = ()
        within = False
        for depth, part in enumerate(step.scopes[v], 1):
            scope = step.scopes[v][:depth]
            if scope not in ops and is_layer(scope[:-1], part):
                path, within = (*path, _uncounted(part)), True
            elif scope not in ops and not within:
                path = (*path, part)
            known[scope] = path
    return known


def _scope_layers(step: Step) -> dict[Path, Path]:
    """Scope -> layer where scopes are layers' names.

    Within a layer that has variables of its own, only scopes with variables are layers; the others are its functions.
    """
    ops = set(step.names)
    owners = {_home_scope(scope, home, ops) for _, scope, home in step.reads()}
    weighted = _prefixes(owners)
    known: dict[Path, Path] = {}
    for v in np.flatnonzero(step.forward).tolist():
        path: Path = ()
        for depth in range(1, len(step.scopes[v]) + 1):
            scope = step.scopes[v][:depth]
            outer = scope[:-1]
            holds = not owners or not outer or scope in weighted or (outer in weighted and outer not in owners)
            if scope not in ops and path == outer and holds:
                path = scope
            known[scope] = path
    return known


def _home_scope(scope: Path, home: Path, ops: set[Path]) -> Path:
    """The scope of the layer that has the variable which is used in `scope`."""
    for name in reversed(home):
        if name in scope:
            return scope[: len(scope) - scope[::-1].index(name)]
    while scope in ops:
        scope = scope[:-1]
    return scope


def _prefixes(paths: set[Path] | Sequence[Path]) -> set[Path]:
    return {path[:depth] for path in paths for depth in range(1, len(path) + 1)}


def _tops(graph: OpGraph, step: Step, layer: Sequence[Path]) -> set[str]:
    """Outermost scopes that are layers: what comes after all that is trained is the loss."""
    forward = np.flatnonzero(step.forward).tolist()
    every = {layer[v][0] for v in forward if layer[v]}
    trained = {v.op for v in graph.variables if v.trainable} or set(step.homes)
    found = {layer[v][0] for v in forward if layer[v] and trained & {*step.touched[v]}}
    if not step.backward.any() or not found:
        return every
    before = _reaching(graph, np.array([bool(path) and path[0] in found for path in layer]) & step.forward)
    return found | {layer[v][0] for v in forward if layer[v] and before[v]}
