"""Which outputs share the memory of an input, and which inputs are read from the host's.

See docs/reference/simulated_memory.md. Every rule here was tried: `tests/simulation/test_buffers.py` runs each op and
compares the addresses that TensorFlow's tracer gives for its outputs with those of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tfplace.core.arrays import IntArray, freeze
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.op_types import of_types


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# ---- outputs that are an input ---------------------------------------------------------------------------------------

FIRST_ALIASES_FIRST = frozenset(
    _words(
        "Assign AssignAdd AssignSub Bitcast CheckNumerics CheckNumericsV2 EnsureShape Enter Exit ExpandDims Identity "
        "LoopCond Merge NextIteration PlaceholderWithDefault PreventGradient ReadVariableOp RefEnter RefExit "
        "RefIdentity RefMerge RefNextIteration Reshape Snapshot Squeeze StopGradient TensorListGetItem "
        "TensorListPushBack TensorListSetItem"
    )
)
"""Output 0 is input 0. Of `ReadVariableOp` input 0 is the handle: what it reads is the variable's own memory, unless
rows of it are written (`aliases`). A list is held by the op that makes it, at its full size with all its elements."""

EVERY_ALIASES_FIRST = frozenset({"RefSwitch", "Switch", "TensorListPopBack"})
EACH_ALIASES_EACH = frozenset({"IdentityN"})

ALIASES_OF_ITS_SIZE = frozenset(_words("All Any BroadcastTo Max Mean Min MirrorPad Pad PadV2 Prod Sum Tile"))
"""Output 0 is input 0 if it has as many elements: nothing is repeated, added or reduced then."""

ALIASES_ALONE = frozenset({"AddN", "Pack"})
"""Output 0 is input 0 if that is the only one."""

ROWS = frozenset(_words("Slice Split SplitV StridedSlice Unpack"))
"""Outputs are views of the value if they are whole rows of it, each at an address that kernels can work with."""

ALIGNMENT = 64
"""Bytes; a view that does not begin at a multiple of it is copied (EIGEN_MAX_ALIGN_BYTES)."""

HELD_BY_VARIABLE = frozenset({"TemporaryVariable", "Variable", "VariableV2"})
"""Reference variables: their output is the variable, which `persistent_bytes` already counts."""

HELD_ALL_STEP = frozenset(_words("Const Placeholder PlaceholderWithDefault"))
"""Outputs that are not freed when their readers have finished: a kernel keeps its constant, the caller its arguments.
(Constants that are copied to their readers count nowhere.)"""


_MAY_ALIAS = FIRST_ALIASES_FIRST | EVERY_ALIASES_FIRST | EACH_ALIASES_EACH | ALIASES_OF_ITS_SIZE | ALIASES_ALONE | ROWS


def aliased_input(op_type: str, slot: int) -> int | None:
    """The input position whose memory output `slot` of an op shares, whatever its shapes; None if that depends.

    >>> aliased_input("Reshape", 0), aliased_input("Switch", 1), aliased_input("Relu", 0)
    (0, 0, None)
    """
    if op_type in EACH_ALIASES_EACH:
        return slot
    if op_type in EVERY_ALIASES_FIRST or (slot == 0 and op_type in FIRST_ALIASES_FIRST):
        return 0
    return None


@kept
def aliases(graph: OpGraph) -> IntArray:
    """[T] the input position whose memory each tensor shares on the device where it is made, or -1 if it has its own.

    A dense read of a variable whose rows the graph writes is a copy: once rows have been written in place, TensorFlow
    may not hand out the variable's own memory any more (`EnsureSparseVariableAccess`, training_op_helpers.h).
    """
    copied = reads_that_copy(graph)
    out = np.full(graph.num_tensors, -1, np.int32)
    some = np.flatnonzero(of_types(graph, _MAY_ALIAS)[graph.tensor_op])
    ops, slots = graph.tensor_op[some].tolist(), graph.tensor_slot[some].tolist()
    for t, op, slot in zip(some.tolist(), ops, slots, strict=True):
        position = aliased_input(graph.op_types[op], slot)
        if position is None:
            position = _aliased_by_shape(graph, op, t)
        if position is not None and position < len(graph.inputs[op]) and op not in copied:
            out[t] = position
    return freeze(out)


def _aliased_by_shape(graph: OpGraph, op: int, tensor: int) -> int | None:
    kind, inputs = graph.op_types[op], graph.inputs[op]
    if kind in ALIASES_ALONE:
        return 0 if len(inputs) == 1 else None
    if kind in ALIASES_OF_ITS_SIZE and inputs:
        return 0 if _elements(graph, tensor) == _elements(graph, inputs[0]) else None
    if kind in ROWS and inputs:
        value = 1 if kind == "Split" and len(inputs) > 1 else 0
        return value if _is_rows(graph, op, inputs[value], tensor) else None
    return None


def _elements(graph: OpGraph, tensor: int) -> int | None:
    shape = graph.tensor_shape[tensor]
    return None if shape is None else math.prod(shape)


def _is_rows(graph: OpGraph, op: int, value: int, part: int) -> bool:
    """Whether a part of a value, as an op of `ROWS` makes it, is a view.

    A slice with strides looks like one without; only a single row is sure to have none.
    """
    whole, shape, kind = graph.tensor_shape[value], graph.tensor_shape[part], graph.op_types[op]
    if not whole or shape is None:
        return False
    attrs = graph.op_attrs[op]
    if kind == "StridedSlice" and attrs.get("shrink_axis_mask") != 1:
        return False
    if kind == "Unpack" and attrs.get("axis", 0) != 0:
        return False
    inner = whole[1:]
    row = math.prod(inner) * graph.tensor_bytes[value] // max(math.prod(whole), 1)
    same = shape == inner if kind in ("StridedSlice", "Unpack") else shape[1:] == inner
    return bool(same and row and row % ALIGNMENT == 0)


# ---- variables -------------------------------------------------------------------------------------------------------

READS = "ReadVariableOp"

_WRITES_ROWS = ("ResourceScatter", "ResourceSparseApply")
_WRITES = ("AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ResourceApply")
_HANDLE_PASSES = frozenset(_words("Enter Identity Merge NextIteration Switch"))


@kept
def variable_of(graph: OpGraph) -> IntArray:
    """[T] the op that makes the handle which a tensor is, or is passed on from; -1 for what is no handle."""
    out = np.full(graph.num_tensors, -1, np.int32)
    makers = {variable.op for variable in graph.variables}
    resource = np.array([dtype == "resource" for dtype in graph.tensor_dtype], bool)
    some = np.flatnonzero(resource | np.isin(graph.tensor_op, [*makers]))
    for t, op in zip(some.tolist(), graph.tensor_op[some].tolist(), strict=True):
        if op in makers:
            out[t] = op
        else:
            passed = graph.op_types[op] in _HANDLE_PASSES and graph.inputs[op]
            out[t] = out[graph.inputs[op][0]] if passed else op
    return freeze(out)


def writes_rows(op_type: str) -> bool:
    """Whether an op writes rows of a variable in place.

    >>> writes_rows("ResourceScatterAdd"), writes_rows("ResourceApplyAdam")
    (True, False)
    """
    return op_type.startswith(_WRITES_ROWS)


def writes_whole(op_type: str) -> bool:
    """Whether an op writes all of a variable. While what was read of it is still used, it writes into a new copy.

    >>> writes_whole("AssignSubVariableOp"), writes_whole("ResourceApplyAdam"), writes_whole("ResourceScatterAdd")
    (True, True, False)
    """
    return op_type.startswith(_WRITES)


@kept
def variables_written_by_rows(graph: OpGraph) -> frozenset[int]:
    """Ops that make the handles of variables whose rows the graph writes in place."""
    handle = variable_of(graph)
    writers = np.flatnonzero(of_types(graph, writes_rows)).tolist()
    return frozenset(int(handle[t]) for v in writers for t in graph.inputs[v] if handle[t] >= 0)


@kept
def reads_that_copy(graph: OpGraph) -> frozenset[int]:
    """Ops that read a variable whole, whose rows the graph writes: they copy it."""
    scattered = variables_written_by_rows(graph)
    if not scattered:
        return frozenset()
    handle = variable_of(graph)
    reads = (v for v, kind in enumerate(graph.op_types) if kind == READS)
    return frozenset(v for v in reads if graph.inputs[v] and int(handle[graph.inputs[v][0]]) in scattered)


# ---- outputs that take over the memory of an input -------------------------------------------------------------------

_UNARY = _words(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor Inv Invert "
    "LeakyRelu Lgamma Log Log1p LogSoftmax LogicalNot MatrixBandPart MatrixSetDiag Ndtri Neg OnesLike Reciprocal Relu "
    "Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Square Tan Tanh ZerosLike "
    "BiasAdd ClipByValue"
)
_BINARY = _words(
    "Add AddV2 Atan2 Div DivNoNan EluGrad FloorDiv FloorMod Igamma InvGrad LeakyReluGrad Maximum Minimum Mod Mul "
    "MulNoNan NextAfter Polygamma Pow RealDiv ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad SigmoidGrad "
    "SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference Sub TanhGrad TruncateDiv Xdivy Xlog1py Xlogy Zeta"
)

FORWARDS: Mapping[str, tuple[int, tuple[int, ...] | None]] = {
    **dict.fromkeys(_UNARY, (0, (0,))),
    **dict.fromkeys(_BINARY, (0, (0, 1))),
    "AddN": (0, None),
    "Select": (0, (1, 2)),
    "SelectV2": (0, (1, 2)),
    "SoftmaxCrossEntropyWithLogits": (1, (0,)),
    "SparseSoftmaxCrossEntropyWithLogits": (1, (0,)),
}
"""Op type -> (output, inputs whose memory it may take over if nothing else holds it and it is of the same size; None
for any)."""

KEEPS = frozenset(
    _words("Assign AssignVariableOp QueueEnqueueV2 StackPushV2 TensorArrayWriteV3 TensorListPushBack TensorListSetItem")
)
"""Ops after which what they have read is held elsewhere."""

# ---- memories of a device --------------------------------------------------------------------------------------------

READS_NO_DATA = frozenset({"Rank", "Shape", "ShapeN", "Size", "VariableShape", "VarIsInitializedOp"})
"""They read what is known of a tensor without its contents."""

HOST_ONLY_DTYPES = frozenset({"resource", "string", "variant"})
"""Their tensors are handles in host memory, whichever the device."""

HOST_ARGUMENTS = {
    **dict.fromkeys(("All", "Any", "ArgMax", "ArgMin", "Max", "Mean", "Min", "Prod", "Sum"), (1,)),
    **dict.fromkeys(("BroadcastTo", "Cumprod", "Cumsum", "ExpandDims", "OneHot", "Reshape", "ReverseV2"), (1,)),
    **dict.fromkeys(("ConjugateTranspose", "MirrorPad", "Pad", "PadV2", "Tile", "TopKV2", "Transpose"), (1,)),
    **dict.fromkeys(("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", "RefSwitch", "Switch"), (1,)),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor", "TensorListFromTensor"), (1,)),
    **dict.fromkeys(("AvgPoolGrad", "Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"), (0,)),
    **dict.fromkeys(("Fill", "RandomStandardNormal", "RandomUniform", "Split", "TruncatedNormal"), (0,)),
    **dict.fromkeys(("Slice", "SplitV", "TensorListGetItem"), (1, 2)),
    **dict.fromkeys(("GatherV2", "ScatterNd", "UnsortedSegmentSum"), (2,)),
    **dict.fromkeys(("TensorListPopBack", "TensorListSetItem", "TensorListStack"), (1,)),
    "StridedSlice": (1, 2, 3),
    "StridedSliceGrad": (0, 1, 2, 3),
}
"""Input positions that GPU kernels want in host memory: shapes, axes, indices of a list."""


def read_from_host(op_type: str, position: int, inputs: int) -> bool:
    """Whether a GPU kernel of the op takes this one of its `inputs` from host memory.

    >>> read_from_host("Reshape", 1, 2), read_from_host("Reshape", 0, 2), read_from_host("ConcatV2", 3, 4)
    (True, False, True)
    """
    if op_type == "ConcatV2":
        return position == inputs - 1
    return position in HOST_ARGUMENTS.get(op_type, ())
