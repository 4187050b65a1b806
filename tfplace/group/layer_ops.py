"""The layers that a model's author has named, and the ops of each, as names and dataflow tell them.

Nothing else is needed, so that graphs from files have layers too. Names alone do not do: an optimizer's ops carry the
optimizer's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tfplace.core.arrays import IntArray, freeze
from tfplace.core.buffers import writes_rows, writes_whole
from tfplace.core.graph import OpGraph
from tfplace.group.layer_scopes import Path, Step, by_scope, is_call
from tfplace.group.slots import slots_of

_MOST_OPS = 500
"""What an optimizer makes of a gradient for its own state is a few ops."""


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
    step = Step(graph)
    layer = by_scope(graph, step)
    _adopt_calls(graph, step, layer)
    owner = _owners(graph, step, layer)
    _adopt_users(step, layer, owner)
    _adopt_updates(step, layer)
    owner |= _owners_of_state(graph, step, layer, owner)
    _adopt_users(step, layer, owner)
    _adopt_updates(step, layer)
    return MappingProxyType(_in_order(graph, step, layer))


def _owners(graph: OpGraph, step: Step, layer: Sequence[Path]) -> dict[int, Path]:
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


def _owners_of_state(graph: OpGraph, step: Step, layer: Sequence[Path], owner: Mapping[int, Path]) -> dict[int, Path]:
    """Other variables that the update writes from what one layer alone has: averages of weights, smaller moments."""
    if not step.backward.any():
        return {}
    found: dict[int, set[Path]] = {}
    for v, touched in enumerate(step.touched):
        if writes_whole(graph.op_types[v]) or writes_rows(graph.op_types[v]):
            for variable in touched:
                if variable not in owner:
                    found.setdefault(variable, set()).update(_sources(graph, step, layer, v))
    return {variable: path for variable, paths in found.items() if (path := _common(paths))}


def _sources(graph: OpGraph, step: Step, layer: Sequence[Path], op: int) -> set[Path]:
    """Layers of the nearest ops from which something is made; () for the forward pass, which is no update."""
    paths: set[Path] = set()
    queue, seen = [op], {op}
    while queue and len(seen) < _MOST_OPS:
        for t in graph.inputs[queue.pop()]:
            source = int(graph.tensor_op[t])
            if source in seen or graph.op_types[source] == "Const":
                continue
            seen.add(source)
            if step.forward[source]:
                paths.add(())
            elif layer[source] or step.backward[source]:
                paths.add(layer[source])
            else:
                queue.append(source)
    return paths


def _adopt_calls(graph: OpGraph, step: Step, layer: list[Path]) -> None:
    """Gives the gradients of a function that was called, which have no scope, the layer from which they read most."""
    calls: dict[Path, list[int]] = {}
    for v in np.flatnonzero(step.backward).tolist():
        parts = graph.base_names[v].split("/")
        call = next((i for i, part in enumerate(parts) if is_call(part)), None)
        if not layer[v] and call is not None:
            calls.setdefault(tuple(parts[: call + 1]), []).append(v)
    for ops in calls.values():
        sources = (int(graph.tensor_op[t]) for v in ops for t in graph.inputs[v])
        read = Counter(layer[u] for u in sources if step.forward[u] and graph.op_types[u] != "Const")
        for v in ops:
            layer[v] = read.most_common(1)[0][0] if read else ()


def _adopt_users(step: Step, layer: list[Path], owner: Mapping[int, Path]) -> None:
    """Gives variables the layer that has them, and so what touches none of others and has no layer by its name."""
    for variable, path in owner.items():
        layer[variable] = path
    for v, touched in enumerate(step.touched):
        paths = {owner.get(variable, ()) for variable in touched}
        if not layer[v] and not step.backward[v] and len(paths) == 1:
            layer[v] = paths.pop()


def _adopt_updates(step: Step, layer: list[Path]) -> None:
    """Gives ops of the update, which read no variable, the layer to which all their results go.

    An op of the forward pass stays where it is, though it may be for one layer alone; so do gradients of a loss.
    """
    if not step.backward.any():
        return
    after = step.after(step.backward)
    for v in reversed(range(len(layer))):
        free = not layer[v] and not step.backward[v] and not step.touched[v] and v not in step.homes
        if free and (after[v] or not step.forward[v]):
            layer[v] = _common({layer[reader] for reader in step.readers[v]})


def _common(paths: set[Path]) -> Path:
    """The innermost layer around all; () for none."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    depth = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:depth]


def _in_order(graph: OpGraph, step: Step, layer: Sequence[Path]) -> dict[str, IntArray]:
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
