"""Constant folding that keeps every result to the bit."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import tensorflow as tf

from grappler_bridge.item import TensorProperties, infer_properties
from tfplace.extraction.nodes import parse_input

_REGROUPED = {"Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "BiasAdd"}
"""Of (a + x) + b Grappler makes (a + b) + x, in which the inner op has its name and another value."""

_REDUCTIONS = {"Sum", "Mean", "Prod", "Max", "Min", "Any", "All"}

_FILLED = {"OnesLike", "ZerosLike", "Fill"}
"""What Grappler makes constants of as soon as it knows their shapes; one value stands for all."""

_KNOWN = {"Const", "Shape", "ShapeN", "Size", "Rank", *_FILLED}
"""Whose values shape inference may tell."""

_LARGE_BYTES = 4 << 20


def too_large_to_fold(graph_def: Any) -> list[str]:
    """Names of ops that "constfold" is not to evaluate, lest the graph grow by gigabytes.

    Grappler makes no constant that is much larger than what the op reads, but takes what is filled with one value, such
    as ones in the shape of attention scores, for as large as it looks. Combined with a mask that is a constant of all
    its values, and a graph of 2 GiB cannot be handed over at all.

    Args:
      graph_def: a flat graph.

    Raises:
      GrapplerInputError: as `grappler_bridge.item.infer_properties`, as is the next.
      GrapplerError: Grappler gave up.
    """
    readers: dict[str, list[Any]] = defaultdict(list)
    left = {}
    for node in graph_def.node:
        reads = {parse_input(text)[0] for text in node.input if not text.startswith("^")}
        left[node.name] = len(reads)
        for name in reads:
            readers[name].append(node)
    known = [node for node in graph_def.node if node.op in _KNOWN]
    filled = {node.name for node in known if node.op in _FILLED}
    combined = []
    while known:
        name = known.pop().name
        for reader in readers[name]:
            left[reader.name] -= 1
            if reader.op in _KNOWN:
                continue
            if name in filled:
                filled.add(reader.name)
            if not left[reader.name]:
                known.append(reader)
                if reader.name in filled:
                    combined.append(reader.name)
    if not combined:
        return []
    outputs = infer_properties(graph_def, combined)
    return [name for name in combined if max(map(_bytes, outputs.get(name, [])), default=0) > _LARGE_BYTES]


def _bytes(tensor: TensorProperties) -> int:
    """0 if the shape is not known."""
    if tensor.shape is None or min(tensor.shape, default=0) < 0:
        return 0
    return int(math.prod(tensor.shape) * tensor.dtype.size)


def take_exact_constants(graph_def: Any, folded: Any) -> None:
    """Takes from a constant-folded graph what leaves results as they were, in place.

    Grappler's pass also rewrites: it turns a division by a constant into a multiplication by its rounded reciprocal,
    for one, and regroups sums and products. Taken are ops it evaluated (all they read is constant), sizes and other
    whole numbers that no regrouping made, the constant axes of reductions, and reductions over no axis. Shape inference
    needs these.

    Args:
      graph_def: the graph.
      folded: the same graph after Grappler's "constfold".
    """
    before = {node.name: node for node in graph_def.node}
    after = {node.name: node for node in folded.node}

    def alone(name: str) -> bool | None:
        """`exact`, where what the op reads does not matter; else None."""
        node, new = before.get(name), after.get(name)
        if node is not None and node.op == "Const":
            return True
        if new is not None and new.op != "Const":
            return False
        if new is not None and _is_whole(new) and (node is None or node.op not in _REGROUPED):
            return True
        return None if node is not None else False  # a constant that a rewrite made up

    known: dict[str, bool] = {}

    def exact(name: str) -> bool:
        """Whether the folded graph has the op as a constant with the very value it computes."""
        stack, asked = [name], set()
        while stack:  # a chain of ops may be longer than Python's calls may nest
            top = stack[-1]
            if top not in known and (found := alone(top)) is not None:
                known[top] = found
            if top in known:
                stack.pop()
                continue
            # Evaluated, or gone because all its readers were; constants of another origin have nothing they read.
            reads = [parse_input(text)[0] for text in before[top].input if not text.startswith("^")]
            if top in asked:
                known[top] = bool(reads) and all(known.get(read, False) for read in reads)
            asked.add(top)
            stack += [read for read in reads if read not in known and read not in asked]
        return known[name]

    own = set(before)

    def usable(name: str) -> bool:
        """Whether the op is there, or is a constant that can be added with all that anchors it in its loop."""
        name = parse_input(name)[0]
        if name not in own:
            if not exact(name) or not all(map(usable, after[name].input)):
                return False
            own.add(name)
            graph_def.node.add().CopyFrom(after[name])
        return True

    for node in before.values():
        new = after.get(node.name)
        if new is None or node.op == "Const":
            continue
        if new.op == "Const":
            if exact(node.name) and all(map(usable, new.input)):
                node.CopyFrom(new)
        elif (
            node.op in _REDUCTIONS
            and new.op == node.op
            and exact(axes := parse_input(new.input[1])[0])
            and usable(axes)
        ):
            node.input[1] = new.input[1]
        elif node.op in _REDUCTIONS and new.op == "Identity" and new.input[0] == node.input[0]:
            # Over no axis at all: the constant axes, which the identity would still wait for, are not needed.
            controls = [text for text in node.input if text.startswith("^")]
            node.CopyFrom(new)
            del node.input[1:]
            node.input.extend(controls)


def _is_whole(node: Any) -> bool:
    dtype = tf.dtypes.as_dtype(node.attr["dtype"].type)
    return bool(dtype.is_integer or dtype.is_bool)
