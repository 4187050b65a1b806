"""A split training step written by hand. Sizes are bytes; op "sliceK/..." is of slice K."""

import dataclasses

import numpy as np

from tfplace.core.slices import Slices
from tfplace.testing.graphs import make_graph

WEIGHTS = (64 * 64, 300, 5)


def step(slices=4, weights=WEIGHTS, one_by_one=False):
    """Each slice reads all weights and makes their gradients; a weight has a momentum, a metric a total."""
    ops, edges, of = {"x": 64}, [], {}
    resource, variables = {}, {}
    for i, size in enumerate(weights):
        ops |= {f"w{i}": 8, f"w{i}/read": size, f"m{i}": 8, f"m{i}/read": size}
        edges += [f"w{i} -> w{i}/read", f"m{i} -> m{i}/read"]
        variables |= {f"w{i}": size, f"m{i}": size}
        resource |= dict.fromkeys((f"w{i}", f"w{i}/read", f"m{i}", f"m{i}/read", f"update{i}"), i)
    ops |= {"total": 8}
    variables["total"] = 4
    resource |= {"total": len(weights), "total/add": len(weights)}
    for k in range(slices):
        ops[f"slice{k}/loss"] = 4
        edges += [f"x -> slice{k}/loss", *(f"w{i}/read -> slice{k}/loss" for i in range(len(weights)))]
        for i, size in enumerate(weights):
            ops[f"slice{k}/gradient{i}"] = size
            edges.append(f"slice{k}/loss -> slice{k}/gradient{i}")
        of |= {name: k for name in ops if name.startswith(f"slice{k}/")}
    ops |= {"loss": 4, "total/add": ()}
    edges += [*(f"slice{k}/loss -> loss" for k in range(slices)), "total -> total/add", "loss -> total/add"]
    for i, size in enumerate(weights):
        terms = [f"slice{k}/gradient{i}" for k in range(slices)]
        for k in range(1, slices - 1) if one_by_one else ():
            ops[f"gradient{i}/to{k}"] = size
            edges += [f"{term} -> gradient{i}/to{k}" for term in terms[:2]]
            terms[:2] = [f"gradient{i}/to{k}"]
        ops |= {f"gradient{i}": size, f"moved{i}": size, f"update{i}": ()}
        edges += [f"{term} -> gradient{i}" for term in terms]
        edges += [f"m{i}/read -> moved{i}", f"gradient{i} -> moved{i}"]
        edges += [f"{name} -> update{i}" for name in (f"w{i}", f"m{i}", f"moved{i}")]
    ops["done"] = 4
    edges += ["loss -> done", *(f"^update{i} -> done" for i in range(len(weights)))]
    trained = [f"w{i}" for i in range(len(weights))]
    types = {"x": "Placeholder"} | {name: "AddN" for name in ops if name.startswith("gradient")}
    types |= {name: "ReadVariableOp" for name in ops if name.endswith("/read")}
    graph = make_graph(ops, edges, types=types, variables=variables, trainable=trained, resource=resource)
    return in_slices(graph, of, (4,) * slices)


def in_slices(graph, of, sizes):
    slice_of = np.array([of.get(name, -1) for name in graph.op_names], np.int32)
    return dataclasses.replace(graph, slices=Slices(sizes, slice_of, graph.op_names))
