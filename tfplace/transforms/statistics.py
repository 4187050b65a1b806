"""Finds the layers that normalize by statistics over the batch, and keep a moving average of them."""

from __future__ import annotations

from collections.abc import Collection

from tfplace.transforms.propagation import Division
from tfplace.transforms.two_sizes import TwoSizes

_ASSIGNS = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"})
_FUSED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_LEVELS = 2
"""How many name scopes above a mean the layer's own may be: `batch_norm/moments/mean` has it two above."""


def normalizing_scopes(two: TwoSizes, division: Division, trained: Collection[str]) -> tuple[str, ...]:
    """Name scopes in which a reduction over the batch both normalizes examples and moves an average.

    Args:
      two: a step.
      division: of it, with all statistics over the batch.
      trained: handles of the variables that an optimizer trains; an average is none of them.
    """
    nodes = two.nodes
    found: dict[str, None] = {}
    for v in nodes.order:
        name = nodes.names[v]
        if nodes.types[v] in _FUSED and nodes.defs[v].attr["is_training"].b:
            found[_parent(name) or name] = None
        elif nodes.types[v] in ("Mean", "Sum") and division.copied[v] and division.outputs[v][0].is_partial:
            scope = _parent(name)
            for _ in range(_LEVELS):
                if not scope:
                    break
                if _normalizes(two, division, v, scope, trained):
                    found[scope] = None
                    break
                scope = _parent(scope)
    return tuple(found)


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _normalizes(two: TwoSizes, division: Division, v: int, scope: str, trained: Collection[str]) -> bool:
    """Whether what an op makes reaches, inside a scope, an average's variable and ops of rows."""
    nodes = two.nodes
    averages = rows = False
    reached, ahead = {v}, [v]
    while ahead:
        u = ahead.pop()
        for slot, reader, position in nodes.consumers[u]:
            if reader in reached or not nodes.names[reader].startswith(f"{scope}/"):
                continue
            reached.add(reader)
            if nodes.types[reader] in _ASSIGNS and position == 1:
                handle = nodes.names[nodes.data_inputs[reader][0][0]]
                averages |= handle not in trained and _elements(two, u, slot) == _elements(two, v, 0)
            elif division.outputs[reader] and division.outputs[reader][0].is_rows:
                rows = True
            else:
                ahead.append(reader)
    return averages and rows


def _elements(two: TwoSizes, v: int, slot: int) -> int:
    shape = two.shapes(v, slot)[0]
    count = 1
    for size in shape or ():
        count *= size
    return count
