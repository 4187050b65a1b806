"""The order of a model's forward pass among its units, with their backward ops attached."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, freeze
from tfplace.core.kept import kept
from tfplace.core.passes import backward_ops
from tfplace.core.problem import Problem
from tfplace.group.flow import flow, mean_transfer_s
from tfplace.group.merge import renumber

FORWARD, BACKWARD, AFTER = range(3)


def forward_blocks(problem: Problem) -> tuple[IntArray, IntArray]:
    """Groups of units, and an acyclic order of them in which a pipeline may be cut.

    As in J. Tarnawski et al. 2020, section 5.3 and its appendix, with what their implementation does besides:

    - Only edges between forward ops say what comes first; a backward op goes where its unit's forward ops go.
    - A unit without forward ops gets a place in the order by mirror image: a backward edge from u to v, where u or v is
      in such a unit, means that v's unit comes before u's.
    - Units that must come both before and after one another are one block.

    Departures: backward ops are those with the attribute "backward" or with TensorFlow's names of gradients, and ops
    after those, such as optimizers', order nothing; a unit of such ops alone joins the neighbor it shares the
    heaviest edge with.

    Returns:
      [U] block of each unit, numbered by first unit; and [E, 2] pairs of blocks, the first of which comes before the
      second.
    """
    part = passes_of(problem)
    edges = flow(problem)
    src, dst = problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst]
    leads = np.zeros((problem.num_units, 3), np.bool_)
    inside = problem.grouping.unit_of >= 0
    leads[problem.grouping.unit_of[inside], part[inside]] = True
    home = _adopted(leads, src, dst, mean_transfer_s(problem, edges))
    both = np.stack([part[edges.src], part[edges.dst]], axis=1)
    orphan = ~leads[:, FORWARD]
    onward = (both == FORWARD).all(axis=1)
    mirrored = (both == BACKWARD).all(axis=1) & (orphan[src] | orphan[dst])
    before = np.concatenate([home[src[onward]], home[dst[mirrored]]])
    behind = np.concatenate([home[dst[onward]], home[src[mirrored]]])
    return _condense(home, before, behind)


@kept
def passes_of(problem: Problem) -> IntArray:
    """[V] `FORWARD`, `BACKWARD`, or `AFTER` for ops that follow on backward ones."""
    part = np.where(backward_ops(problem.graph), BACKWARD, FORWARD).astype(np.int32)
    edges = flow(problem)
    order = np.argsort(edges.src, kind="stable")
    for s, d in zip(edges.src[order].tolist(), edges.dst[order].tolist(), strict=True):
        if part[s] != FORWARD and part[d] == FORWARD:
            part[d] = AFTER
    return freeze(part)


def _adopted(leads: BoolArray, src: IntArray, dst: IntArray, weight: FloatArray) -> IntArray:
    """[U] the unit whose place a unit takes: its own, or that of a neighbor if it has neither kind of ops."""
    home = np.arange(len(leads), dtype=np.int32)
    lost = ~(leads[:, FORWARD] | leads[:, BACKWARD])
    order = np.argsort(-weight, kind="stable")
    pairs = [(a, b) for a, b in zip(src[order].tolist(), dst[order].tolist(), strict=True) if lost[a] or lost[b]]
    changed = True
    while changed:
        changed = False
        for a, b in pairs:
            if lost[a] != lost[b]:
                child, parent = (a, b) if lost[a] else (b, a)
                home[child], lost[child], changed = home[parent], False, True
    return home


def _condense(home: IntArray, before: IntArray, behind: IntArray) -> tuple[IntArray, IntArray]:
    count = len(home)
    links = coo_array((np.ones(len(before), np.int8), (before, behind)), shape=(count, count))
    _, component = connected_components(links, directed=True, connection="strong")
    label = renumber(component[home])
    # `before` and `behind` are homes, which have their own label
    pairs = np.stack([label[before], label[behind]], axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return label, pairs.astype(np.int32)
