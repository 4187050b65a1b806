"""Single ops that read rows of a batch: the table of `test_rules.py`.

A case is an op type with its inputs and attributes, by the names of `tf.raw_ops`. Inputs are made by:
  rows(...), whole(...): a tensor of this shape, in which "B" is the batch axis and "TB" stands for `STEPS` times the
    batch, of which the steps come first;
  total(...), average(...): the sum or mean over the batch of as many tensors of this shape;
  sizes(...): a constant of sizes, in which "B" is the batch size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

BATCH = 6
STEPS = 2


@dataclass(frozen=True)
class Tensor:
    """An input.

    Attributes:
      shape: sizes; "B" and "TB" as above.
      dtype: name.
      low: least value.
      high: values are less.
      over: "sum" or "mean" over the batch of tensors of this shape, or "".
    """

    shape: tuple[int | str, ...]
    dtype: str = "float64"
    low: float = -1.0
    high: float = 1.0
    over: str = ""

    @property
    def argument(self) -> tuple[tuple[int | str, ...], int | None]:
        """Shape of the function's argument that it is made of, and that one's batch axis."""
        if self.over:
            return ("B", *self.shape), 0
        if "TB" in self.shape:
            at = self.shape.index("TB")
            return (*self.shape[:at], STEPS, "B", *self.shape[at + 1 :]), at + 1
        return self.shape, self.shape.index("B") if "B" in self.shape else None

    def values(self, batch: int, random: np.random.Generator) -> Any:
        """An argument."""
        shape = sized(self.argument[0], batch)
        if self.dtype == "string":
            return np.array([str(n) for n in random.integers(0, 90, np.prod(shape, dtype=int))], object).reshape(shape)
        if np.dtype(self.dtype).kind in "iub":
            return random.integers(int(self.low), int(self.high), shape).astype(self.dtype)
        made = random.uniform(self.low, self.high, shape)
        return (
            made.astype(self.dtype) if "complex" not in self.dtype else (made + 1j * made[..., ::-1]).astype(self.dtype)
        )

    def of(self, argument: Any, batch: int) -> Any:
        """The input, of an argument."""
        if self.over:
            return (tf.reduce_sum if self.over == "sum" else tf.reduce_mean)(argument, 0)
        return tf.reshape(argument, sized(self.shape, batch)) if "TB" in self.shape else argument


@dataclass(frozen=True)
class Sizes:
    """A constant of sizes."""

    shape: tuple[int | str, ...]
    dtype: str = "int32"

    def of(self, batch: int) -> Any:
        return tf.constant(sized(self.shape, batch), self.dtype)


@dataclass(frozen=True)
class Case:
    """An op, its inputs and attributes.

    Attributes:
      op: type.
      given: argument of `tf.raw_ops` -> what is given.
      copied: whether each slice is to have the op; else it stands once.
      defined: outputs that count, if others are left as the memory was.
    """

    op: str
    given: dict[str, Any]
    copied: bool = True
    defined: int | None = None

    @property
    def tensors(self) -> list[Tensor]:
        return [
            t
            for value in self.given.values()
            for t in (value if isinstance(value, list) else [value])
            if isinstance(t, Tensor)
        ]

    def build(self, arguments: Iterator[Any], batch: int, name: str) -> list[Any]:
        """The op on arguments; its outputs."""

        def made(value: Any) -> Any:
            if isinstance(value, list) and value and isinstance(value[0], Tensor):
                return [made(one) for one in value]
            if isinstance(value, Tensor):
                return value.of(next(arguments), batch)
            return value.of(batch) if isinstance(value, Sizes) else value

        out = getattr(tf.raw_ops, self.op)(**{key: made(value) for key, value in self.given.items()}, name=name)
        return [out] if tf.is_tensor(out) else [*out][: self.defined]

    def with_tensors(self, tensors: list[Tensor]) -> Case:
        """The same op of other inputs."""
        left = iter(tensors)

        def changed(value: Any) -> Any:
            if isinstance(value, list) and value and isinstance(value[0], Tensor):
                return [next(left) for _ in value]
            return next(left) if isinstance(value, Tensor) else value

        return replace(self, given={key: changed(value) for key, value in self.given.items()})


def sized(shape: tuple[int | str, ...], batch: int) -> tuple[int, ...]:
    """A shape for a batch."""
    return tuple({"B": batch, "TB": STEPS * batch}.get(n, n) if isinstance(n, str) else n for n in shape)


def rows(*shape: int | str, dtype: str = "float64", low: float = -1.0, high: float = 1.0) -> Tensor:
    return Tensor(shape, dtype, low, high)


whole = rows


def ints(*shape: int | str, high: int, dtype: str = "int32") -> Tensor:
    return Tensor(shape, dtype, 0, high)


def bools(*shape: int | str) -> Tensor:
    return Tensor(shape, "bool", 0, 2)


def total(*shape: int, dtype: str = "float64") -> Tensor:
    return Tensor(shape, dtype, over="sum")


def average(*shape: int) -> Tensor:
    return Tensor(shape, over="mean")


def sizes(*shape: int | str, dtype: str = "int32") -> Sizes:
    return Sizes(shape, dtype)


def case(op: str, copied: bool = True, **given: Any) -> Case:
    return Case(op, given, copied)


def _each(kinds: str, *inputs: Tensor, **attributes: Any) -> list[Case]:
    """Cases of ops whose inputs come first, whatever their names are."""
    return [Case(kind, dict(zip(names(kind), inputs, strict=False)) | attributes) for kind in kinds.split()]


def names(kind: str) -> list[str]:
    """Of an op's arguments."""
    import inspect

    return list(inspect.signature(getattr(tf.raw_ops, kind)).parameters)


