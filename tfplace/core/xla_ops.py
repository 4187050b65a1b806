"""Which ops XLA can compile as parts of a cluster.

TensorFlow 2.21 registers the same kernels for its XLA devices of CPUs and GPUs; `tests/execution/test_clusters.py` asks
the installed one. Of those are left out what would not do the same or cannot be a part of a cluster: control flow and
calls, draws that keep their state in the kernel (XLA would ignore their seed), results whose size depends on values,
lists and stacks, which live in loops, assertions (XLA drops them), and what speaks to other devices.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DRAWS = _words("""
StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt
StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2
StatelessTruncatedNormal StatelessTruncatedNormalV2
""")
"""Draws of numbers without a state."""

COMPILABLE = _words("""
Abs Acos Acosh Add AddN AddV2 AdjustContrastv2 AdjustHue AdjustSaturation All Angle Any ApproxTopK ApproximateEqual
ArgMax ArgMin Asin Asinh AssignAddVariableOp AssignSubVariableOp AssignVariableOp Atan Atan2 Atanh AvgPool AvgPool3D
AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2 BatchMatMulV3 BatchToSpace BatchToSpaceND BesselI0e BesselI1e
Betainc BiasAdd BiasAddGrad BiasAddV1 Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs
BroadcastGradientArgs BroadcastTo Bucketize Cast Ceil Cholesky ClipByValue Complex ComplexAbs Concat
ConcatOffset ConcatV2 Conj ConjugateTranspose Const Conv Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D
Conv3DBackpropFilterV2 Conv3DBackpropInputV2 Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp DataFormatDimMap
DataFormatVecPermute DenseBincount DepthToSpace DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
DepthwiseConv2dNativeBackpropInput Diag DiagPart Digamma Div DivNoNan DynamicStitch Einsum Elu EluGrad Empty
EnsureShape Equal Erf Erfc Erfinv Exp ExpandDims Expm1 ExtractImagePatches FFT FFT2D FFT3D FakeQuantWithMinMaxArgs
FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient
FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient Fill Floor FloorDiv FloorMod
FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 Gather
GatherNd GatherV2 Greater GreaterEqual HSVToRGB IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D Identity IdentityN Igamma
IgammaGradA Igammac Imag InTopKV2 Inv Invert InvertPermutation IsFinite IsInf IsNan L2Loss LRN LRNGrad LeakyRelu
LeakyReluGrad LeftShift Less LessEqual Lgamma LinSpace Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr
LowerBound MatMul MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
MatrixDiagV3 MatrixInverse MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixTriangularSolve Max
MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradV2
MaxPoolV2 Maximum Mean Min Minimum MirrorPad MirrorPadGrad Mod Mul MulNoNan Ndtri Neg NextAfter NoOp NotEqual OneHot
OnesLike Pack Pad PadV2 ParallelDynamicStitch Polygamma PopulationCount Pow PreventGradient Prod Qr
QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 RFFT RFFT2D RFFT3D RGBToHSV RandomGammaGrad
Range Rank ReadVariableOp Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Reshape
ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResourceApplyAdaMax ResourceApplyAdadelta
ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyAddSign
ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyGradientDescent
ResourceApplyKerasMomentum ResourceApplyMomentum ResourceApplyPowerSign ResourceApplyProximalAdagrad
ResourceApplyProximalGradientDescent ResourceApplyRMSProp ResourceGather ResourceScatterAdd ResourceScatterDiv
ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdSub
ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate ResourceStridedSliceAssign Reverse ReverseSequence
ReverseV2 RightShift Rint RngReadAndSkip RngSkip Roll Round Rsqrt RsqrtGrad ScatterNd SegmentMaxV2 SegmentMinV2
SegmentProdV2 SegmentSumV2 Select SelectV2 SelfAdjointEigV2 Selu SeluGrad Shape ShapeN Sigmoid SigmoidGrad Sign Sin
Sinh Size Slice Snapshot Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
SpaceToBatch SpaceToBatchND SpaceToDepth SparseMatMul SparseSoftmaxCrossEntropyWithLogits SparseToDense Split SplitV
Sqrt SqrtGrad Square SquaredDifference Squeeze StatelessMultinomial StatelessParameterizedTruncatedNormal
StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal
StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
StatelessTruncatedNormalV2 StopGradient StridedSlice StridedSliceGrad Sub Sum Svd Tan Tanh TanhGrad TensorScatterAdd
TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile TopKV2
Transpose TridiagonalMatMul TridiagonalSolve TruncateDiv TruncateMod Unpack UnsortedSegmentMax UnsortedSegmentMin
UnsortedSegmentProd UnsortedSegmentSum UpperBound VarIsInitializedOp VariableShape Xdivy XlaConv XlaConvV2 XlaDot
XlaDotV2 XlaDynamicSlice XlaDynamicUpdateSlice XlaEinsum XlaGather XlaKeyValueSort XlaOptimizationBarrier XlaPad
XlaScatter XlaSort Xlog1py Xlogy ZerosLike Zeta
""")
"""Op types that can be part of a cluster."""

LISTS = _words("""
EmptyTensorList TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem
TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListSetItem TensorListSplit
TensorListStack
""")
"""Op types on lists of tensors, which can be part of a cluster that has all ops on the list."""

EMPTY_LISTS = frozenset({"EmptyTensorList", "TensorListReserve"})
"""Op types that make a list without tensors: of a constant size they are as good as constants."""

COMPILE_TIME: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_words("All Any ArgMax ArgMin Cumprod Cumsum CumulativeLogsumexp ExpandDims Max Mean Min"), (1,)),
    **dict.fromkeys(_words("BroadcastTo EmptyTensorList MirrorPad MirrorPadGrad OneHot Pad PadV2 Prod Reshape"), (1,)),
    **dict.fromkeys(_words("ResizeBilinear ResizeNearestNeighbor ReverseV2 Sum Tile TopKV2 Transpose"), (1,)),
    **dict.fromkeys(_words("ConjugateTranspose InTopKV2 TensorListFromTensor TensorListStack"), (1,)),
    **dict.fromkeys(_words("Concat ConcatOffset Empty Fill Split"), (0,)),
    **dict.fromkeys(_words("StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform"), (0,)),
    **dict.fromkeys(_words("StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2"), (0,)),
    **dict.fromkeys(_words("StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2"), (0,)),
    **dict.fromkeys(_words("StatelessTruncatedNormal StatelessTruncatedNormalV2"), (0,)),
    **dict.fromkeys(_words("GatherV2 ScatterNd UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd"), (2,)),
    **dict.fromkeys(_words("LinSpace SegmentMaxV2 SegmentMinV2 SegmentProdV2 SegmentSumV2 Slice"), (2,)),
    **dict.fromkeys(_words("UnsortedSegmentSum"), (2,)),
    **dict.fromkeys(_words("Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput"), (0,)),
    **dict.fromkeys(_words("Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter"), (1,)),
    **dict.fromkeys(_words("AvgPoolGrad AvgPool3DGrad"), (0,)),
    "ConcatV2": (-1,),
    "DynamicStitch": (0,),
    "Range": (0, 1, 2),
    "SplitV": (1, 2),
    "StridedSlice": (3,),
    "StridedSliceGrad": (0, 3),
    "TensorListReserve": (0, 1),
}
"""Op type -> inputs, such as sizes and axes, that XLA has to know when it compiles.

Of those that depend on data it takes the values as a part of what it compiles, and so compiles anew for other values.
"""

SHAPES = _words("Rank Shape ShapeN Size TensorListElementShape TensorListLength VariableShape")
"""Op types whose results are known when XLA compiles, whatever they read."""
