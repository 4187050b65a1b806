"""Compiled or op by op: what a placement takes either way, and which of the two it is run."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import AUTO, NONE, XLA
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import COMPILED, Placement
from tfplace.core.stepcost import SIMULATED, STEP_TIME, StepCost
from tfplace.formatting import format_seconds
from tfplace.search.ordered import best_order
from tfplace.search.search import CANNOT_GO_ON
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT, Options

_CLEARLY = 1.02
"""Times that the way which the program asks for must be slower than the other, for the other to be taken."""


def both_ways(name: str, evaluator: Evaluator, unit_device: IntArray) -> dict[str, StepCost]:
    """The costs of a placement run op by op and compiled, by name; the one that is unknown is left out.

    Args:
      name: of the placement.
      evaluator: tells the costs.
      unit_device: [U] devices.
    """
    own, other = cost_as_run(evaluator, unit_device), _cost_otherwise(evaluator, unit_device)
    compiled = evaluator.compile == XLA
    costs = {name + COMPILED * compiled: own}
    return costs if other is None else costs | {name + COMPILED * (not compiled): other}


def cost_as_run(evaluator: Evaluator, unit_device: IntArray, *, quick: bool = False) -> StepCost:
    """The cost of a placement; simulated, that of a compiled step is cluster by cluster.

    Args:
      evaluator: tells the costs.
      unit_device: [U] devices.
      quick: see `best_order`.
    """
    if isinstance(evaluator, Simulator) and evaluator.compile == XLA:
        op_device = evaluator.problem.spread(unit_device)
        return best_order(evaluator.problem, op_device, evaluator.options, quick=quick).cost
    return evaluator(unit_device)


def _cost_otherwise(evaluator: Evaluator, unit_device: IntArray) -> StepCost | None:
    other = evaluator.problem.otherwise
    if isinstance(evaluator, Simulator) and other is not None and other.compile == XLA:
        return best_order(other, evaluator.problem.spread(unit_device), evaluator.options).cost
    return evaluator.otherwise(unit_device)


def decided(placement: Placement, asked: str, evaluator: Evaluator) -> Placement:
    """The placement with the way it is run: the one asked for, or with `AUTO` the faster.

    A program that does not ask for jit_compile is left op by op, as compiled it would round differently; a note then
    says what compiling would bring. One that asks is run op by op where that is clearly faster.

    Args:
      placement: what was found, with the cost of the way in which the evaluator runs it.
      asked: `AUTO`, `NONE` or `XLA`.
      evaluator: which told the cost.
    """
    own = evaluator.compile if asked == AUTO else asked
    other = None
    with contextlib.suppress(KeyboardInterrupt):  # what the search found is not lost for it
        other = run_otherwise(placement, evaluator) if own == evaluator.compile else None
    if other is None:
        return replace(placement, compile=own)
    if asked == AUTO and own == XLA and _is_clearly_faster(other.cost, placement.cost):
        return replace(other, compile=NONE, notes=(*placement.notes, _note(NONE, other.cost, placement.cost)))
    hint = " (use compile=xla)" if own == NONE and _is_clearly_faster(other.cost, placement.cost) else ""
    return replace(placement, compile=own, notes=(*placement.notes, _note(own, placement.cost, other.cost) + hint))


def _is_clearly_faster(one: StepCost, other: StepCost) -> bool:
    (over, step_s), (over_of_other, step_s_of_other) = one.key, other.key
    return (over, step_s * _CLEARLY) < (over_of_other, step_s_of_other)


def _note(how: str, own: StepCost, other: StepCost) -> str:
    """How a step is run, and what it would take the other way."""
    ways = ("op by op", "compiled by XLA") if how == NONE else ("compiled by XLA", "op by op")
    if not other.feasible:
        return f"runs {ways[0]}; {ways[1]} it would not fit"
    times = f", {other.step_s / own.step_s:.2f} times as long" if own.step_s > 0 else ""
    return f"runs {ways[0]}; {ways[1]} it would take {format_seconds(other.step_s)}{times}"


def run_otherwise(placement: Placement, evaluator: Evaluator) -> Placement | None:
    """The same devices, with what a step takes the other way, in the order that is best then; None if unknown."""
    problem, options = placement.problem, evaluator.options
    assert problem is not None
    other = problem.otherwise
    simulated = placement.cost.source == SIMULATED and placement.cost.objective == STEP_TIME
    if simulated and other is not None:
        allowed = options if isinstance(options, Options) else DEFAULT
        cost, order, phases = best_order(other, placement.op_device, allowed)
        found = replace(placement, cost=cost, order=order, phases=phases)
    else:
        try:
            told = evaluator.otherwise(problem.gather(placement.op_device))
        except CANNOT_GO_ON:
            return None
        if told is None or told.failure is not None:
            return None
        found = replace(placement, cost=told)
    if other is None:
        return found
    return replace(found, problem=other, problem_fingerprint=other.fingerprint, bound_s=lower_bound(other).seconds)