X = rows("B", 3)
TIME = rows("TB", 3)
POSITIVE = rows("B", 3, low=0.1, high=0.9)
IMAGES = rows("B", 4, 4, 2)
VOLUMES = rows("B", 4, 4, 4, 2, dtype="float32")
SMALL = rows("B", 4, 4, 2, dtype="float32")
COARSE = rows("B", 2, 2, 2, 3, dtype="float32")
POOLED = rows("B", 2, 2, 2, 2, dtype="float32")
ROUND = {"strides": [1, 2, 2, 1], "padding": "SAME"}
POOL = {"ksize": [1, 2, 2, 1], **ROUND}
DEEP = {"strides": [1, 2, 2, 2, 1], "padding": "SAME"}
POOL3 = {"ksize": [1, 2, 2, 2, 1], **DEEP}

UNARY = [
    *_each("Abs Acos Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1", X),
    *_each("Floor Inv IsFinite IsInf IsNan LeakyRelu Lgamma Reciprocal Relu Relu6 Rint Round Selu Sigmoid Sign", X),
    *_each("Sin Sinh Softplus Softsign Square Tan Tanh OnesLike ZerosLike", X),
    *_each("Log Log1p Rsqrt Sqrt Ndtri", POSITIVE),
    case("DebugIdentity", input=X, tensor_name="x:0"),
    case("Acosh", x=rows("B", 3, low=1.0, high=3.0)),
    case("CheckNumerics", tensor=X, message="none"),
    *_each("Conj", rows("B", 3, dtype="complex128")),
    *_each("Real Imag ComplexAbs", rows("B", 3, dtype="complex128"), Tout=tf.float64),
    case("Invert", x=ints("B", 3, high=90)),
    case("LogicalNot", x=bools("B", 3)),
    case("AsString", input=ints("B", 3, high=90)),
    *_each("StringLength StringLower StringStrip StringUpper", rows("B", 3, dtype="string")),
    case("StringToHashBucketFast", input=rows("B", dtype="string"), num_buckets=7),
    case("StringToHashBucketStrong", input=rows("B", dtype="string"), num_buckets=7, key=[1, 2]),
    case("StringToNumber", string_tensor=rows("B", dtype="string")),
    case("StaticRegexFullMatch", input=rows("B", dtype="string"), pattern="1.*"),
    case("StaticRegexReplace", input=rows("B", dtype="string"), pattern="1", rewrite="x"),
]

