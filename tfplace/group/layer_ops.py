"""The layers that a model's author has named, and the ops of each, as names and dataflow tell them.

Nothing else is needed, so that graphs from files have layers too. Names alone do not do: an optimizer's ops carry the
optimizer's name, and Keras 3 counts the scopes of its layers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, freeze
from tfplace.core.buffers import variable_of
from tfplace.core.graph import OpGraph
from tfplace.group.layers import is_backward, name_parts
from tfplace.group.slots import readers_of, slots_of

Path = tuple[str, ...]

_COUNTED = re.compile(r"^(.+)_\d+$")
_CALL = re.compile(r"^(Stateful)?PartitionedCall(_\d+)?$")
_BODY = re.compile(r"^_\d+$")
_ARGUMENTS = "Func"
"""What inlining a function puts before its ops' names: the call's name, and a number if that of a loop or branch, whose
ops repeat the scope around it; before the names of what passes its arguments, a word."""


def layers_of(graph: OpGraph) -> Mapping[str, IntArray]:
    """Layer name -> its ops, ascending; layers in the order of the forward pass, an outer one before those within.

    A layer is a Keras layer or, where a function has none, a name scope or module: "encoder", and within it
    "encoder/dense". An outer layer has the ops of those within. The model itself is none. To a layer belong

    - ops in its scope, gradients too;
    - its variables, those of the optimizer for them, and all ops that read or write only those;
    - ops after the backward pass, or beside it, whose results go to this layer alone: the arithmetic of an optimizer,
      sums of gradients.

    Ops of a loss, metrics, the batch, and what several layers share are in none. Calls of one layer are one layer.

    Args:
      graph: the ops.
    """
    step = _Step(graph)
    layer = _by_scope(graph, step)
    owner = _owners(graph, step, layer)
    for variable, path in owner.items():
        layer[variable] = path
    for v, touched in enumerate(step.touched):
        paths = {owner.get(variable, ()) for variable in touched}
        if not layer[v] and not step.backward[v] and len(paths) == 1:
            layer[v] = paths.pop()
    _adopt_updates(graph, step, layer)
    return MappingProxyType(_in_order(graph, step, layer))


class _Step:
    """What is known of a graph's ops before any is in a layer.

    Attributes:
      backward: [V] named as one that computes gradients.
      forward: [V] the backward pass depends on it, or it follows on such ops without that pass, as a last layer may;
        without one, every op. Variables are left out.
      touched: [V] variables that each op reads or writes, by the op that makes the handle.
      scopes: [V] scope of each op, part by part.
      homes: variable, by that op -> the scope that its own name tells.
    """

    def __init__(self, graph: OpGraph) -> None:
        handle = variable_of(graph)
        self.homes: dict[int, Path] = {v.op: tuple(v.name.split("/")[:-1]) for v in graph.variables}
        self.backward = np.array([is_backward(name) for name in graph.op_names])
        self.touched = [
            sorted({int(handle[t]) for t in tensors if int(handle[t]) in self.homes}) for tensors in graph.inputs
        ]
        self.names = [_parts(name) for name in graph.op_names]
        self.scopes = [name[:-1] for name in self.names]
        own = np.ones(graph.num_ops, np.bool_)
        own[list(self.homes)] = False
        self.forward = own
        if self.backward.any():
            own &= ~_after(graph, self.backward)
            self.forward = own & _after(graph, own & _reaching(graph, self.backward))

    def reads(self) -> list[tuple[int, Path, Path]]:
        """(variable, scope of the op, scope that the variable's name tells) of forward ops that use variables."""
        return [
            (u, self.scopes[v], self.homes[u]) for v in np.flatnonzero(self.forward).tolist() for u in self.touched[v]
        ]


def _parts(name: str) -> Path:
    """An op's name, part by part, as if no function had been inlined."""
    parts = name_parts(name)
    if parts[0] == _ARGUMENTS:
        parts = parts[1:]
    else:
        parts = parts[max((i + 1 for i, part in enumerate(parts[:-1]) if _BODY.match(part)), default=0) :]
    parts = [part for part in parts if not _CALL.match(part)] or parts[-1:]
    again = [i for i in range(1, len(parts) - 2) if parts[i : i + 2] == parts[:2]]  # gradients of a loop's ops
    return tuple(parts[again[-1] :] if again else parts)


def _reaching(graph: OpGraph, ends: BoolArray) -> BoolArray:
    """[V] ops on whose results one of `ends` depends, and those themselves."""
    data = np.flatnonzero((graph.edge_tensor >= 0) & ~graph.edge_back)
    order = data[np.argsort(-graph.edge_dst[data], kind="stable")]
    reach = ends.tolist()
    for src, dst in zip(graph.edge_src[order].tolist(), graph.edge_dst[order].tolist(), strict=True):
        if reach[dst]:
            reach[src] = True
    return np.array(reach, np.bool_)


def _after(graph: OpGraph, begins: BoolArray) -> BoolArray:
    """[V] ops that depend on one of `begins`, and those themselves."""
    after = begins.tolist()
    for v, readers in enumerate(readers_of(graph)):
        if after[v]:
            for reader in readers:
                after[reader] = True
    return np.array(after, np.bool_)


# ---- scopes that are layers ------------------------------------------------------------------------------------------


def _by_scope(graph: OpGraph, step: _Step) -> list[Path]:
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


def _counts_scopes(step: _Step) -> bool:
    """Whether scopes are layers' names with a number: Keras 3 opens a layer's scope once before it calls the layer."""
    counted = plain = 0
    for _, scope, home in step.reads():
        if home and home[-1] in scope:
            plain += 1
        elif home:
            counted += any(_uncounted(part) == home[-1] for part in scope)
    return counted > plain


def _uncounted(part: str) -> str:
    """A part of a scope without its number; "" if it has none."""
    found = _COUNTED.match(part)
    return found[1] if found else ""


def _counted_layers(step: _Step) -> dict[Path, Path]:
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


def _scope_layers(step: _Step) -> dict[Path, Path]:
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


def _tops(graph: OpGraph, step: _Step, layer: Sequence[Path]) -> set[str]:
    """Outermost scopes that are layers: what comes after all that is trained is the loss."""
    forward = np.flatnonzero(step.forward).tolist()
    every = {layer[v][0] for v in forward if layer[v]}
    trained = {v.op for v in graph.variables if v.trainable} or set(step.homes)
    found = {layer[v][0] for v in forward if layer[v] and trained & {*step.touched[v]}}
    if not step.backward.any() or not found:
        return every
    before = _reaching(graph, np.array([bool(path) and path[0] in found for path in layer]) & step.forward)
    return found | {layer[v][0] for v in forward if layer[v] and before[v]}


# ---- ops that names do not tell --------------------------------------------------------------------------------------


def _owners(graph: OpGraph, step: _Step, layer: Sequence[Path]) -> dict[int, Path]:
    """Variable -> the layer that has it; an optimizer's slot is where its weight is.

    Of several layers that use a variable it is the one that its name tells, else the first.
    """
    users: dict[int, list[Path]] = {}
    for v, touched in enumerate(step.touched):
        if layer[v] and not step.backward[v]:
            for variable in touched:
                users.setdefault(variable, []).append(layer[v])
    out = {
        variable: next((path for path in paths if path[-1:] == step.homes[variable][-1:]), paths[0])
        for variable, paths in users.items()
    }
    slots = slots_of(graph)
    return out | {slot: out[weight] for slot, weight in slots.items() if weight in out and slot not in out}


def _adopt_updates(graph: OpGraph, step: _Step, layer: list[Path]) -> None:
    """Gives ops of the update, which read no variable, the layer to which all their results go.

    An op of the forward pass stays where it is, though it may be for one layer alone; so do gradients of a loss.
    """
    if not step.backward.any():
        return
    after = _after(graph, step.backward)
    readers = readers_of(graph)
    for v in reversed(range(graph.num_ops)):
        free = not layer[v] and not step.backward[v] and not step.touched[v] and v not in step.homes
        if free and (after[v] or not step.forward[v]):
            paths = {layer[reader] for reader in readers[v]}
            layer[v] = _common(paths)


def _common(paths: set[Path]) -> Path:
    """The innermost layer around all; () for none."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    depth = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:depth]


def _in_order(graph: OpGraph, step: _Step, layer: Sequence[Path]) -> dict[str, IntArray]:
    """A layer's place is that of the last forward op to which something comes from outside.

    What a layer does beside its input may start at once, such as drawing the mask of a dropout; what is left of a loop
    may come when its result is read already.
    """
    ops: dict[Path, list[int]] = {}
    place: dict[Path, int] = {}
    for v, path in enumerate(layer):
        sources = [int(graph.tensor_op[t]) for t in graph.inputs[v]] if step.forward[v] else []
        given = [layer[u] for u in sources if step.forward[u] and graph.op_types[u] != "Const"]
        for depth in range(1, len(path) + 1):
            outer = path[:depth]
            ops.setdefault(outer, []).append(v)
            if any(source[:depth] != outer for source in given):
                place[outer] = v
    order = sorted(ops, key=lambda path: [place.get(path[: depth + 1], 0) for depth in range(len(path))])
    return {"/".join(path): freeze(np.array(ops[path], np.int32)) for path in order}
