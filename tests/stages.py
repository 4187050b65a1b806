"""A split training step written by hand: layers in a row, with gradients, their sums, momentum and updates."""

import dataclasses

import numpy as np

from tfplace.core.slices import Slices
from tfplace.testing import make_graph

MB = 2**20


def training_step(slices, weights, activations=MB, clipped=False):
    """A loss behind layers `net/layer0` to ...; each op of slice k is called "slice{k}/..." as tfplace names it.

    Args:
      slices: K.
      weights: bytes of each layer's weight.
      activations: bytes that each layer gives the next one, for each slice.
      clipped: whether updates wait for the norm of all gradients.
    """
    ops, edges, variables, resource, types, original = {"x": 8, "y": 8}, [], {}, {}, {}, {}
    layers = range(len(weights))

    def add(name, size, *reads, stem=None):
        ops[name] = size
        original[name] = stem or name
        edges.extend(f"{read} -> {name}" for read in reads)

    for i, size in enumerate(weights):
        add(f"net/layer{i}/w", 8)
        add(f"net/layer{i}/Read", size, f"net/layer{i}/w")
        add(f"sgd/m{i}", 8)
        variables |= {f"net/layer{i}/w": size, f"sgd/m{i}": size}
        resource |= {f"net/layer{i}/w": 2 * i, f"net/layer{i}/Read": 2 * i, f"sgd/m{i}": 2 * i + 1}
    forward = {k: [f"slice{k}/net/layer{i}/MatMul" for i in layers] for k in range(slices)}
    for k in range(slices):
        add(f"slice{k}/labels", 8, "y", stem="labels")  # early in the graph, read late
        for i in layers:
            before = forward[k][i - 1] if i else "x"
            add(forward[k][i], activations, f"net/layer{i}/Read", before, stem=f"net/layer{i}/MatMul")
        add(f"slice{k}/loss", 4, forward[k][-1], f"slice{k}/labels", stem="loss")
        error = "gradient_tape/loss/error"
        add(f"slice{k}/{error}", activations, forward[k][-1], f"slice{k}/labels", stem=error)
    for i in layers[::-1]:
        scope = f"gradient_tape/net/layer{i}"
        for k in range(slices):
            after = (
                f"slice{k}/gradient_tape/net/layer{i + 1}/dx"
                if i + 1 < len(weights)
                else f"slice{k}/gradient_tape/loss/error"
            )
            if i:
                add(f"slice{k}/{scope}/dx", activations, after, f"net/layer{i}/Read", stem=f"{scope}/dx")
            add(f"slice{k}/{scope}/dw", weights[i], after, forward[k][i - 1] if i else "x", stem=f"{scope}/dw")
        add(f"{scope}/dw/combined", weights[i], *(f"slice{k}/{scope}/dw" for k in range(slices)), stem=f"{scope}/dw")
    if clipped:
        for i in layers:
            add(f"sgd/square{i}", 4, f"gradient_tape/net/layer{i}/dw/combined")
        add("sgd/norm", 4, *(f"sgd/square{i}" for i in layers))
    for i, size in enumerate(weights):
        add(f"sgd/mul{i}", size, f"gradient_tape/net/layer{i}/dw/combined", *(["sgd/norm"] if clipped else []))
        add(f"sgd/set_m{i}", (), f"sgd/m{i}", f"sgd/mul{i}")
        add(f"sgd/ReadM{i}", size, f"sgd/m{i}", f"^sgd/set_m{i}")
        add(f"sgd/set_w{i}", (), f"net/layer{i}/w", f"sgd/ReadM{i}")
        types |= {f"sgd/set_m{i}": "AssignVariableOp", f"sgd/set_w{i}": "AssignSubVariableOp"}
        types |= {f"net/layer{i}/Read": "ReadVariableOp", f"sgd/ReadM{i}": "ReadVariableOp"}
        resource |= {f"sgd/set_m{i}": 2 * i + 1, f"sgd/ReadM{i}": 2 * i + 1, f"sgd/set_w{i}": 2 * i}
    trainable = [name for name in variables if name.startswith("net")]
    graph = make_graph(ops, edges, variables=variables, trainable=trainable, resource=resource, types=types)
    slice_of = [int(name[5]) if name.startswith("slice") else -1 for name in graph.op_names]
    names = tuple(original.get(name, name) for name in graph.op_names)
    return dataclasses.replace(graph, slices=Slices((4,) * slices, np.array(slice_of, np.int32), names))


def layer_of(name):
    """The number in the name of an op that belongs to a layer, or None."""
    digits = name.removeprefix(name.partition("/")[0] if name.startswith("slice") else "")
    found = [c for c in digits if c.isdecimal()]
    return int(found[0]) if found else None