BINARY = [
    *_each("Add AddV2 Atan2 DivNoNan EluGrad Equal Greater GreaterEqual InvGrad LeakyReluGrad Less LessEqual", X, X),
    *_each("Maximum Minimum MulNoNan NextAfter NotEqual ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad", X, X),
    *_each("SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference Sub TanhGrad RealDiv Mul Div", X, X),
    *_each("FloorDiv FloorMod Mod TruncateMod Igamma Igammac Pow Xdivy Xlog1py Xlogy", POSITIVE, POSITIVE),
    case("Zeta", x=rows("B", 3, low=1.5, high=3.0), q=POSITIVE),
    case("Polygamma", a=ints("B", 3, high=3, dtype="float64"), x=POSITIVE),
    case("TruncateDiv", x=ints("B", 3, high=90), y=rows("B", 3, dtype="int32", low=1, high=9)),
    case("Complex", real=X, imag=X, Tout=tf.complex128),
    *_each("BitwiseAnd BitwiseOr BitwiseXor", ints("B", 3, high=90), ints("B", 3, high=90)),
    *_each("LeftShift RightShift", ints("B", 3, high=90), ints("B", 3, high=4)),
    *_each("LogicalAnd LogicalOr", bools("B", 3), bools("B", 3)),
    *_each("Mul Sub Maximum", X, whole(3)),
    *_each("Mul Sub Maximum", X, whole()),
    *_each("Mul Sub Maximum", TIME, TIME),
    *_each("Mul Sub Maximum", rows("B", 1, 3), rows("B", 4, 1)),
    *_each("Mul Sub Maximum", rows("B"), whole(4, 1)),
]

OTHERS = [
    case("Betainc", a=POSITIVE, b=POSITIVE, x=POSITIVE),
    case("ClipByValue", t=X, clip_value_min=whole(low=-0.5, high=-0.4), clip_value_max=whole(low=0.4, high=0.5)),
    case("SelectV2", condition=bools("B", 1), t=X, e=whole(3)),
    case("SelectV2", condition=bools("TB", 3), t=TIME, e=TIME),
    case("Select", condition=bools("B"), x=X, y=X),
    case("Select", condition=bools("B", 3), x=X, y=X),
    case("Select", condition=bools(4), x=rows(4, "B"), y=rows(4, "B")),
]

LINEAR = [
    *_each("Identity Neg PreventGradient Snapshot StopGradient", X),
    *_each("Neg Snapshot", total(3)),
    *_each("Neg Snapshot", average(3)),
    *_each("Add AddV2 Sub", total(3), total(2, 3)),
    *_each("Add AddV2 Sub", average(3), average(3)),
    case("AddN", inputs=[X, X, X]),
    case("AddN", inputs=[total(3), total(3)]),
    case("IdentityN", input=[X, whole(2), rows("TB", 2)]),
    case("IdentityN", input=[total(3), total(2)]),
    case("IdentityN", input=[X, whole(2), total(3)]),
    case("Cast", x=X, DstT=tf.float32),
    case("Cast", x=X, DstT=tf.int32),
    case("Cast", x=total(3), DstT=tf.float32),
    case("Cast", x=total(3), DstT=tf.int32, copied=False),
    case("Bitcast", input=X, type=tf.int64),
    case("PlaceholderWithDefault", input=X, shape=[None, 3]),
]

