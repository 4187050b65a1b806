"""Which outputs share the memory of an input. See docs/simulator.md, "Memory"."""

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
