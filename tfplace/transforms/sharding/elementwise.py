"""Ops of one element each, with broadcasting; and those through which terms of a sum may pass."""

from __future__ import annotations

import dataclasses

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule, words
from tfplace.transforms.sharding.state import Kind, Sharding

_UNARY = words("""
Abs Acos Acosh AsString Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil CheckNumerics ComplexAbs Conj Cos Cosh
DebugIdentity Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor Imag Inv Invert
IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Ndtri OnesLike Real Reciprocal Relu Relu6 Rint Round Rsqrt
Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square StringLength StringLower StringStrip StringToHashBucketFast
StringToHashBucketStrong StringToNumber StringUpper StaticRegexFullMatch StaticRegexReplace Tan Tanh ZerosLike
""")

_BINARY = words("""
Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex DivNoNan EluGrad Equal FloorDiv FloorMod Greater GreaterEqual Igamma
Igammac InvGrad LeakyReluGrad LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod MulNoNan NextAfter
NotEqual Polygamma Pow ReciprocalGrad Relu6Grad ReluGrad RightShift RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad
SoftsignGrad SqrtGrad SquaredDifference TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
""")

_TERNARY = words("""
Betainc ClipByValue SelectV2
""")

_LINEAR = words("""
Add AddN AddV2 Bitcast Cast Identity Neg PlaceholderWithDefault PreventGradient Snapshot StopGradient Sub
""")

_LINEAR_IN_LAST = ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad")
_DIVISIONS = ("Div", "DivNoNan", "RealDiv")

_PRODUCTS = words("""
Div Mul RealDiv
""")


@rule(*_UNARY, *_BINARY, *_TERNARY)
def elementwise(op: OpView) -> Result:
    """Rows stay rows where all that are rows have the same, and what is whole has no batch axis of its own."""
    return broadcast(op)


@rule(*_LINEAR)
def linear(op: OpView) -> Result:
    """As `elementwise`; and a sum of terms is the sum of the sums."""
    return terms(op) or broadcast(op)


@rule("IdentityN")
def one_by_one(op: OpView) -> Result:
    """Each output is the input of its position."""
    return op.ins


@rule(*_PRODUCTS)
def product(op: OpView) -> Result:
    """As `elementwise`; a sum over the slice that is divided by the slice's number of examples is a mean."""
    extensive = [i for i, s in enumerate(op.ins) if s.extensive]
    return broadcast(op, settled=len(extensive) == 1 and op.ins[1 - extensive[0]].divides)


@rule("Select")
def select(op: OpView) -> Result:
    """The condition is as the others, or a vector along their first axis."""
    condition, x, y = op.ins
    if op.rank(0) != 1 or op.rank(1) == 1:
        return broadcast(op)
    if x != y or not x.is_rows or op.rank(1) is None:
        return None
    return (x,) if (condition == x if x.axis == 0 else condition.is_whole) else None


@rule("LookupTableFindV2", "LookupTableFind")
def lookup(op: OpView) -> Result:
    """Each key by itself."""
    return (op.ins[1],) if op.ins[1].is_rows and op.only(Kind.WHOLE, among=(0, 2)) else None


@rule("Assert", "NoOp")
def asserted(op: OpView) -> Result:
    """Each slice asserts for itself, and says its own values."""
    return () if op.ins and op.only(Kind.WHOLE, Kind.ROWS, Kind.LOCAL) and op.ins[0].is_whole else None


def terms(op: OpView) -> Result:
    """Whether the op is linear in terms of one kind, and zeros; its outputs are such terms then."""
    found = {s for s in op.ins if s.is_partial}
    if len(found) != 1 or (op.type == "Cast" and not _both_float(op)) or op.type == "Bitcast":
        return None
    if any(not s.is_partial and not s.zero for s in op.ins):
        return None
    return (next(iter(found)),) * len(op.outputs)


def _both_float(op: OpView) -> bool:
    return all(t.dtype.removeprefix("b").startswith("float") for t in (op.inputs[0], op.outputs[0]))


def broadcast(op: OpView, *, settled: bool = False) -> Result:
    """Rows along the axis, counted from the last, that all inputs with rows share.

    Args:
      op: an op of one output.
      settled: whether what is extensive is so no more in the result.
    """
    if not op.only(Kind.WHOLE, Kind.ROWS, Kind.LOCAL):
        return None
    result = op.outputs[0].rank
    if result is None:
        return None
    found: set[Sharding] = set()
    for i in op.row_inputs():
        rank = op.rank(i)
        if rank is None:
            return None
        found.add(op.ins[i].at(op.ins[i].axis + result - rank))
    extensive = extensive_result(op)
    if extensive is None:
        return None
    if not found:
        return None
    kinds = {dataclasses.replace(s, extensive=False) for s in found}
    if len(kinds) != 1:
        return None
    axis = next(iter(kinds))
    for i, sharding in enumerate(op.ins):
        if not sharding.is_rows and _has_axis(op, i, axis.axis, result):
            return None
    return (dataclasses.replace(axis, extensive=extensive and not settled),)


def extensive_result(op: OpView) -> bool | None:
    """Whether the result is a sum over the slice; None where some inputs are and others, which are added, are not."""
    flags = [s.extensive for s in op.ins if not s.zero]
    if not any(flags):
        return False
    if op.type in _DIVISIONS:
        return True if flags == [True, False] else None
    if op.type in ("Mul", "MulNoNan"):
        return True if sum(flags) == 1 else None
    if op.type in _LINEAR_IN_LAST:
        return True if flags == [False, True] else None
    return True if all(flags) and op.type in _LINEAR else None


def _has_axis(op: OpView, i: int, axis: int, result: int) -> bool:
    """Whether an input that is not rows has the result's axis all the same, with its rows or with unknown size."""
    shape = op.inputs[i].shape
    if shape is None:
        return True
    own = axis - (result - len(shape))
    return own >= 0 and shape[own] != 1
