"""Conditions, loops, and the lists that loops fill."""

from __future__ import annotations

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule
from tfplace.transforms.sharding.state import SIZE, WHOLE, ZERO, Kind, Sharding

_SHAPES = (Kind.WHOLE, Kind.SIZE)


@rule("Enter", "Exit", "NextIteration", "LoopCond", "RefEnter", "RefExit")
def through(op: OpView) -> Result:
    """What goes in comes out."""
    return op.ins


@rule("Switch")
def switch(op: OpView) -> Result:
    """Both branches have what goes in; all slices take the same."""
    data, predicate = op.ins
    return (data, data) if predicate.is_whole else None


@rule("Merge")
def merge(op: OpView) -> Result:
    """What comes of either way is divided alike, where one is not zeros or an empty list."""
    joined = join(op, range(len(op.ins)))
    return None if joined is None else (joined, WHOLE)


def join(op: OpView, positions: range | tuple[int, ...]) -> Sharding | None:
    """How something is divided that comes from several places."""
    found = {op.ins[i] for i in positions if not op.ins[i].zero}
    if not found:
        return ZERO
    return next(iter(found)) if len(found) == 1 else None


@rule("TensorListReserve", "EmptyTensorList")
def new_list(op: OpView) -> Result:
    """Holds nothing yet."""
    return (ZERO,) if op.only(*_SHAPES, among=(0,)) and op.ins[1].is_whole else None


@rule("TensorListSetItem", "TensorListPushBack")
def push(op: OpView) -> Result:
    """A list's elements are divided alike."""
    item = len(op.ins) - 1
    if item == 2 and not op.ins[1].is_whole:
        return None
    joined = join(op, (0, item))
    return None if joined is None else (joined,)


@rule("TensorListGetItem")
def get(op: OpView) -> Result:
    """An element is divided as all are."""
    held, index, shape = op.ins
    return (held,) if index.is_whole and shape.kind in _SHAPES else None


@rule("TensorListPopBack")
def pop(op: OpView) -> Result:
    """An element is divided as all are."""
    held, shape = op.ins
    return (held, held) if shape.kind in _SHAPES else None


@rule("TensorListStack")
def stack(op: OpView) -> Result:
    """A new first axis."""
    held, shape = op.ins[:2]
    if shape.kind not in _SHAPES:
        return None
    return (held.at(held.axis + 1) if held.is_rows else held,)


@rule("TensorListFromTensor")
def unstack(op: OpView) -> Result:
    """The first axis goes; if that is the batch's, the list is of all examples."""
    source, shape = op.ins
    if shape.kind not in _SHAPES or (source.is_rows and source.axis == 0):
        return None
    return (source.at(source.axis - 1) if source.is_rows else source,)


@rule("TensorListLength")
def length(op: OpView) -> Result:
    """As many as all slices have."""
    return (WHOLE,)


@rule("TensorListElementShape")
def element_shape(op: OpView) -> Result:
    """Sizes of what the slice has."""
    return (SIZE if op.ins[0].is_rows else WHOLE,)


@rule("TensorListResize")
def resize(op: OpView) -> Result:
    """The same elements."""
    return (op.ins[0],) if op.ins[1].is_whole else None
