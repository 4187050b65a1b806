"""Random numbers: each slice draws its own."""

from __future__ import annotations

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.registry import Result, rule
from tfplace.transforms.sharding.state import Kind, rows

STATEFUL = frozenset({"RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal"})
COUNTED = frozenset(
    {
        "StatelessRandomNormalV2",
        "StatelessRandomUniformFullIntV2",
        "StatelessRandomUniformIntV2",
        "StatelessRandomUniformV2",
        "StatelessTruncatedNormalV2",
    }
)
"""Which draw from a key and a counter, their second and third inputs."""

_PER_COUNT = {"bfloat16": 4, "float32": 4, "float64": 2, "half": 4}
_IN_ORDER = ("StatelessRandomNormalV2", "StatelessRandomUniformV2")


def per_count(kind: str, dtype: str) -> int:
    """Numbers that a draw takes of each count; 0 where a number may take several.

    Philox (Salmon et al. 2011) makes 128 bits of each count, and the draws of TensorFlow's kernels fill a tensor in
    their order, on all devices.
    """
    return _PER_COUNT.get(dtype, 0) if kind in _IN_ORDER else 0


@rule(*STATEFUL, *COUNTED)
def draw(op: OpView) -> Result:
    """Along the axis that has as many as there are examples."""
    varying = op.outputs[0].varying
    if op.ins[0].kind is not Kind.SIZE or not op.only(Kind.WHOLE, among=range(1, len(op.ins))):
        return None
    if varying is None or len(varying) != 1 or not op.outputs[0].even:
        return None
    return (rows(varying[0]),)