LAYOUT = [
    case("Reshape", tensor=rows("B", 4, 3), shape=sizes("B", 12)),
    case("Reshape", tensor=rows("B", 4, 3), shape=sizes("B", 2, 2, 3)),
    case("Reshape", tensor=rows(4, "B", 3), shape=sizes(2, 2, "B", 3)),
    case("Reshape", tensor=rows("TB", 3), shape=sizes(STEPS, "B", 3)),
    case("Reshape", tensor=rows("TB", 4), shape=sizes("TB", 2, 2)),
    case("Reshape", tensor=rows("TB"), shape=sizes("B", 2), copied=False),
    case("Reshape", tensor=rows("B", 4), shape=sizes(2, "TB"), copied=False),
    case("Reshape", tensor=rows("B", 4), shape=[-1, 2, 2]),
    case("Reshape", tensor=rows("B", 4), shape=[-1, 2]),
    case("Reshape", tensor=total(4), shape=[2, 2]),
    case("ExpandDims", input=X, axis=0),
    case("ExpandDims", input=TIME, axis=-1),
    case("ExpandDims", input=total(3), axis=0),
    case("Squeeze", input=rows(1, "B", 1, 3), axis=[0, 2]),
    case("Squeeze", input=rows("B", 1, 3), axis=[], copied=False),
    case("Squeeze", input=total(1, 3), axis=[]),
    case("Transpose", x=rows("B", 4, 3), perm=[1, 2, 0]),
    case("Transpose", x=TIME, perm=[1, 0]),
    case("Transpose", x=total(4, 3), perm=[1, 0]),
    case("Pack", values=[X, X], axis=0),
    case("Pack", values=[TIME, TIME], axis=-1),
    case("Pack", values=[average(3), average(3)], axis=0),
    case("Unpack", value=X, num=3, axis=1),
    case("Unpack", value=rows(3, "B"), num=3, axis=0),
    case("Unpack", value=total(3), num=3, axis=0),
    case("ConcatV2", values=[X, rows("B", 4)], axis=1),
    case("ConcatV2", values=[TIME, TIME], axis=-1),
    case("ConcatV2", values=[total(3), total(2)], axis=0),
    case("ConcatV2", values=[X, X], axis=0, copied=False),
    case("Split", axis=1, value=rows("B", 4), num_split=2),
    case("Split", axis=0, value=total(4), num_split=2),
    case("SplitV", value=rows("B", 4), size_splits=[1, 3], axis=1, num_split=2),
    case("SplitV", value=total(4), size_splits=[1, 3], axis=0, num_split=2),
    case("Slice", input=rows("B", 4), begin=[0, 1], size=[-1, 2]),
    case("Slice", input=rows("B", 4), begin=[0, 1], size=sizes("B", 2)),
    case("Slice", input=total(4), begin=[1], size=[2]),
    case("Slice", input=rows("B", 9), begin=sizes(0, "B"), size=[-1, 2]),
    case("Slice", input=rows("B", 9), begin=sizes(0, "B"), size=sizes("B", 2), copied=False),
    case("StridedSlice", input=rows("B", 4), begin=[0, 1], end=[0, 3], strides=[1, 2], begin_mask=1, end_mask=1),
    case("StridedSlice", input=rows("B", 4), begin=[0, 1], end=sizes("B", 3), strides=[1, 1]),
    case(
        "StridedSlice",
        input=rows(4, "B", 3),
        begin=[2, 0, 1],
        end=[3, 0, 3],
        strides=[1] * 3,
        ellipsis_mask=2,
        shrink_axis_mask=1,
    ),
    case(
        "StridedSlice", input=rows("B", 4), begin=[0, 0], end=[0, 0], strides=[1, 1], new_axis_mask=1, ellipsis_mask=2
    ),
    case("StridedSlice", input=total(4), begin=[1], end=[3], strides=[1]),
    case("StridedSlice", input=rows("B", 9), begin=sizes(0, "B"), end=[0, 9], strides=[1, 1], end_mask=3, copied=False),
    case("StridedSlice", input=rows("B", 3), begin=[0, 2], end=sizes("B", "B"), strides=[1, 1], copied=False),
    case(
        "StridedSliceGrad",
        shape=sizes("B", 4),
        begin=[0, 1],
        end=[0, 3],
        strides=[1, 1],
        dy=rows("B", 2),
        begin_mask=1,
        end_mask=1,
    ),
    case("StridedSliceGrad", shape=[4], begin=[1], end=[3], strides=[1], dy=total(2)),
    case("Pad", input=X, paddings=[[0, 0], [1, 2]]),
    case("Pad", input=total(3), paddings=[[1, 2]]),
    case("PadV2", input=TIME, paddings=[[0, 0], [1, 2]], constant_values=whole()),
    case("PadV2", input=total(3), paddings=[[1, 2]], constant_values=whole(), copied=False),
    case("MirrorPad", input=X, paddings=[[0, 0], [1, 2]], mode="REFLECT"),
    case("MirrorPad", input=total(3), paddings=[[1, 2]], mode="REFLECT"),
    case("MirrorPadGrad", input=rows("B", 6), paddings=[[0, 0], [1, 2]], mode="REFLECT"),
    case("Tile", input=X, multiples=[1, 2]),
    case("Tile", input=whole(2, 3), multiples=sizes("B", 2)),
    case("BroadcastTo", input=rows("B", 1), shape=sizes(4, "B", 3)),
    case("BroadcastTo", input=whole(3), shape=sizes("B", 3)),
    case("Fill", dims=sizes("B", 3), value=whole()),
    case("EnsureShape", input=X, shape=[None, 3]),
    case("EnsureShape", input=total(3), shape=[3]),
    case("StridedSlice", input=rows("B", 3), begin=[0, 0], end=sizes(0, "B"), strides=[1, 1], new_axis_mask=1),
    case("Shape", input=X),
    case("ShapeN", input=[X, whole(2)]),
    case("Size", input=X),
    case("Rank", input=X),
]

