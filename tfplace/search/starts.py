"""What a search goes on from: a placement known beforehand, or what another placer makes of the problem."""

from __future__ import annotations

from pathlib import Path

from tfplace.core.arrays import IntArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import SIMULATED
from tfplace.errors import InputError
from tfplace.placers.base import Placer
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.study import Search


def quickly_placed(problem: Problem, placer: Placer, seed: int, evaluator: Evaluator) -> IntArray:
    """[U] what a placer makes with as many evaluations as there are devices.

    Args:
      problem: what is placed.
      placer: the placer.
      seed: of its random choices.
      evaluator: used if it simulates, else the simulator, since measuring takes long.
    """
    cheap = evaluator if evaluator.source == SIMULATED else None
    search = Search(problem, Budget(evaluations=len(problem.topology.devices)), seed, evaluator=cheap)
    return search.run(placer, "start")


def start_from(init: Placement | str | Path, problem: Problem, seed: int, evaluator: Evaluator) -> IntArray:
    """[U] the devices of a placement, a file of one, or of a placer by its name.

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
    if isinstance(init, Placement):
        text = init.to_json()
    else:
        check_init(init)
        text = Path(init).read_text()
    units = problem.gather(Placement.from_json(text, problem=problem).op_device)
    problem.expand(units)  # the rules may have changed since
    return units


def check_init(init: str | Path) -> None:
    """Refuses what is neither a placer nor a file.

    Raises:
      InputError: it is not.
    """
    if not (isinstance(init, str) and init in PLACERS) and not Path(init).is_file():
        raise InputError(
            f"init={str(init)!r}",
            "a placement, a file of one, or a placer",
            f"Placements are written by Placement.save() and `tfplace place --out`; placers are {', '.join(PLACERS)}.",
        )


def check_goes_on(placer: str) -> None:
    """Refuses placers that go on from nothing.

    Raises:
      InputError: it is one of those.
      UnknownNameError: no such placer.
    """
    if not goes_on(PLACERS[placer]()):
        able = [name for name in PLACERS if goes_on(PLACERS[name]())]
        raise InputError(f"init with placer {placer!r}", f"one of {', '.join(able)}", "Others go on from nothing.")


def goes_on(placer: Placer) -> bool:
    """Whether the placer can be given placements to start from."""
    return hasattr(placer, "starts")
