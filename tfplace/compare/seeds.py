"""What became of a placer's seeds: some may not fit, some may not have run."""

from __future__ import annotations

from collections.abc import Sequence

from tfplace.compare.cells import Run
from tfplace.compare.standings import Standing


def ran(row: Standing) -> Standing:
    """The same with those runs only that could run, so that a seed that could not hides no other."""
    return Standing(row.facts, {name: [run for run in runs if not run.trouble] for name, runs in row.runs.items()})


def seeds_text(runs: Sequence[Run]) -> str:
    """How many runs of a placer there are, and how many of them do not count as others do.

    Where none fits the step says so already.
    """
    done = [run for run in runs if not run.trouble]
    unfit = sum(run.step_s is None for run in done)
    text = str(len(runs)) if len(done) == len(runs) else f"{len(done)} of {len(runs)} ran"
    return text if unfit in (0, len(done)) else f"{text}, of which {unfit} {'does' if unfit == 1 else 'do'} not fit"


def trouble_notes(row: Standing) -> list[str]:
    """A sentence for each placer that could not run, or not with every seed, and why."""
    notes = []
    for name, runs in row.runs.items():
        troubles = [run.trouble for run in runs if run.trouble]
        if len(troubles) == len(runs) > 0:
            notes.append(f"{name} was not run: {troubles[0]}")
        elif troubles:
            failed = f"{len(troubles)} failed: {troubles[0]}"
            notes.append(f"{name}: {len(runs) - len(troubles)} of {len(runs)} seeds; {failed}")
    return notes