MATRICES = [
    *_each("MatrixBandPart", rows("B", 3, 3), num_lower=1, num_upper=-1),
    case("MatrixDiagPartV3", input=rows("B", 3, 3), k=1, padding_value=np.float64(0)),
    case("MatrixDiagV3", diagonal=X, k=0, num_rows=-1, num_cols=-1, padding_value=np.float64(7)),
    case("MatrixSetDiagV3", input=rows("B", 3, 3), diagonal=X, k=0),
    *_each("MatrixDiag", TIME),
    case("Cholesky", input=rows("B", 1, 1, low=0.5, high=2.0)),
    *_each("MatrixDiagPart", rows("TB", 3, 3)),
]

REDUCTIONS = [
    *[
        case(op, input=rows("B", 4, 3), axis=[1], keep_dims=keep)
        for op in ["Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"]
        for keep in (True, False)
    ],
    *[case(op, input=rows(4, "B", 3), axis=[-1, 0]) for op in ["Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"]],
    *[case(op, input=bools("B", 3), axis=[1]) for op in ("All", "Any")],
    *[case(op, input=TIME, axis=axis) for op in ("Sum", "Mean") for axis in ([0], [0, 1])],
    *[case(op, input=rows("B", 4, 3), axis=[0, 2], keep_dims=True) for op in ("Sum", "Mean")],
    *[case(op, input=given, axis=[0]) for op in ("Sum", "Mean") for given in (total(4, 3), average(4, 3))],
    *[case(op, input=X, axis=[0], copied=False) for op in ["Prod", "Max", "Min", "EuclideanNorm"]],
    *[case(op, input=bools("B", 3), axis=[0], copied=False) for op in ("All", "Any")],
    case("Mean", input=ints("B", 3, high=90), axis=[0], copied=False),
    case("Mean", input=rows("B", 3, dtype="complex128"), axis=[0]),
    case("Sum", input=ints("B", 3, high=90), axis=[0]),
    case("Max", input=total(3), axis=[0], copied=False),
    *_each("ArgMax ArgMin", X, dimension=1),
    *_each("ArgMax ArgMin", rows(3, "B"), dimension=0),
    *_each("Cumsum Cumprod", TIME, axis=1),
    case("ReverseV2", tensor=X, axis=[1]),
    *_each("Cumsum", total(3), axis=0),
    case("ReverseV2", tensor=average(3), axis=[0]),
    case("Roll", input=X, shift=1, axis=1),
    case("Roll", input=total(3), shift=1, axis=0),
    *_each("Softmax LogSoftmax", X),
    *_each("TopKV2", X, k=2),
    case("InTopKV2", predictions=rows("B", 3, dtype="float32"), targets=ints("B", high=3), k=2),
    case("SparseSoftmaxCrossEntropyWithLogits", features=X, labels=ints("B", high=3)),
    case("SoftmaxCrossEntropyWithLogits", features=TIME, labels=TIME),
    *_each("L2Loss", X),
    *_each("BiasAddGrad", rows("B", 4, 3)),
    *_each("BiasAddGrad", total(4, 3)),
]

