"""Reductions, and scans along an axis."""

from __future__ import annotations

from tfplace.transforms.sharding.elementwise import terms
from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule
from tfplace.transforms.sharding.state import MEAN, SUM, Kind


@rule("Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm")
def reduction(op: OpView) -> Result:
    """Sums and means over the batch axis are terms; other reductions of it are done whole."""
    axes, rank = op.ints(1), op.rank(0)
    if axes is None or rank is None:
        return None
    source = op.ins[0]
    if source.is_partial:
        return (source,) if op.type in ("Sum", "Mean") else None
    if not source.is_rows:
        return None
    reduced = {axis % rank for axis in axes} if rank else set()
    if source.axis not in reduced:
        keep = op.attr("keep_dims", False)
        return (source.at(source.axis - (0 if keep else sum(axis < source.axis for axis in reduced))),)
    if source.extensive:
        return None
    if op.type == "Mean" and not op.outputs[0].dtype.startswith(("bfloat", "complex", "float")):
        return None  # a mean of integers is cut off
    return {"Sum": (SUM,), "Mean": (MEAN,)}.get(op.type)


@rule("ArgMax", "ArgMin")
def arg(op: OpView) -> Result:
    """Along another axis than the batch's."""
    axes, rank, source = op.ints(1), op.rank(0), op.ins[0]
    if axes is None or rank is None or not source.is_rows or axes[0] % rank == source.axis:
        return None
    return (source.at(source.axis - (axes[0] % rank < source.axis)),)


@rule("Cumsum", "Cumprod", "ReverseV2", "Roll")
def along(op: OpView) -> Result:
    """Along other axes than the batch's; a cumulated or reversed sum of terms is a sum of terms."""
    position = 2 if op.type == "Roll" else 1
    axes, rank, source = op.ints(position), op.rank(0), op.ins[0]
    if axes is None or rank is None or not op.only(Kind.WHOLE, among=range(1, len(op.ins))):
        return None
    if source.is_partial and op.type != "Cumprod":
        return (source,)
    return (source,) if source.is_rows and source.axis not in {axis % rank for axis in axes} else None


@rule("Softmax", "LogSoftmax", "TopKV2", "TopK", "InTopKV2")
def last_axis(op: OpView) -> Result:
    """Along the last axis."""
    source, rank = op.ins[0], op.rank(0)
    if rank is None or not source.is_rows or source.axis == rank - 1:
        return None
    if op.type == "InTopKV2":
        return (source,) if op.ins[1] == source and op.ins[2].is_whole else None
    if not op.only(Kind.WHOLE, among=range(1, len(op.ins))):
        return None
    return (source,) * len(op.outputs)


@rule("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
def cross_entropy(op: OpView) -> Result:
    """Row by row of the logits."""
    logits, labels = op.ins
    return (logits, logits) if logits.is_rows and logits.axis == 0 and labels == logits else None


@rule("L2Loss")
def squares(op: OpView) -> Result:
    """A sum over everything."""
    return (SUM,) if op.ins[0].is_rows and not op.ins[0].extensive else None


@rule("BiasAddGrad")
def bias_gradient(op: OpView) -> Result:
    """A sum over all axes but the channels'."""
    source, rank = op.ins[0], op.rank(0)
    if source.is_partial:
        return terms(op)
    if rank is None or not source.is_rows or source.extensive:
        return None
    channel = 1 if op.attr("data_format") == "NCHW" else rank - 1
    return (SUM,) if source.axis != channel else None
