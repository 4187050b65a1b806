"""What the search of a run has found, as a placement with all there is to say of it."""

from __future__ import annotations

from collections.abc import Mapping

from tfplace.comparison.cells import Facts
from tfplace.core.placement import Placement
from tfplace.core.stepcost import StepCost
from tfplace.search.place import placement_of
from tfplace.search.search import Search


def found_placement(
    search: Search,
    facts: Facts,
    placer: str,
    seed: int,
    *,
    baselines: Mapping[str, StepCost],
    notes: tuple[str, ...] = (),
) -> Placement:
    """The best placement of a run's search, with all there is to say of it.

    Args:
      search: has found one.
      facts: of its case.
      placer: name of what was run.
      seed: of the search.
      baselines: see `Placement`.
      notes: see `Placement`.
    """
    assert search.best is not None
    return placement_of(
        search.problem,
        search.best,
        search.evaluator(search.best),
        bound_s=facts.bound_s,
        placer=f"{placer} ({search.budget})",
        seed=seed,
        baselines=baselines,
        notes=notes,
    )