GATHERS = [
    case("GatherV2", params=whole(5, 3), indices=ints("B", 2, high=5), axis=0),
    case("GatherV2", params=whole(3, 5), indices=ints("TB", high=5), axis=-1),
    case("GatherV2", params=rows("B", 5, 2), indices=ints("B", 3, high=5), axis=1, batch_dims=1),
    case("GatherV2", params=rows("B", 5, 2), indices=ints(3, high=5), axis=1),
    case("GatherV2", params=rows(5, "B"), indices=ints(3, 2, high=5), axis=0),
    *_each("Gather", whole(5, 3), ints("B", high=5)),
    *_each("GatherNd", whole(5, 3, 2), ints("B", 2, high=3)),
    *_each("UnsortedSegmentSum", X, ints("B", high=4), num_segments=4),
    *_each("UnsortedSegmentSum", TIME, ints("TB", high=4), num_segments=4),
    *_each("UnsortedSegmentSum", rows(5, "B"), ints(5, high=4), num_segments=4),
    case("ScatterNd", indices=ints("B", 1, high=4), updates=X, shape=[4, 3]),
    case("DenseBincount", input=ints("B", high=4), size=4, weights=whole(0)),
    case("DenseBincount", input=ints("B", high=4), size=4, weights=rows("B")),
    case("DenseBincount", input=ints("B", 3, high=4), size=4, weights=whole(0)),
    case("DenseBincount", input=ints("B", high=4), size=4, weights=whole(0), binary_output=True, copied=False),
    *_each("OneHot", ints("B", high=4), depth=4, on_value=np.float64(1), off_value=np.float64(0)),
    *_each("OneHot", ints(2, "B", high=4), depth=4, on_value=np.float64(1), off_value=np.float64(0), axis=0),
]

