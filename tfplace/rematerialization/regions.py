"""Regions of the forward pass that a user names, as ops that are computed again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tfplace.core.constraints import match_ops
from tfplace.core.graph import OpGraph
from tfplace.core.passes import late_ops
from tfplace.errors import InputError
from tfplace.transforms.recomputable import recomputable_ops


def named_segments(graph: OpGraph, segments: Sequence[str | Sequence[str]]) -> list[list[int]]:
    """Ops that are computed again, by segment.

    Args:
      graph: a training step.
      segments: a pattern of op names each, as in `Constraints`, such as "layer:block1"; or several.

    Raises:
      ConstraintError: a pattern matches nothing.
      InputError: nothing of a segment can be computed again, or two segments overlap.
    """
    possible = recomputable_ops(graph)
    out: list[list[int]] = []
    seen: dict[int, int] = {}
    for i, patterns in enumerate(segments):
        matched = {
            v for pattern in ([patterns] if isinstance(patterns, str) else patterns) for v in match_ops(pattern, graph)
        }
        ops = without_boundary(graph, (v for v in sorted(matched) if possible[v]))
        if not ops:
            raise InputError(
                f"segment {patterns!r}, in which nothing can be recomputed",
                "forward ops that read one another's results, outside of loops and branches",
            )
        for v in ops:
            if seen.setdefault(v, i) != i:
                raise InputError(f"{graph.op_names[v]!r} in two segments", "every op in at most one segment")
        out.append(ops)
    return out


def without_boundary(graph: OpGraph, ops: Iterable[int]) -> list[int]:
    """Those of some ops whose results no other forward op reads: what others read is kept, and computed from."""
    inside = np.zeros(graph.num_ops, np.bool_)
    inside[list(ops)] = True
    read = (graph.edge_tensor >= 0) & inside[graph.edge_src]
    outside = read & ~inside[graph.edge_dst] & ~late_ops(graph)[graph.edge_dst]
    inside[graph.edge_src[outside]] = False
    return np.flatnonzero(inside).tolist()
