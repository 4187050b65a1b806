"""Ops that only rearrange, repeat or cut tensors."""

from __future__ import annotations

import math

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule, words
from tfplace.transforms.sharding.state import SIZE, WHOLE, Kind, Sharding, rows

_SHAPES = (Kind.WHOLE, Kind.SIZE)


def fits(op: OpView, sharding: Sharding, slot: int = 0) -> bool:
    """Whether an output's batch axis, by its shape with two batch sizes, is where its rows are said to be."""
    out = op.outputs[slot]
    return out.varying == (sharding.axis,) and out.even


@rule("Reshape")
def reshape(op: OpView) -> Result:
    """Where the batch is within an axis shows how many groups of rows come before it."""
    source, shape = op.ins
    if shape.kind not in _SHAPES:
        return None
    if source.is_partial:
        return (source,) if op.outputs[0].varying == () else None
    if not source.is_rows:
        return None
    before, after = op.inputs[0].shape, op.outputs[0].shape
    varying = op.outputs[0].varying
    if before is None or after is None or varying is None or len(varying) != 1:
        return None
    axis = varying[0]
    if not _adapts(op, 1, axis):
        return None
    if min((*before, *after), default=1) < 0:
        return None
    head, groups = math.prod(before[: source.axis]) * source.outer, math.prod(after[:axis])
    together, row = math.prod(before[source.axis :]) // source.outer, math.prod(after[axis + 1 :])
    # Each example's elements of a group must be whole rows of the result, or a slice would have parts of rows.
    if not groups or head % groups or together // op.batch % max(row, 1):
        return None
    return (source.at(axis, head // groups),)


@rule("ExpandDims")
def expand(op: OpView) -> Result:
    """One more axis, before or behind the batch's."""
    axes, rank, source = op.ints(1), op.rank(0), op.ins[0]
    if source.is_partial:
        return (source,)
    if axes is None or rank is None or not source.is_rows:
        return None
    return (source.at(source.axis + (axes[0] % (rank + 1) <= source.axis)),)


@rule("Squeeze")
def squeeze(op: OpView) -> Result:
    """Axes of size 1 go; the batch's stays even where a slice has one example."""
    source, shape = op.ins[0], op.inputs[0].shape
    if source.is_partial:
        return (source,)
    if shape is None or not source.is_rows:
        return None
    named = op.attr("squeeze_dims") or op.attr("axis") or ()
    gone = {axis % len(shape) for axis in named}
    if not named or source.axis in gone:  # all of size 1 go, and a slice of one example would too
        return None
    return (source.at(source.axis - sum(axis < source.axis for axis in gone)),)


@rule("Transpose")
def transpose(op: OpView) -> Result:
    """The batch axis goes where it is sent."""
    order, source = op.ints(1), op.ins[0]
    if source.is_partial:
        return (source,) if op.ins[1].is_whole else None
    if order is None or not source.is_rows:
        return None
    return (source.at(order.index(source.axis)),)


@rule("Pack")
def pack(op: OpView) -> Result:
    """A new axis."""
    found = set(op.ins)
    if len(found) != 1 or op.rank(0) is None:
        return None
    source = op.ins[0]
    if source.is_partial:
        return (source,)
    if not source.is_rows:
        return None
    axis = int(op.attr("axis", 0)) % (int(op.rank(0) or 0) + 1)
    return (source.at(source.axis + (axis <= source.axis)),)


@rule("Unpack")
def unpack(op: OpView) -> Result:
    """An axis goes."""
    source, rank = op.ins[0], op.rank(0)
    if source.is_partial:
        return (source,) * len(op.outputs)
    if rank is None or not source.is_rows:
        return None
    axis = int(op.attr("axis", 0)) % rank
    return None if axis == source.axis else (source.at(source.axis - (axis < source.axis)),) * len(op.outputs)


@rule("ConcatV2")
def concat(op: OpView) -> Result:
    """Along another axis than the batch's."""
    axes, rank, parts = op.ints(len(op.ins) - 1), op.rank(0), op.ins[:-1]
    if axes is None or rank is None or len(set(parts)) != 1 or not op.ins[-1].is_whole:
        return None
    source = parts[0]
    if source.is_partial:
        return (source,)
    return (source,) if source.is_rows and source.axis != axes[0] % rank else None


@rule("Split", "SplitV")
def split(op: OpView) -> Result:
    """Along another axis than the batch's."""
    at, axis_at = (1, 0) if op.type == "Split" else (0, 2)
    axes, rank, source = op.ints(axis_at), op.rank(at), op.ins[at]
    if axes is None or rank is None or not op.only(Kind.WHOLE, among=[i for i in range(len(op.ins)) if i != at]):
        return None
    if source.is_partial or (source.is_rows and source.axis != axes[0] % rank):
        return (source,) * len(op.outputs)
    return None


@rule("Slice")
def slice_(op: OpView) -> Result:
    """All rows along the batch axis."""
    source, begin, shape = op.ins[0], op.ints(1), op.inputs[0].shape
    if source.is_partial and op.only(Kind.WHOLE, among=(1, 2)):
        return (source,)
    if begin is None or shape is None or not source.is_rows or op.ins[2].kind not in _SHAPES or not op.is_fixed(1):
        return None
    whole = begin[source.axis] == 0 and op.outputs[0].shape is not None
    whole = whole and op.outputs[0].shape[source.axis] == shape[source.axis]  # type: ignore[index]
    return (source,) if whole and fits(op, source) and _adapts(op, 2, source.axis) else None


def _adapts(op: OpView, position: int, axis: int) -> bool:
    """Whether an input of sizes is that of the slice, or says "all" along an axis."""
    known = op.ints(position)
    return op.ins[position].kind is Kind.SIZE or (known is not None and known[axis] == -1)


@rule("StridedSlice")
def strided_slice(op: OpView) -> Result:
    """All rows along the batch axis."""
    source, shape = op.ins[0], op.inputs[0].shape
    if source.is_partial and op.only(Kind.WHOLE, among=(1, 2, 3)):
        return (source,)
    if shape is None or not source.is_rows:
        return None
    axis = _kept_axis(op, source.axis, shape, first=1)
    return None if axis is None or not fits(op, source.at(axis)) else (source.at(axis),)


@rule("StridedSliceGrad")
def strided_slice_gradient(op: OpView) -> Result:
    """Zeros around rows, along other axes than the batch's."""
    source, shape = op.ins[4], op.outputs[0].shape
    if source.is_partial and op.only(Kind.WHOLE, among=(0, 1, 2, 3)):
        return (source,)
    varying = op.outputs[0].varying
    if shape is None or not source.is_rows or varying is None or len(varying) != 1 or op.ins[0].kind is not Kind.SIZE:
        return None
    kept = _kept_axis(op, varying[0], shape, first=1)
    return (source.at(varying[0]),) if kept == source.axis else None


def _kept_axis(op: OpView, axis: int, shape: tuple[int, ...], first: int) -> int | None:
    """Where an axis is after slicing, if all of it is kept; None otherwise.

    Args:
      op: with inputs begin, end and strides from position `first` on.
      axis: of the tensor that is sliced.
      shape: of that.
      first: position of begin.
    """
    begin, strides, end = op.ints(first), op.ints(first + 2), op.ints(first + 1)
    if begin is None or strides is None or op.ins[first + 1].kind not in _SHAPES:
        return None
    if not op.is_fixed(first) or not op.is_fixed(first + 2):
        return None
    masks = [int(op.attr(f"{name}_mask", 0)) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")]
    begin_mask, end_mask, ellipsis, new_axis, shrink = masks
    count = len(begin)
    ends_differ = op.ins[first + 1].kind is Kind.SIZE
    consumed = sum(not (new_axis >> i) & 1 and not (ellipsis >> i) & 1 for i in range(count))
    dense, out = 0, 0
    kept = None
    for i in range(count):
        if (ellipsis >> i) & 1:
            skipped = len(shape) - consumed
            if dense <= axis < dense + skipped:
                kept = out + axis - dense
            dense, out = dense + skipped, out + skipped
        elif (new_axis >> i) & 1:
            out += 1
        else:
            if dense == axis:
                if (shrink >> i) & 1 or strides[i] != 1 or not ((begin_mask >> i) & 1 or begin[i] == 0):
                    return None
                if not (end_mask >> i) & 1 and not (ends_differ and end is not None and end[i] == shape[axis]):
                    return None
                kept = out
            elif ends_differ and not ((end_mask | shrink) >> i) & 1 and not op.is_fixed(first + 1, i):
                return None
            dense += 1
            out += not (shrink >> i) & 1
    return out + axis - dense if kept is None else kept


@rule("Pad", "PadV2", "MirrorPad", "MirrorPadGrad")
def pad(op: OpView) -> Result:
    """Nothing before or behind the rows."""
    source, paddings = op.ins[0], op.ints(1)
    if paddings is None or not op.only(Kind.WHOLE, among=range(1, len(op.ins))):
        return None
    if source.is_partial and op.type != "PadV2":
        return (source,)
    if not source.is_rows or any(paddings[2 * source.axis : 2 * source.axis + 2]):
        return None
    return (source,)


@rule("Tile")
def tile(op: OpView) -> Result:
    """Repeated along other axes; or as often as there are examples."""
    source, times = op.ins[0], op.ints(1)
    if source.is_rows:
        return (source,) if times is not None and times[source.axis] == 1 and op.ins[1].is_whole else None
    return _repeated(op, op.ins[1])


@rule("BroadcastTo")
def broadcast_to(op: OpView) -> Result:
    """Repeated along other axes; or as often as there are examples."""
    source, rank, result = op.ins[0], op.rank(0), op.outputs[0].rank
    if source.is_rows and rank is not None and result is not None and op.ins[1].kind is Kind.SIZE:
        out = source.at(source.axis + result - rank)
        return (out,) if fits(op, out) else None
    return _repeated(op, op.ins[1])


@rule("Fill")
def fill(op: OpView) -> Result:
    """As many as there are examples."""
    return _repeated(op, op.ins[0], value=1)


def _repeated(op: OpView, sizes: Sharding, value: int = 0) -> Result:
    """What has no batch axis, along a new one."""
    varying, shape = op.outputs[0].varying, op.inputs[value].shape
    if sizes.kind is not Kind.SIZE or op.ins[value].kind not in (Kind.WHOLE, Kind.LOCAL):
        return None
    if shape is None or min(shape, default=1) < 0:  # it may have the batch axis already
        return None
    if varying is None or len(varying) != 1 or not op.outputs[0].even:
        return None
    return (rows(varying[0], extensive=op.ins[value].extensive),)


@rule(
    "MatrixBandPart", "MatrixDiagPartV3", "MatrixDiagV3", "MatrixSetDiagV3", "MatrixDiag", "MatrixDiagPart", "Cholesky"
)
def matrices(op: OpView) -> Result:
    """Matrix by matrix along the axes before the last two."""
    source = op.ins[0]
    last = 1 if op.type in ("MatrixDiagV3", "MatrixDiag") else 2
    if not source.is_rows or op.rank(0) is None or source.axis >= int(op.rank(0) or 0) - last:
        return None
    others = [s for i, s in enumerate(op.ins[1:], 1) if not (s.is_rows and op.type == "MatrixSetDiagV3" and i == 1)]
    if any(not s.is_whole for s in others) or (op.type == "MatrixSetDiagV3" and op.ins[1] != source):
        return None
    return (source,)


@rule("OneHot")
def one_hot(op: OpView) -> Result:
    """A new axis of classes."""
    source, rank = op.ins[0], op.rank(0)
    if rank is None or not source.is_rows or not op.only(Kind.WHOLE, among=(1, 2, 3)):
        return None
    axis = int(op.attr("axis", -1)) % (rank + 1)
    return (source.at(source.axis + (axis <= source.axis)),)


@rule("Shape", "ShapeN", "Size")
def shape(op: OpView) -> Result:
    """Sizes of what the slice has, where they depend on the batch."""
    if not op.row_inputs():
        return None
    return tuple(WHOLE if op.inputs[i].varying == () else SIZE for i in range(len(op.outputs)))


@rule("Rank")
def rank_(op: OpView) -> Result:
    """As many axes as the whole has."""
    return (WHOLE,)


@rule("EnsureShape")
def ensure_shape(op: OpView) -> Result:
    """The same tensor; a batch size in the attribute becomes the slice's."""
    return op.ins


def size_arithmetic(op: OpView) -> Result:
    """Integers made of sizes, such as a product of some of them, are the slice's again where only shapes read them."""
    if not op.only(*_SHAPES) or any(not out.dtype.startswith(("int", "uint")) for out in op.outputs):
        return None
    return (SIZE,) * len(op.outputs) if op.type in SIZE_OPS else None


SIZE_OPS = words("""
Add AddV2 BroadcastArgs BroadcastGradientArgs Cast ConcatOffset ConcatV2 ExpandDims FloorDiv GatherV2 Identity Maximum
Minimum Mul Neg Pack Prod Reshape Slice Squeeze StridedSlice Sub Unpack
""")
"""Ops on sizes whose result is sizes."""