PRODUCTS = [
    case("MatMul", a=rows("B", 4), b=whole(4, 3)),
    case("MatMul", a=rows(4, "B"), b=whole(4, 3), transpose_a=True),
    case("MatMul", a=whole(3, 4), b=rows("B", 4), transpose_b=True),
    case("MatMul", a=rows("B", 4), b=rows("B", 3), transpose_a=True),
    case("MatMul", a=TIME, b=TIME, transpose_a=True),
    case("MatMul", a=X, b=X, transpose_b=True, copied=False),
    *_each("BatchMatMul BatchMatMulV2", rows("B", 4, 3), rows("B", 3, 2)),
    *_each("BatchMatMulV2", rows(2, "B", 4, 3), rows("B", 3, 2)),
    *_each("BatchMatMulV2", rows("B", 4, 3), whole(3, 2)),
    *_each("BatchMatMulV2", rows("TB", 4, 3), whole(2, 3), adj_y=True),
    *_each("BatchMatMulV2", rows(2, 4, "B"), rows(2, "B", 3)),
    *_each("BatchMatMulV3", rows("B", 4, 3), rows("B", 3, 2), Tout=tf.float64),
    case("Einsum", inputs=[rows("B", 4, 3), whole(3, 2)], equation="bij,jk->bik"),
    case("Einsum", inputs=[rows("B", 4, 3), rows("B", 4, 2)], equation="bij,bik->kj"),
    case("Einsum", inputs=[rows("TB", 4), rows("TB", 2)], equation="bi,bk->ikb"),
    case("Conv2D", input=IMAGES, filter=whole(3, 3, 2, 3), **ROUND),
    case("Conv3D", input=VOLUMES, filter=whole(3, 3, 3, 2, 3, dtype="float32"), **DEEP),
    case("DepthwiseConv2dNative", input=IMAGES, filter=whole(3, 3, 2, 2), **ROUND),
    case("Dilation2D", input=IMAGES, filter=whole(3, 3, 2), rates=[1, 1, 1, 1], **ROUND),
    case("Conv2DBackpropFilter", input=IMAGES, filter_sizes=[3, 3, 2, 3], out_backprop=rows("B", 2, 2, 3), **ROUND),
    case("Conv3DBackpropFilterV2", input=VOLUMES, filter_sizes=[3, 3, 3, 2, 3], out_backprop=COARSE, **DEEP),
    case(
        "DepthwiseConv2dNativeBackpropFilter",
        input=IMAGES,
        filter_sizes=[3, 3, 2, 2],
        out_backprop=rows("B", 2, 2, 4),
        **ROUND,
    ),
    case(
        "Conv2DBackpropInput",
        input_sizes=sizes("B", 4, 4, 2),
        filter=whole(3, 3, 2, 3),
        out_backprop=rows("B", 2, 2, 3),
        **ROUND,
    ),
    case(
        "Conv3DBackpropInputV2",
        input_sizes=sizes("B", 4, 4, 4, 2),
        filter=whole(3, 3, 3, 2, 3, dtype="float32"),
        out_backprop=COARSE,
        **DEEP,
    ),
    case(
        "DepthwiseConv2dNativeBackpropInput",
        input_sizes=sizes("B", 4, 4, 2),
        filter=whole(3, 3, 2, 2),
        out_backprop=rows("B", 2, 2, 4),
        **ROUND,
    ),
    case("BiasAdd", value=rows("B", 4, 3), bias=whole(3)),
    case("BiasAdd", value=rows("B", 3, 4, 4), bias=whole(3), data_format="NCHW"),
]

