"""What a search goes on from: a placement known beforehand, or what another placer makes of the problem."""

from __future__ import annotations

from pathlib import Path

from tfplace.core.arrays import IntArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.search_context import Placer
from tfplace.core.stepcost import SIMULATED
from tfplace.local_search.devices import settle
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.capabilities import check_init
from tfplace.search.search import Search

_EVALUATIONS = 200
"""Whatever constructs a placement comes to its end with fewer; a search has to stop somewhere."""


def quickly_placed(problem: Problem, placer: Placer, seed: int, evaluator: Evaluator) -> IntArray:
    """[U] what a placer makes of the problem, searches with `_EVALUATIONS`.

    Args:
      problem: what is placed.
      placer: the placer.
      seed: of its random choices.
      evaluator: used if it simulates, else the simulator, since measuring takes long.
    """
    cheap = evaluator if evaluator.source == SIMULATED else None
    search = Search(problem, Budget(evaluations=_EVALUATIONS), seed, evaluator=cheap)
    return search.run(placer, "start", interruptible=False)


def start_from(init: Placement | str | Path, problem: Problem, seed: int, evaluator: Evaluator) -> IntArray:
    """[U] the devices of a placement, a file of one, or of a placer by its name.

    Units that do not fit where they are go to the fastest device on which they do.

    Args:
      init: which one.
      problem: what is placed.
      seed: as in `quickly_placed`.
      evaluator: as in `quickly_placed`.

    Raises:
      PlacementError: the placement is for another graph or other devices, or breaks a rule.
      InputError: neither a placer's name nor a file.
    """
    if isinstance(init, str) and init in PLACERS:
        return quickly_placed(problem, PLACERS[init](), seed, evaluator)
    if not isinstance(init, Placement):
        check_init(init)
    units = problem.gather(Placement.load(init, problem=problem).op_device)
    problem.expand(units)  # the rules may have changed since
    return settle(getattr(evaluator, "fitting", problem), units)
