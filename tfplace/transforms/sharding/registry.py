"""Rules by op type."""

from __future__ import annotations

from collections.abc import Callable

from tfplace.transforms.sharding.op_view import OpView
from tfplace.transforms.sharding.state import Sharding

Result = tuple[Sharding, ...] | None
Rule = Callable[[OpView], Result]

RULES: dict[str, Rule] = {}
"""Op type -> how its outputs are divided if each slice runs it on what it has; None where that would be wrong."""


def words(text: str) -> frozenset[str]:
    """Names that a text holds, apart by spaces."""
    return frozenset(text.split())


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Registers a rule for op types."""

    def register(function: Rule) -> Rule:
        for kind in types:
            assert kind not in RULES, kind
            RULES[kind] = function
        return function

    return register
