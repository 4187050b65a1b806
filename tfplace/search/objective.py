"""Which objectives an evaluator knows. Loads nothing, so that a wrong name is said at once."""

from __future__ import annotations

from tfplace.core.stepcost import SIMULATED, STEP_TIME
from tfplace.errors import InputError, UnknownNameError
from tfplace.registry import EVALUATORS, OBJECTIVES


def check_objective(objective: str, evaluator: str) -> None:
    """Refuses what does not go together.

    Raises:
      UnknownNameError: no such objective or evaluator.
      InputError: the evaluator does not know the objective.
    """
    for name, known in ((objective, OBJECTIVES), (evaluator, EVALUATORS)):
        if name not in known:
            raise UnknownNameError(known.kind, name, known)
    if objective != STEP_TIME and evaluator != SIMULATED:
        raise InputError(
            f"objective {objective!r} with evaluator {evaluator!r}",
            f"evaluator {SIMULATED!r}",
            f"The evaluator {evaluator!r} takes one step at a time, and never fills a pipeline.",
        )