COLORS = rows("B", 4, 4, 3, dtype="float32", low=0.0, high=0.9)
LARGE = rows("B", 8, 8, 2, dtype="float32")
PICTURES = [
    case("AvgPool", value=IMAGES, **POOL),
    case("AvgPool3D", input=VOLUMES, **POOL3),
    case("MaxPool", input=IMAGES, **POOL),
    case("MaxPool", input=rows("TB", 4, 4, 2), **POOL),
    case("MaxPoolV2", input=IMAGES, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME"),
    case("MaxPool3D", input=VOLUMES, **POOL3),
    *_each("MaxPoolGrad", IMAGES, rows("B", 2, 2, 2), rows("B", 2, 2, 2), **POOL),
    *_each("MaxPoolGradV2", IMAGES, rows("B", 2, 2, 2), rows("B", 2, 2, 2), **POOL),
    *_each("MaxPoolGradGrad MaxPoolGradGradV2", IMAGES, rows("B", 2, 2, 2), IMAGES, **POOL),
    *_each("MaxPool3DGrad", VOLUMES, POOLED, POOLED, **POOL3),
    *_each("MaxPool3DGradGrad", VOLUMES, POOLED, VOLUMES, **POOL3),
    case("AvgPoolGrad", orig_input_shape=sizes("B", 4, 4, 2), grad=rows("B", 2, 2, 2), **POOL),
    case("AvgPool3DGrad", orig_input_shape=sizes("B", 4, 4, 4, 2), grad=POOLED, **POOL3),
    *_each("AdjustContrastv2 AdjustHue AdjustSaturation", COLORS, whole(dtype="float32", low=0.2, high=0.3)),
    case(
        "AdjustContrastv2",
        images=rows("B", 4, 3, dtype="float32"),
        contrast_factor=whole(dtype="float32", low=0.2, high=0.3),
        copied=False,
    ),
    *_each("HSVToRGB RGBToHSV", COLORS),
    *_each("DepthToSpace", rows("B", 2, 2, 4), block_size=2),
    *_each("SpaceToDepth", IMAGES, block_size=2),
    *_each(
        "ExtractImagePatches", IMAGES, ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID"
    ),
    *_each("LRN", SMALL),
    *_each("LRNGrad", SMALL, SMALL, SMALL),
    *_each("ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor", SMALL, size=[8, 6]),
    *_each("ResizeBicubicGrad ResizeBilinearGrad", LARGE, SMALL),
    *_each("ResizeNearestNeighborGrad", LARGE, size=[4, 4]),
    *_each("SpaceToBatchND", IMAGES, block_shape=[2, 2], paddings=[[0, 0], [0, 0]]),
    *_each("BatchToSpaceND", rows("TB", 4, 2), block_shape=[STEPS], crops=[[0, 0]]),
]

STATISTICS = {
    "scale": whole(2, dtype="float32"),
    "offset": whole(2, dtype="float32"),
    "mean": whole(2, dtype="float32"),
}
NORMS = [
    replace(
        case(kind, x=SMALL, **STATISTICS, variance=whole(2, dtype="float32", low=0.5, high=0.9), is_training=False),
        defined=1,
    )
    for kind in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
]

TABLE = {
    "unary": UNARY,
    "binary": BINARY,
    "others": OTHERS,
    "linear": LINEAR,
    "layout": LAYOUT,
    "matrices": MATRICES,
    "reductions": REDUCTIONS,
    "gathers": GATHERS,
    "products": PRODUCTS,
    "pictures": PICTURES,
    "norms": NORMS,
}


def elsewhere(cases: list[Case], most: int) -> list[Case]:
    """The same ops with their batch along any axes of their inputs, as steps of several batches, or summed over.

    Args:
      cases: some.
      most: variants of one case, of which more are drawn at random.
    """
    random = np.random.default_rng(0)
    found = []
    for one in cases:
        every = [*itertools.product(*map(_elsewhere, one.tensors))]
        picked = random.permutation(len(every))[:most]
        found += [variant for i in sorted(picked) if _runs(variant := one.with_tensors([*every[i]]))]
    return found


def _elsewhere(tensor: Tensor) -> list[Tensor]:
    fixed = sized(tensor.shape, BATCH)
    out = [
        replace(tensor, shape=(*fixed[:axis], size, *fixed[axis + 1 :]))
        for axis in range(len(fixed))
        for size in ("B", "TB")
    ]
    out += [
        replace(tensor, shape=fixed, over=over)
        for over in ("sum", "mean")
        if tensor.dtype.startswith(("float", "complex"))
    ]
    return [replace(tensor, shape=fixed), *out]


def _runs(one: Case) -> bool:
    """Whether some input depends on the batch, the shapes fit for any batch, and the kernel takes them."""
    if all(tensor.argument[1] is None for tensor in one.tensors):
        return False
    random = np.random.default_rng(0)
    try:
        for batch in (BATCH, BATCH // 2, BATCH // 3):
            one.build((tf.constant(t.values(batch, random)) for t in one.tensors), batch, "op")
    except (ValueError, TypeError, tf.errors.InvalidArgumentError):
        return False
    return True
