"""How much of a step is inside functions that ops keep, where nothing can be placed by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfplace.core.costs import CostTable
from tfplace.core.graph import Body, OpGraph
from tfplace.cost.flops import NOTHING, rule_of
from tfplace.errors import InputError

MOST = 0.5
"""Share of a step's seconds, or of the bytes of its variables, above which there is too little left to place."""

_NAMED = 3


@dataclass(frozen=True)
class HiddenPart:
    """What is inside functions that ops keep.

    Attributes:
      ops: the ops, those that take longest first.
      seconds: their share of the seconds of all ops that compute, each on its fastest device.
      variable_bytes: share of the variables' bytes that no other ops touch.
      python: whether there are Python functions among them, whose seconds nothing tells.
    """

    ops: tuple[int, ...]
    seconds: float
    variable_bytes: float
    python: bool


def hidden_part(graph: OpGraph, costs: CostTable) -> HiddenPart | None:
    """What the graph's ops hide; None if no op keeps a function.

    Args:
      graph: [V] ops.
      costs: [V, D] seconds of the ops.
    """
    ops = sorted({body.op for body in graph.bodies if not _convolves(body)})
    if not ops:
        return None
    fastest = costs.compute_s.min(axis=1)
    computes = np.array([rule_of(kind)[0] != NOTHING for kind in graph.op_types])
    computes[ops] = True
    total = float(fastest[computes].sum())
    return HiddenPart(
        tuple(sorted(ops, key=lambda v: -fastest[v])),
        float(fastest[ops].sum()) / total if total else 1.0,
        _variable_share(graph, frozenset(ops)),
        any(body.graph is None for body in graph.bodies),
    )


def _convolves(body: Body) -> bool:
    """Whether nothing but convolutions computes in a function: then it is as good as an op."""
    if body.graph is None:
        return False
    computing = {rule_of(kind)[0] for kind in body.graph.op_types} - {NOTHING}
    return computing == {"conv"}


def _variable_share(graph: OpGraph, ops: frozenset[int]) -> float:
    readers: dict[int, set[int]] = {}
    for src, dst in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        readers.setdefault(src, set()).add(dst)
    hidden = total = 0
    for variable in graph.variables:
        touching = readers.get(variable.op, set())
        total += variable.size_bytes if touching else 0
        hidden += variable.size_bytes if touching and touching <= ops else 0
    return hidden / total if total else 0.0


def refuse_hidden(graph: OpGraph, costs: CostTable) -> None:
    """Refuses a graph most of which is inside functions that ops keep.

    Only here, not when the graph is read: what is most of a step depends on the devices, and a graph that is not to be
    placed can still be looked at and saved.

    Raises:
      InputError: more than `MOST` of the seconds, or of the variables' bytes, is hidden.
    """
    part = hidden_part(graph, costs)
    if part is not None and max(part.seconds, part.variable_bytes) > MOST:
        raise InputError(
            f"graph {graph.name!r}, with {_shares(part)} inside functions that {_names(graph, part)}",
            "a step whose ops are in the graph itself",
            "Such an op runs on one device with all that is in its function. Pass what the function calls, one step on "
            "one batch: tfplace.extract(train_step, batch), and loop over the data outside of it. A Python "
            "function has to become TensorFlow ops.",
        )


def hidden_notes(graph: OpGraph, costs: CostTable) -> tuple[str, ...]:
    """A line on the ops that keep functions, if there are any."""
    part = hidden_part(graph, costs)
    if part is None:
        return ()
    note = f"inside functions that {_names(graph, part)}, no op is placed on its own: {_shares(part)}"
    return (f"{note}; the time of Python functions is not known" if part.python else note,)


def _shares(part: HiddenPart) -> str:
    text = f"{100 * part.seconds:.0f} % of the op seconds"
    return f"{text} and {100 * part.variable_bytes:.0f} % of the variables' bytes" if part.variable_bytes else text


def _names(graph: OpGraph, part: HiddenPart) -> str:
    named = [f"{graph.op_types[v]} {graph.op_names[v]!r}" for v in part.ops[:_NAMED]]
    more = len(part.ops) - len(named)
    verb = "keeps" if len(part.ops) == 1 else "keep"
    return f"{', '.join(named)}{f' and {more} more' if more else ''} {verb}"
