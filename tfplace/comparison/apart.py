"""The cells of a comparison on the workers of an engine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from tfplace.comparison.cells import Case, Run, code_of, run_placer
from tfplace.core.arrays import IntArray
from tfplace.core.engine import LOOK_S, Engine
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.engines.process_workers import WorkerLostError
from tfplace.registry import OBJECTIVES
from tfplace.search.budget import Budget
from tfplace.search.search import Search

Cell = tuple[str, int]
"""A placer's name and a seed."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What a worker has: what all cells share, sent to it once.

    Attributes:
      problem: what is placed.
      case: its name.
      budget: of each run.
    """

    problem: Problem
    case: Case
    budget: Budget

    def search(self, seed: int) -> Search:
        """A new one."""
        return Search(self.problem, self.budget, seed, evaluator=OBJECTIVES[self.case.objective](self.problem))


@dataclass(frozen=True, eq=False)
class Found:
    """What came of a cell.

    Attributes:
      run: with all that is kept of it.
      devices: [U] the best placement; None if there is none.
      key: of that.
    """

    run: Run
    devices: IntArray | None = None
    key: Key | None = None


def run_apart(
    engine: Engine,
    cells: Cells,
    todo: Sequence[Cell],
    *,
    take: Callable[[Cell, Found], None],
    tell: Callable[[str], None],
) -> None:
    """Runs cells on workers, each as soon as one is free. Those under way when this is stopped are lost.

    A placer that ends every worker it is run on has that as its trouble, as any other error.

    Args:
      engine: starts the workers.
      cells: what they share.
      todo: in the order in which they begin.
      take: called with what comes of each, as soon as it is there.
      tell: called with how far it is.

    Raises:
      WorkersError: there are no workers, or no more of them.
    """
    tell("starting workers")
    with contextlib.closing(engine.start(functools.partial(_same, cells))) as workers:
        running = {workers.submit(run_one, name, seed): (name, seed) for name, seed in todo}
        try:
            while running:
                tell(f"{len(todo) - len(running)} of {len(todo)} runs are done, {workers.count} at a time")
                while not (ended := wait(running, LOOK_S, FIRST_COMPLETED).done):
                    continue
                for future in ended:
                    cell = running.pop(future)
                    take(cell, _found(cells, cell, future))
        except BaseException:
            for future in [future for future in running if _has_result(future)]:
                take(running.pop(future), future.result())
            raise


def run_one(cells: Cells, placer: str, seed: int) -> Found:
    """The task of workers: one cell."""
    search = cells.search(seed)
    run = run_placer(search, cells.case, placer, seed, excused=(Exception, SystemExit))
    return Found(run, search.best, search.best_key)


def _found(cells: Cells, cell: Cell, future: Future[Found]) -> Found:
    try:
        return future.result()
    except WorkerLostError as error:
        name, seed = cell
        code = code_of(name)
        return Found(Run(cells.case, name, seed, None, 0, 0, 0.0, 0.0, trouble=str(error), code=code))


def _has_result(future: Future[Found]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _same(cells: Cells) -> Cells:
    return cells
