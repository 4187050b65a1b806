"""The passes of a training step, told by the names that TensorFlow gives gradients and by what depends on them."""

from __future__ import annotations

import re

import numpy as np

from tfplace.core.arrays import BoolArray, freeze
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept

BACKWARD = re.compile(r"(?:^|(?<=/))(gradient_tape|gradients?)/")
"""Not only at the front: within a function that was inlined, names begin with that of its call."""

REWRITTEN = re.compile(r"^(ConstantFolding|ArithmeticOptimizer)/")

_KEPT = re.compile(r"/accumulator(_|/|$)")
"""Lists in which a loop keeps what its gradient will need: named for the gradient, they come before the loop."""


def is_backward(name: str) -> bool:
    """Whether an op of this name computes gradients."""
    return BACKWARD.search(REWRITTEN.sub("", name)) is not None


@kept
def backward_ops(graph: OpGraph) -> BoolArray:
    """[V] ops with TensorFlow's names of gradients or the attribute "backward", and what is computed again for them."""
    marked = np.array([bool(attributes.get("backward")) for attributes in graph.op_attrs], np.bool_)
    known = {name: is_backward(name) and not _KEPT.search(name) for name in set(graph.base_names)}  # slices share them
    named = np.array([known[name] for name in graph.base_names], np.bool_)
    again = np.zeros(graph.num_ops, np.bool_) if graph.recomputes is None else graph.recomputes >= 0
    return freeze(marked | named | again)


def ahead_of_backward(graph: OpGraph) -> BoolArray:
    """[V] ops that the backward pass depends on, and that are not late themselves."""
    late, backward = late_ops(graph), backward_ops(graph)
    leads = backward.copy()
    edges = np.flatnonzero(~graph.edge_back)
    edges = edges[np.argsort(-graph.edge_src[edges], kind="stable")]
    for u, v in zip(graph.edge_src[edges].tolist(), graph.edge_dst[edges].tolist(), strict=True):
        leads[u] |= leads[v]
    return leads & ~late


@kept
def late_ops(graph: OpGraph) -> BoolArray:
    """[V] ops of the backward pass and all that depends on them, such as updates of variables."""
    late = backward_ops(graph).copy()
    edges = np.flatnonzero(~graph.edge_back)
    edges = edges[np.argsort(graph.edge_dst[edges], kind="stable")]
    for u, v in zip(graph.edge_src[edges].tolist(), graph.edge_dst[edges].tolist(), strict=True):
        late[v] |= late[u]
    return freeze(late)
