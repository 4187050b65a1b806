"""Parts of a search: what workers are told, what they do, and what they answer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tfplace.core.arrays import IntArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, Left, SearchContext
from tfplace.core.stepcost import Key
from tfplace.errors import MissingExtraError, TfplaceError
from tfplace.local_search.annealing import Annealing
from tfplace.local_search.devices import single_devices
from tfplace.local_search.grouped_context import GroupedContext
from tfplace.local_search.penalized_cost import PenalizedCost
from tfplace.placers.auto import run_member
from tfplace.registry import GROUPERS
from tfplace.search.budgeted_context import endless_context
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads

_WARM = 50
"""Evaluations after which all kernels of a search have been used."""


@dataclass(frozen=True, eq=False)
class Walk:
    """Where an annealing is.

    Attributes:
      devices: [U] the present placement.
      key: what it costs.
      first: the key of the placement from which it began, which temperatures and prices are relative to.
      weight: of the price of missing memory; see `PenalizedCost`.
    """

    devices: IntArray
    key: Key
    first: Key
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Part:
    """What a worker is to do.

    Attributes:
      name: under which what it finds is logged.
      left: its budget.
      seed: of its generator.
      placer: which places; None to anneal from `walk`.
      walk: where the annealing goes on.
      span: which part of a whole annealing it is; see `SearchContext.apart`.
    """

    name: str
    left: Left
    seed: int
    placer: Placer | None = None
    walk: Walk | None = None
    span: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Done:
    """What it came to.

    Attributes:
      evaluations: that it took.
      devices: [U] the best placement; None if nothing was evaluated.
      key: what that costs.
      walk: where an annealing ended.
      missing: whether a package that the placer needs is not installed.
      failed: why there is no placement, if that is the placer's fault.
    """

    evaluations: int
    devices: IntArray | None = None
    key: Key | None = None
    walk: Walk | None = None
    missing: bool = False
    failed: str = ""


def own_context(evaluator: Evaluator, grouper: str | None, groups: int | None) -> SearchContext:
    """What each worker has of its own: a context of the problem, or of groups of its units.

    Args:
      evaluator: of the problem; simulates with one thread, as each core has a worker.
      grouper: see `SearchOptions`.
      groups: see there.
    """
    if isinstance(evaluator, Simulator | PipelineLoads):
        evaluator.threads = 1
    context = endless_context(evaluator)
    if grouper is None or groups is None:
        return context
    return GroupedContext(context, GROUPERS[grouper](context.problem, groups))


def warmed(own: SearchContext) -> None:
    """Lays the problem out and loads what a search needs, so that it does not take from its budget."""
    if own.problem.num_units:
        start = single_devices(own.problem)[0]
        key = own.apart(Left(None, 1), 0).key(start)
        done(own, Part("warm", Left(None, _WARM), 0, walk=Walk(start, key, key)))


def done(own: SearchContext, part: Part) -> Done:
    """Does a part; the task of workers.

    Args:
      own: of `own_context`.
      part: what is to be done.
    """
    context = own.apart(part.left, part.seed, part.span)
    if part.placer is None:
        assert part.walk is not None
        return _annealed(context, part.walk)
    try:
        found = run_member(part.placer, context, part.name, part.name)
    except MissingExtraError:
        return Done(context.evaluations, missing=True)
    except TfplaceError:
        raise  # such as the evaluator's
    except Exception as error:  # a placer's own fault is no reason to lose what others found
        return Done(context.evaluations, failed=repr(error))
    if found is None:
        return Done(context.evaluations)
    return Done(context.evaluations, found.devices, found.key)


def _annealed(context: SearchContext, walk: Walk) -> Done:
    price = PenalizedCost(context, walk.first, walk.weight)
    run = Annealing(context, walk.devices, walk.key, price)
    with contextlib.suppress(BudgetSpentError):
        context.key(walk.devices)  # what its best is to be no worse than
        run.run()
    end = Walk(run.devices, run.key, walk.first, price.weight)
    return Done(context.evaluations, context.best, context.best_key, end)
