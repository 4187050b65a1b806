"""Matrix products, convolutions, pooling and what else goes image by image."""

from __future__ import annotations

import math

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule, words
from tfplace.transforms.sharding.state import LOCAL, SUM, WHOLE, Kind


@rule("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def matmul(op: OpView) -> Result:
    """Rows of either factor are rows of the product; along the axis that is summed over, products are terms."""
    ranks = op.rank(0), op.rank(1)
    result = op.outputs[0].rank
    if ranks[0] is None or ranks[1] is None or result is None or not op.only(Kind.WHOLE, Kind.ROWS, Kind.LOCAL):
        return None
    transposed = [
        bool(op.attr(x, False) or op.attr(y, False)) for x, y in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    ]
    # Axes of [rows, summed] of the first and [summed, columns] of the second, from the last.
    summed = (-2 if transposed[0] else -1, -1 if transposed[1] else -2)
    kept = (-1 if transposed[0] else -2, -2 if transposed[1] else -1)
    into = (-2, -1)
    found, over = set(), set()
    for i in op.row_inputs():
        sharding, rank = op.ins[i], ranks[i]
        assert rank is not None
        if sharding.extensive:
            return None
        from_last = sharding.axis - rank
        if from_last == summed[i]:
            over.add((i, sharding.outer))
        elif from_last == kept[i]:
            found.add((into[i], sharding.outer))
        else:
            found.add((from_last, sharding.outer))
    if over:
        return (SUM,) if not found and len(over) == 2 and len({outer for _, outer in over}) == 1 else None
    if len(found) != 1:
        return None
    axis, outer = next(iter(found))
    if axis < -2 and any(not op.ins[i].is_rows and _is_there(op, i, axis) for i in (0, 1)):
        return None
    return (op.ins[op.row_inputs()[0]].at(result + axis, outer),)


def _is_there(op: OpView, i: int, axis: int) -> bool:
    shape = op.inputs[i].shape
    assert shape is not None
    return len(shape) >= -axis and shape[axis] != 1


@rule("Einsum")
def einsum(op: OpView) -> Result:
    """Rows by their label: in the result they are rows, summed over they are terms."""
    equation = str(op.attr("equation", ""))
    if "." in equation or not op.only(Kind.WHOLE, Kind.ROWS, Kind.LOCAL):
        return None
    given, _, wanted = equation.replace(" ", "").partition("->")
    labels = given.split(",")
    found = {(labels[i][op.ins[i].axis], op.ins[i].outer) for i in op.row_inputs()}
    if len(found) != 1 or any(op.ins[i].extensive for i in op.row_inputs()):
        return None
    label, outer = next(iter(found))
    if any(label in labels[i] for i, s in enumerate(op.ins) if not s.is_rows) or any(
        x.count(label) > 1 for x in labels
    ):
        return None
    return (op.ins[op.row_inputs()[0]].at(wanted.index(label), outer),) if label in wanted else (SUM,)


@rule("Conv2D", "Conv3D", "DepthwiseConv2dNative", "Dilation2D")
def convolution(op: OpView) -> Result:
    """Image by image."""
    source = op.ins[0]
    return (source,) if source.is_rows and source.axis == 0 and op.ins[1].is_whole else None


_FILTER_GRADIENTS = words("""
Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter
""")

_INPUT_GRADIENTS = words("""
Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput
""")


@rule(*_FILTER_GRADIENTS)
def filter_gradient(op: OpView) -> Result:
    """A sum over images."""
    images, shape, gradient = op.ins
    if not images.is_rows or images.axis or images != gradient or not shape.is_whole or images.extensive:
        return None
    return (SUM,)


@rule(*_INPUT_GRADIENTS)
def input_gradient(op: OpView) -> Result:
    """Image by image, of which there are as many as its sizes say."""
    sizes, weights, gradient = op.ins
    if not gradient.is_rows or gradient.axis or not weights.is_whole or sizes.kind is not Kind.SIZE:
        return None
    return (gradient,)


_IMAGE_BY_IMAGE = words("""
AdjustHue AdjustSaturation AvgPool AvgPool3D DepthToSpace ExtractImagePatches HSVToRGB LRN LRNGrad
MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradV2
MaxPoolV2 RGBToHSV ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor
ResizeNearestNeighborGrad SpaceToDepth
""")


@rule(*_IMAGE_BY_IMAGE)
def images(op: OpView) -> Result:
    """Image by image, along the first axis of all inputs that have images."""
    found = {op.ins[i] for i in op.row_inputs()}
    if len(found) != 1 or next(iter(found)).axis or not op.only(Kind.WHOLE, Kind.ROWS):
        return None
    if any(not s.is_rows and (op.rank(i) or 0) >= 3 for i, s in enumerate(op.ins)):
        return None
    return (next(iter(found)),)


@rule("AdjustContrastv2")
def contrast(op: OpView) -> Result:
    """Image by image along all axes but the last three."""
    source, rank = op.ins[0], op.rank(0)
    return (source,) if rank is not None and source.is_rows and source.axis < rank - 3 and op.ins[1].is_whole else None


@rule("AvgPoolGrad", "AvgPool3DGrad")
def pool_gradient(op: OpView) -> Result:
    """Image by image, of which there are as many as its sizes say."""
    sizes, gradient = op.ins
    return (gradient,) if gradient.is_rows and not gradient.axis and sizes.kind is Kind.SIZE else None


@rule("SpaceToBatchND")
def space_to_batch(op: OpView) -> Result:
    """Blocks come before images along the first axis."""
    count = _blocks(op)
    return None if count is None else (op.ins[0].at(0, op.ins[0].outer * count),)


@rule("BatchToSpaceND")
def batch_to_space(op: OpView) -> Result:
    """The reverse of `space_to_batch`."""
    count = _blocks(op)
    return None if count is None or op.ins[0].outer % count else (op.ins[0].at(0, op.ins[0].outer // count),)


def _blocks(op: OpView) -> int | None:
    """Into how many blocks images are divided; None where that is not known, or the rows are no images."""
    blocks, source = op.ints(1), op.ins[0]
    return None if blocks is None or not source.is_rows or source.axis or not op.ins[2].is_whole else math.prod(blocks)


@rule("BiasAdd")
def bias(op: OpView) -> Result:
    """The same for each channel, which are along another axis than the batch."""
    source, rank = op.ins[0], op.rank(0)
    if rank is None or not source.is_rows or op.ins[1].kind not in (Kind.WHOLE, Kind.LOCAL):
        return None
    channel = 1 if op.attr("data_format") == "NCHW" else rank - 1
    return (source,) if source.axis != channel else None


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(op: OpView) -> Result:
    """In inference image by image; in training statistics are those of the slice, where that is wanted."""
    source = op.ins[0]
    if not source.is_rows or source.axis or not op.only(Kind.WHOLE, Kind.LOCAL, among=range(1, len(op.ins))):
        return None
    if not op.attr("is_training", True):
        return (source, *(WHOLE,) * (len(op.outputs) - 1))
    return (source, *(LOCAL,) * (len(op.outputs) - 1)) if op.local else None


@rule("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def batch_norm_gradient(op: OpView) -> Result:
    """With the slice's statistics; the gradients of scale and offset are sums over images."""
    gradient, source = op.ins[:2]
    training = op.attr("is_training", True)
    if not gradient.is_rows or gradient.axis or gradient != source:
        return None
    statistics = Kind.LOCAL if training else Kind.WHOLE
    if not op.ins[2].is_whole or not op.only(statistics, among=range(3, len(op.ins))):
        return None
    return (gradient, SUM, SUM, *(LOCAL,) * (len(op.outputs) - 3))
