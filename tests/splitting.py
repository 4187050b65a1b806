"""Split steps written by hand: two slices of a dense layer, as tfplace.transforms names what it makes."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfplace.core.slices import DRAWS, STATISTICS, Difference, Slices
from tfplace.testing import make_graph

DIFFERENCES = (Difference(STATISTICS, ("norm",)), Difference(DRAWS, ("drop/random",)))


def whole():
    """A dense layer and a loss, trained by gradient descent."""
    return make_graph(
        {"x": 8, "net/dense/w": 0, "net/dense/Read": 8, "net/dense/mul": 8, "net/out/v": 0, "net/out/Read": 8}
        | {"net/out/mul": 8, "loss": 4, "gradient_tape/net/out/grad": 8, "gradient_tape/net/dense/grad": 8}
        | {"sgd/set_w": ()},
        [
            *("net/dense/w -> net/dense/Read", "net/dense/Read -> net/dense/mul", "x -> net/dense/mul"),
            *("net/out/v -> net/out/Read", "net/out/Read -> net/out/mul", "net/dense/mul -> net/out/mul"),
            *("net/out/mul -> loss", "loss -> gradient_tape/net/out/grad"),
            "net/out/mul -> gradient_tape/net/out/grad",
            "gradient_tape/net/out/grad -> gradient_tape/net/dense/grad",
            *("net/dense/w -> sgd/set_w", "gradient_tape/net/dense/grad -> sgd/set_w"),
        ],
        types={"sgd/set_w": "AssignSubVariableOp"},
        variables={"net/dense/w": 40, "net/out/v": 20},
    )


def split(differences=DIFFERENCES, sizes=(12, 4)):
    """The same in two slices: the layers and their gradients are copied, gradients are added up."""
    ops, edges = {"x": 8, "net/dense/w": 0, "net/dense/Read": 8, "net/out/v": 0, "net/out/Read": 8}, []
    edges += ["net/dense/w -> net/dense/Read", "net/out/v -> net/out/Read"]
    original = {name: name for name in ops}
    total = "gradient_tape/net/dense/grad"
    for k in range(2):
        s = f"slice{k}/"
        mine = ["net/dense/mul", "net/out/mul", "loss", "gradient_tape/net/out/grad", total]
        ops |= {f"x/slices/{k}": 4} | {s + name: 4 for name in mine}
        original |= {f"x/slices/{k}": "x"} | {s + name: name for name in mine}
        edges += [f"x -> x/slices/{k}", f"x/slices/{k} -> {s}net/dense/mul", f"net/dense/Read -> {s}net/dense/mul"]
        edges += [
            f"net/out/Read -> {s}net/out/mul",
            f"{s}net/dense/mul -> {s}net/out/mul",
            f"{s}net/out/mul -> {s}loss",
        ]
        edges += [f"{s}loss -> {s}gradient_tape/net/out/grad", f"{s}net/out/mul -> {s}gradient_tape/net/out/grad"]
        edges += [f"{s}gradient_tape/net/out/grad -> {s}{total}"]
    ops |= {f"{total}/combined": 8, "sgd/set_w": ()}
    original |= {f"{total}/combined": total, "sgd/set_w": "sgd/set_w"}
    edges += [f"slice{k}/{total} -> {total}/combined" for k in range(2)]
    edges += ["net/dense/w -> sgd/set_w", f"{total}/combined -> sgd/set_w"]
    graph = make_graph(
        ops, edges, types={"sgd/set_w": "AssignSubVariableOp"}, variables={"net/dense/w": 40, "net/out/v": 20}
    )
    slice_of = [int(name[5]) if name.startswith("slice") else -1 for name in ops]
    slices = Slices(sizes, np.array(slice_of, np.int32), tuple(original.values()), ("loss",), differences)
    return dataclasses.replace(graph, slices=slices)
