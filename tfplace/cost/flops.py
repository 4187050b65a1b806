"""Floating-point operations of one execution of an op, from its shapes. A multiply and an add count as two.

One rule a line: op type -> (class, function of the op). The class decides which fraction of a device's peak rate is
reached (`tfplace.cost.analytic.EFFICIENCY`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tfplace.core.graph import OpGraph, Shape


@dataclass(frozen=True)
class Op:
    """One op as the rules see it.

    Attributes:
      graph: its graph.
      v: its index.
    """

    graph: OpGraph
    v: int

    def input(self, position: int) -> tuple[int, ...]:
        """Shape of an input; () where there is none or its rank is unknown."""
        tensors = self.graph.inputs[self.v]
        return (self.graph.tensor_shape[tensors[position]] or ()) if position < len(tensors) else ()

    def output(self, slot: int = 0) -> tuple[int, ...]:
        """Shape of an output; () where there is none or its rank is unknown."""
        t = int(self.graph.op_tensors[self.v]) + slot
        return (self.graph.tensor_shape[t] or ()) if t < self.graph.op_tensors[self.v + 1] else ()

    def flag(self, name: str) -> bool:
        """A boolean attribute; False where it is absent."""
        return bool(self.graph.op_attrs[self.v].get(name, False))

    def text(self, name: str) -> str:
        """A text attribute; "" where it is absent."""
        return str(self.graph.op_attrs[self.v].get(name, ""))


def elements(shape: Shape) -> int:
    """Number of elements; 1 for a scalar."""
    return math.prod(shape or ())


def _conv(kernel: tuple[int, ...], result: tuple[int, ...]) -> float:
    """Convolution: every output element takes one multiply-add per kernel element that reaches it, padding included.

    Args:
      kernel: [spatial..., channels in, channels out]; channels in are those of one group.
      result: shape of the forward output, in whatever data format.
    """
    return 2.0 * elements(result) * elements(kernel[:-1]) if kernel else 2.0 * elements(result)


def _conv_forward(op: Op) -> float:
    return _conv(op.input(1), op.output())


def _conv_input_gradient(op: Op) -> float:
    # inputs: input sizes, kernel, gradient of the forward output
    return _conv(op.input(1), op.input(2))


def _conv_filter_gradient(op: Op) -> float:
    # inputs: forward input, kernel sizes, gradient of the forward output; the output is the kernel's gradient
    return _conv(op.output(), op.input(2))


def _depthwise(kernel: tuple[int, ...], result: tuple[int, ...]) -> float:
    """Depthwise convolution: kernel [height, width, channels, multiplier]; each output element sees one channel."""
    return 2.0 * elements(result) * elements(kernel[:2])


def _matmul(op: Op) -> float:
    a = op.input(0)
    if len(a) < 2:
        return 2.0 * elements(op.output())
    transposed = op.flag("transpose_a") or op.flag("adj_x")
    inner = a[-2] if transposed else a[-1]
    return 2.0 * elements(op.output()) * inner


def _einsum(op: Op) -> float:
    """Einsum: two operations for each point of the space that all its labels span."""
    inputs = op.text("equation").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for position, labels in enumerate(inputs):
        shape = op.input(position)
        named = labels.replace("...", "")
        # the dimensions of an ellipsis stand first: they are those that the named ones leave over
        rest = max(len(shape) - len(named), 0)
        sizes.update({f"...{i}": size for i, size in enumerate(shape[:rest])})
        sizes.update(zip(named, shape[rest:], strict=False))
    return 2.0 * math.prod(sizes.values())


def _per_output(count: float) -> Callable[[Op], float]:
    return lambda op: count * sum(elements(op.output(slot)) for slot in range(_outputs(op)))


def _per_input(count: float) -> Callable[[Op], float]:
    return lambda op: count * elements(op.input(0))


def _outputs(op: Op) -> int:
    return int(op.graph.op_tensors[op.v + 1] - op.graph.op_tensors[op.v])


def _pool(op: Op) -> float:
    """Pooling: one operation per window element and output element. V2 ops have no window here; they count outputs."""
    return _window(op) * elements(op.output())


def _pool_gradient(position: int) -> Callable[[Op], float]:
    """Pooling backwards: one operation per window element and element of the gradient, the input at `position`."""
    return lambda op: _window(op) * elements(op.input(position))


def _window(op: Op) -> float:
    size = op.graph.op_attrs[op.v].get("ksize", (1,))
    return float(math.prod(size)) if isinstance(size, tuple) else 1.0


def _sum_of_inputs(op: Op) -> float:
    return float(sum(elements(op.input(i)) for i in range(len(op.graph.inputs[op.v]))))


def _update(count: float) -> Callable[[Op], float]:
    """An optimizer's kernel: `count` operations per element of the largest operand."""
    return lambda op: count * max((elements(op.input(i)) for i in range(len(op.graph.inputs[op.v]))), default=0)


