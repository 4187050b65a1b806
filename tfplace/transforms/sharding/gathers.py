"""Lookups of rows by number, and sums over rows of a number."""

from __future__ import annotations

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule
from tfplace.transforms.sharding.state import SUM, Kind, rows


@rule("GatherV2", "Gather", "ResourceGather")
def gather(op: OpView) -> Result:
    """Rows of what all slices have, by each slice's numbers; or each example's own, along another axis."""
    axes = op.ints(2) if op.type == "GatherV2" else [0]
    rank, batched = op.rank(0), int(op.attr("batch_dims", 0))
    if axes is None:
        return None
    params, indices = op.ins[:2]
    if params.is_whole and indices.is_rows and batched == 0:
        if op.type == "GatherV2" and axes[0] < 0 and rank is None:
            return None
        axis = axes[0] % rank if rank else axes[0]
        return (indices.at(axis + indices.axis),)
    if op.type == "ResourceGather" or rank is None or not params.is_rows:
        return None
    axis, indexed = axes[0] % rank, op.rank(1)
    if indices.is_rows:
        return (params,) if params == indices and params.axis < batched else None
    if not indices.is_whole or batched or params.axis == axis or indexed is None:
        return None
    return (params.at(params.axis if params.axis < axis else params.axis + indexed - 1),)


@rule("GatherNd", "ResourceGatherNd")
def gather_nd(op: OpView) -> Result:
    """Of what all slices have, by each slice's numbers."""
    params, indices = op.ins
    rank = op.rank(1)
    if not params.is_whole or not indices.is_rows or rank is None or indices.axis == rank - 1:
        return None
    return (indices,)


@rule("UnsortedSegmentSum")
def segment_sum(op: OpView) -> Result:
    """Sums over rows; slices' sums are terms, or the slice's rows where each example has segments of its own."""
    data, ids, number = op.ins
    rank = op.rank(1)
    if op.own_segments and number.kind is Kind.SIZE:
        return (data,) if data == ids == rows(0) else None
    if not data.is_rows or not number.is_whole or rank is None or data.extensive:
        return None
    if ids == data and data.axis < rank:
        return (SUM,)
    return (data.at(data.axis - rank + 1),) if ids.is_whole and data.axis >= rank else None


@rule("ScatterNd")
def scatter_nd(op: OpView) -> Result:
    """Sums over rows into what all slices have the shape of."""
    indices, updates, shape = op.ins
    rank = op.rank(0)
    if not indices.is_rows or indices != updates or not shape.is_whole or rank is None or indices.axis == rank - 1:
        return None
    return (SUM,)


@rule("DenseBincount")
def bincount(op: OpView) -> Result:
    """Counts of numbers, of all examples or of each; whether a number is there at all is no sum."""
    source, size, weights = op.ins
    if not source.is_rows or source.axis or not size.is_whole or not op.only(Kind.WHOLE, Kind.ROWS, among=(2,)):
        return None
    if weights.is_rows and weights != source:
        return None
    if op.rank(0) == 2:
        return (source,)
    return (SUM,) if op.rank(0) == 1 and not op.attr("binary_output", False) else None
