"""What goes with each variable of a split step."""

import dataclasses

import numpy as np

from tfplace.core.slices import Slices
from tfplace.group.owners import weights_of_ops
from tfplace.testing.graphs import make_graph

KB = 1024


def clipped_step():
    """Two weights whose gradients, sums of two slices', are scaled by the norm of both before they are applied."""
    sizes = {0: 8 * KB, 1: 2 * KB}
    before = {f"w{i}{part}": n for i, n in sizes.items() for part, n in (("", 8), ("/read", n))}
    gradients = {f"slice{k}/gradient{i}": n for i, n in sizes.items() for k in range(2)}
    sums = {f"w{i}{part}": n for i, n in sizes.items() for part, n in (("/total", n), ("/square", 4))}
    after = {f"w{i}{part}": n for i, n in sizes.items() for part, n in (("/scaled", n), ("/update", ()))}
    edges = []
    for i in sizes:
        edges += [f"w{i} -> w{i}/read", f"w{i}/total -> w{i}/square", f"w{i}/square -> norm"]
        edges += [f"w{i}/total -> w{i}/scaled", f"norm -> w{i}/scaled"]
        edges += [f"w{i}/scaled -> w{i}/update", f"w{i} -> w{i}/update"]
        for k in range(2):
            edges += [f"w{i}/read -> slice{k}/gradient{i}", f"slice{k}/gradient{i} -> w{i}/total"]
    ops = before | gradients | sums | {"norm": 4} | after
    variables = {f"w{i}": n for i, n in sizes.items()}
    resource = {f"w{i}{part}": i for i in sizes for part in ("", "/read", "/update")}
    of = {name: int(name[len("slice")]) for name in gradients}
    graph = make_graph(ops, edges, variables=variables, resource=resource)
    slice_of = np.array([of.get(name, -1) for name in graph.op_names], np.int32)
    return dataclasses.replace(graph, slices=Slices((4, 4), slice_of, graph.op_names))


def test_updates_sums_and_squares_of_a_gradient_go_with_its_variable():
    graph = clipped_step()
    weight_of = dict(zip(graph.op_names, weights_of_ops(graph).tolist(), strict=True))
    for i in range(2):
        parts = {weight_of[f"w{i}{part}"] for part in ("", "/read", "/total", "/square", "/scaled", "/update")}
        assert parts == {graph.index[f"w{i}"]}


def test_what_all_variables_need_goes_with_one_and_what_slices_have_with_none():
    graph = clipped_step()
    weight_of = weights_of_ops(graph)
    assert weight_of[graph.index["norm"]] >= 0
    assert (weight_of[graph.slices.slice_of >= 0] == -1).all()
