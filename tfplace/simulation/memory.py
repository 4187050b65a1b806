"""Which outputs share the memory of an input, and which inputs are read from the host's. See docs/simulator.md."""

from __future__ import annotations

FIRST_ALIASES_FIRST = frozenset(
    {
        "Assign", "AssignAdd", "AssignSub", "Bitcast", "CheckNumerics", "CheckNumericsV2", "EnsureShape", "Enter",
        "Exit", "ExpandDims", "Identity", "LoopCond", "Merge", "NextIteration", "PlaceholderWithDefault",
        "PreventGradient", "ReadVariableOp", "RefEnter", "RefExit", "RefIdentity", "RefMerge", "RefNextIteration",
        "Reshape", "Squeeze", "StopGradient", "TensorListPopBack", "TensorListPushBack", "TensorListSetItem",
    }
)  # fmt: skip
"""Output 0 is input 0. For `ReadVariableOp` input 0 is the handle: what it reads is the variable's own memory. A list
is held by the op that makes it, at its full size."""

EVERY_ALIASES_FIRST = frozenset({"RefSwitch", "Switch"})
EACH_ALIASES_EACH = frozenset({"IdentityN"})

HELD_BY_VARIABLE = frozenset({"TemporaryVariable", "Variable", "VariableV2"})
"""Reference variables: their output is the variable, which `persistent_bytes` already counts."""


def aliased_input(op_type: str, slot: int) -> int | None:
    """The input position whose memory output `slot` of an op shares; None if it has its own.

    >>> aliased_input("Reshape", 0), aliased_input("Switch", 1), aliased_input("Relu", 0)
    (0, 0, None)
    """
    if op_type in EACH_ALIASES_EACH:
        return slot
    if op_type in EVERY_ALIASES_FIRST or (slot == 0 and op_type in FIRST_ALIASES_FIRST):
        return 0
    return None


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