def _recurrent(sequence: int, *weights: int, passes: int = 1) -> Callable[[Op], float]:
    """A fused recurrent layer: a multiply-add per weight, step and example; the input is [..., features].

    Args:
      sequence: position of that input.
      *weights: positions of the weights.
      passes: 2 for gradients of both the input and the weights.
    """
    return lambda op: 2.0 * passes * elements(op.input(sequence)[:-1]) * sum(elements(op.input(w)) for w in weights)


def _lu(op: Op) -> float:
    a = op.input(0)
    return elements(a) * (a[-1] if a else 1) * 2 / 3


Rule = tuple[str, Callable[[Op], float]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NOTHING = _words(
    "Assign AssignVariableOp Bitcast BroadcastGradientArgs ConcatOffset Const ControlTrigger DeleteIterator "
    "EmptyTensorList EnsureShape Enter Exit ExpandDims Identity IdentityN Iterator IsVariableInitialized LoopCond "
    "Merge NextIteration NoOp Placeholder PlaceholderWithDefault PreventGradient Rank ReadVariableOp RefEnter "
    "RefExit RefIdentity RefMerge RefNextIteration RefSwitch Reshape Shape ShapeN Size Squeeze StopGradient "
    "Switch TensorListElementShape TensorListGetItem TensorListLength TensorListPopBack "
    "TensorListPushBack TensorListReserve TensorListSetItem VarHandleOp VarIsInitializedOp Variable VariableShape "
    "VariableV2"
)

_MOVES = _words(
    "BroadcastTo ConcatV2 Concat DynamicPartition DynamicStitch Fill Gather GatherNd GatherV2 MirrorPad OneHot "
    "Pack Pad PadV2 Range Reverse ReverseV2 ResourceGather ResourceGatherNd Roll Slice SpaceToBatchND "
    "BatchToSpaceND Split SplitV StridedSlice StridedSliceGrad TensorListFromTensor TensorListStack Tile Transpose "
    "Unpack ZerosLike OnesLike DeepCopy Where"
)

_COSTLY = _words(
    "Acos Asin Atan Atan2 Cos Cosh Digamma Erf Erfc Erfinv Exp Expm1 Gelu Lgamma Log Log1p LogSoftmax Ndtri "
    "Polygamma Pow Rsqrt Sigmoid Sin Sinh Sqrt Tan Tanh Elu Selu Softplus Softsign"
)

_RANDOM = _words(
    "Multinomial RandomStandardNormal RandomUniform RandomUniformInt StatelessRandomNormal StatelessRandomNormalV2 "
    "StatelessRandomUniform StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2 "
    "StatelessTruncatedNormalV2 TruncatedNormal"
)

_SCATTERS = _words(
    "ResourceScatterAdd ResourceScatterSub ScatterNd SegmentMean SegmentSum SparseSegmentMean SparseSegmentSum "
    "TensorScatterAdd TensorScatterUpdate UnsortedSegmentSum"
)

_REDUCTIONS = _words("All Any ArgMax ArgMin Cumprod Cumsum EuclideanNorm L2Loss Max Mean Min Prod Sum BiasAddGrad")

RULES: dict[str, Rule] = {
    **dict.fromkeys(_NOTHING, ("nothing", lambda op: 0.0)),
    **dict.fromkeys(_MOVES, ("move", lambda op: 0.0)),
    **dict.fromkeys(_COSTLY, ("elementwise", _per_output(8.0))),
    **dict.fromkeys(_REDUCTIONS, ("reduction", _per_input(1.0))),
    **dict.fromkeys(("Conv2D", "Conv3D", "_FusedConv2D"), ("conv", _conv_forward)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), ("conv", _conv_input_gradient)),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), ("conv", _conv_filter_gradient)),
    "DepthwiseConv2dNative": ("depthwise", lambda op: _depthwise(op.input(1), op.output())),
    "DepthwiseConv2dNativeBackpropInput": ("depthwise", lambda op: _depthwise(op.input(1), op.input(2))),
    "DepthwiseConv2dNativeBackpropFilter": ("depthwise", lambda op: _depthwise(op.output(), op.input(2))),
    **dict.fromkeys(
        ("MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul"), ("matmul", _matmul)
    ),
    "Einsum": ("matmul", _einsum),
    **dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), ("matmul", _recurrent(0, 3))),
    **dict.fromkeys(
        ("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"), ("matmul", _recurrent(0, 3, passes=2))
    ),
    **dict.fromkeys(("BlockLSTM", "BlockLSTMV2"), ("matmul", _recurrent(1, 4))),
    **dict.fromkeys(("BlockLSTMGrad", "BlockLSTMGradV2"), ("matmul", _recurrent(1, 4, passes=2))),
    "LSTMBlockCell": ("matmul", _recurrent(0, 3)),
    # gradients of the gates only; their products with the weights are ops of their own
    "LSTMBlockCellGrad": ("elementwise", _per_output(5.0)),
    # gradients of the input and the state; those of the weights are ops of their own
    **dict.fromkeys(("GRUBlockCell", "GRUBlockCellGrad"), ("matmul", _recurrent(0, 2, 3))),
    **dict.fromkeys(("AvgPool", "MaxPool", "MaxPoolV2", "AvgPool3D", "MaxPool3D"), ("pool", _pool)),
    **dict.fromkeys(("AvgPoolGrad", "AvgPool3DGrad"), ("pool", _pool_gradient(1))),
    **dict.fromkeys(("MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad"), ("pool", _pool_gradient(2))),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), ("normalisation", _per_input(8.0))),
    **dict.fromkeys(
        ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), ("normalisation", _per_input(16.0))
    ),
    "Softmax": ("elementwise", _per_output(12.0)),
    **dict.fromkeys(
        ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"), ("elementwise", _per_input(16.0))
    ),
    "AddN": ("elementwise", _sum_of_inputs),
    **dict.fromkeys(("SigmoidGrad", "TanhGrad", "RsqrtGrad", "SqrtGrad"), ("elementwise", _per_output(3.0))),
    **dict.fromkeys(("SquaredDifference", "BiasAdd"), ("elementwise", _per_output(2.0))),
    **dict.fromkeys(_RANDOM, ("random", _per_output(20.0))),
    **dict.fromkeys(
        ("ResizeBilinear", "ResizeBilinearGrad", "CropAndResize", "LRN"), ("elementwise", _per_output(8.0))
    ),
    **dict.fromkeys(
        ("AssignAddVariableOp", "AssignSubVariableOp", "AssignAdd", "AssignSub", "ApplyGradientDescent"),
        ("update", _update(1.0)),
    ),
    "ResourceApplyGradientDescent": ("update", _update(2.0)),
    **dict.fromkeys(
        ("ResourceApplyMomentum", "ResourceApplyKerasMomentum", "ApplyMomentum", "ResourceApplyAdagrad"),
        ("update", _update(4.0)),
    ),
    **dict.fromkeys(
        ("ResourceApplyAdam", "ApplyAdam", "ResourceApplyRMSProp", "ApplyRMSProp"), ("update", _update(12.0))
    ),
    **dict.fromkeys(_SCATTERS, ("scatter", _update(1.0))),
    **dict.fromkeys(("TopKV2", "Unique", "UniqueV2", "InTopKV2"), ("sort", _per_input(10.0))),
    **dict.fromkeys(("Cholesky", "MatrixInverse", "MatrixSolve", "Qr", "Svd"), ("linalg", _lu)),
}
"""Op types with a rule of their own; every other type counts one operation per output element ("elementwise")."""

NOTHING = "nothing"
"""The class of ops that only name, reshape or pass on a value."""

COPY: Rule = ("copy", lambda op: 0.0)
VIEW: Rule = (NOTHING, lambda op: 0.0)
FUNCTION: Rule = ("function", lambda op: 0.0)
"""What an op comes to by its place in the graph, whatever its type."""

DEFAULT: Rule = ("elementwise", _per_output(1.0))


def rule_of(op_type: str) -> Rule:
    """The class and the counting function of an op type."""
    return RULES.get(op_type, DEFAULT)
