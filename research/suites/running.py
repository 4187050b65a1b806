"""Many cells side by side: in processes with a processor each, so that equal seconds are equal work, or elsewhere."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

from tfplace.comparison.cells import Case, Facts, Run, Trained, code_of, facts_of, problem_of, run_cell
from tfplace.comparison.journal import Journal
from tfplace.core.engine import LOOK_S, Engine
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.engines.cores import cores_apart
from tfplace.engines.process_workers import ProcessEngine, WorkerLostError
from tfplace.errors import InputError, WorkersError
from tfplace.search.budget import Budget


@dataclass(frozen=True)
class Task:
    """A cell to run; without a placer, the facts of its case."""

    graph: Path
    case: Case
    budget: Budget
    placer: str = ""
    seed: int = 0
    trained: Trained | None = None

    def __str__(self) -> str:
        return f"{self.case}, {f'{self.placer}, seed {self.seed}' if self.placer else 'facts'}"


def tasks(
    cases: Sequence[tuple[Path, Case]],
    runs: Sequence[tuple[str, int]],
    budget: Budget,
    journal: Journal,
    *,
    trained: Mapping[str, Trained] | None = None,
) -> list[Task]:
    """Every cell of which the journal has no run that stands: the cases' facts, then seed by seed and case by case.

    Args:
      cases: with the file of each one's graph.
      runs: names of placers with the seeds of each.
      budget: of every cell.
      journal: what is there.
      trained: what stands behind names that are no placers'.

    Raises:
      InputError: the journal's results are of another graph of the same name; or as `Trained.code`.
      UnknownNameError: no such placer.
    """
    refuse_other_graphs(cases, journal)
    wanted = [Task(graph, case, budget) for graph, case in cases if case not in journal.facts]
    behind = trained or {}
    codes = {
        (name, graph): behind[name].code(graph) if name in behind else code_of(name)
        for name in dict.fromkeys(name for name, _ in runs)
        for graph in dict.fromkeys(case.graph for _, case in cases)
    }
    # everything once before anything twice, so that a part of it is a fair picture
    for now in sorted({seed for _, seed in runs}):
        for graph, case in cases:
            of_now = [(name, seed) for name, seed in runs if seed == now]
            todo = [cell for cell in of_now if not journal.done(case, *cell, codes[cell[0], case.graph], budget)]
            wanted += [Task(graph, case, budget, *cell, behind.get(cell[0])) for cell in todo]
    return wanted


def refuse_other_graphs(cases: Sequence[tuple[Path, Case]], journal: Journal) -> None:
    """Checks that a journal's results, if it has any, are of the graphs in these files.

    Raises:
      InputError: they are of another graph of the same name.
    """
    for graph, case in cases:
        known = journal.facts.get(case)
        if known is not None and (is_now := _graph(graph).fingerprint) != known.fingerprint:
            raise InputError(
                f"graph {is_now} of {case.graph} in {graph.name}",
                f"{known.fingerprint}, of which {journal.path.name} has results",
                "Extract it as it was then, or name another file for the results.",
            )


def run_all(
    todo: Sequence[Task],
    journal: Journal,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    prepare: Callable[[], None] | None = None,
    engine: Engine | None = None,
) -> list[tuple[Task, Exception]]:
    """Runs the tasks and writes each result to the journal as it comes.

    Args:
      todo: what to run.
      journal: where results go.
      jobs: processes at a time, at most as many as there are processors; each is pinned to one of its own where the
        system can do that.
      progress: called with the number of cells done and their total.
      prepare: a function of a module, called in each process before its first cell.
      engine: where cells run instead; workers of other machines need the files of the graphs under the same paths.

    Returns:
      What failed with an error that no placer should have; it is not in the journal, and run again the next time.

    Raises:
      WorkersError: a process was killed; what the others had finished by then is kept.
      KeyboardInterrupt: the same; the processes are ended.
    """
    cpus = cores_apart()[:jobs]
    rest = iter(todo)
    failed: list[tuple[Task, Exception]] = []
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(todo))

    engine = engine or ProcessEngine(len(cpus), cores=[(cpu,) for cpu in cpus], tries=1)
    with contextlib.closing(engine.start(prepare or _unprepared)) as workers:
        running: dict[Future[Facts | Run], Task] = {}
        try:
            while True:
                # no more than run at a time, so that stopping is quick
                for task in itertools.islice(rest, max(workers.count - len(running), 0)):
                    running[workers.submit(run_task, task)] = task
                if not running:
                    return failed
                wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                for result in _finished(running):  # before any error ends this
                    journal.add(result)
                    tell()
                for task, error in _failed(running):
                    failed.append((task, error))
                    tell()
        except BaseException:
            workers.close()
            for result in _finished(running):
                journal.add(result)
            raise


def _finished(running: dict[Future[Facts | Run], Task]) -> Iterator[Facts | Run]:
    """Results that are there, each taken out of what is running."""
    for future in [f for f in running if f.done() and not f.cancelled() and f.exception() is None]:
        del running[future]
        yield future.result()


def _failed(running: dict[Future[Facts | Run], Task]) -> Iterator[tuple[Task, Exception]]:
    """The same of what failed.

    Raises:
      WorkersError: a process was killed.
    """
    for future, error in [(f, f.exception()) for f in running if f.done()]:
        if isinstance(error, WorkerLostError):
            raise WorkersError(
                f"a process that was killed, perhaps for memory; what ran was {running[future]}",
                "results of all that ran",
                "Run the same command again to resume; fewer cells at a time need less memory.",
            ) from error
        if not isinstance(error, Exception | None):
            raise error
        if error is not None:  # else it has finished by now
            yield running.pop(future), error


def _unprepared() -> None:
    """A process that needs no preparation."""


def run_task(_: None, task: Task) -> Facts | Run:
    """In a child process: one cell, or the facts of a case.

    Raises:
      Exception: an error that no placer should have.
    """
    problem = _problem(task.graph, task.case)
    if not task.placer:
        return facts_of(problem, task.case)
    return run_cell(problem, task.case, task.placer, task.budget, task.seed, trained=task.trained)


@functools.lru_cache(maxsize=1)
def _problem(graph: Path, case: Case) -> Problem:
    return problem_of(_graph(graph), case)


@functools.lru_cache(maxsize=1)
def _graph(path: Path) -> OpGraph:
    return OpGraph.load(path)
