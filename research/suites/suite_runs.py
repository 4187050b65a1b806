"""A suite, run: its models extracted, its missing cells computed, its results read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any

from research.suites.running import Task, run_all, tasks
from research.suites.suites import Suite
from tfplace.comparison.case_results import CaseResults, read_case_results
from tfplace.comparison.cells import Case
from tfplace.comparison.journal import Journal
from tfplace.core.engine import LOOK_S, Engine
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import TfplaceError, UnknownNameError
from tfplace.files import check_writable
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget


class SuiteRun:
    """A suite with its results.

    Args:
      suite: what is compared.
      graphs: directory of extracted graphs; those that are missing are extracted.
      out: file of the results.
      loads: loads TensorFlow, in each process that needs it.

    Raises:
      InputError: the file has results of something else, or there are no weights where they should be.
      UnknownNameError: no such model or preset.
    """

    def __init__(self, suite: Suite, graphs: Path, out: Path, loads: Callable[[], None]) -> None:
        from tfplace_zoo import families, zoo

        for name in suite.models:
            if name not in zoo.names() and not family_of(name):
                members = [f"{family}_INDEX" for family in families.names()]
                raise UnknownNameError("model", name, (*zoo.names(), *members))
        for name in suite.topologies:
            Topology.preset(name)  # says which there are
        self.suite = suite
        self._models = suite.models or (held_out_members() if suite.held_out else tuple(zoo.names()))
        for name in {*suite.trained} & {*suite.placers}:
            for model in self._models:
                suite.trained[name].code(model)  # says now, not after an hour, what weights are missing
        self.journal = Journal(out, {"budget": str(Budget.parse(suite.budget)), "simulated": True})
        self._graphs = graphs.absolute()  # workers may be elsewhere
        self._loads = loads

    def cases(self) -> Iterator[tuple[str, Case]]:
        """Each with its model."""
        from tfplace_zoo import zoo

        for name in self._models:
            counts: Sequence[int] = () if family_of(name) else zoo.ENTRIES[name].devices
            for case in self.suite.cases(name, counts):
                yield name, case

    def rows(self) -> list[CaseResults]:
        """What there is of the suite's cases and placers."""
        wanted = {case for _, case in self.cases()}
        placers = {*self.suite.placers, *self.suite.beside}
        rows = [row for row in read_case_results(self.journal) if row.facts.case in wanted]
        rows = [CaseResults(row.facts, {n: runs for n, runs in row.runs.items() if n in placers}) for row in rows]
        return [row for row in rows if row.runs]

    def run(
        self,
        jobs: int,
        *,
        stage: Callable[[str], None],
        progress: Callable[[int, int], None],
        engine: Engine | None = None,
    ) -> list[tuple[Task, Exception]]:
        """Runs what is missing; what failed, to be run again the next time.

        Args:
          jobs: cells at a time.
          stage: told what begins.
          progress: told how many cells are done, of how many.
          engine: where cells run instead of in processes of this machine.

        Raises:
          UnwrittenError: results or graphs cannot be written.
          TfplaceError: a graph cannot be extracted, or a process was killed; what was run by then is kept.
        """
        check_writable(self.journal.path)
        suite, budget = self.suite, Budget.parse(self.suite.budget)
        cases = [(self._graph(name, stage), case) for name, case in self.cases()]
        todo = tasks(cases, suite.runs(), budget, self.journal, trained=suite.trained)
        stage(f"{len(todo)} cells of {budget}")
        names = [name for name in suite.placers if name not in suite.trained]
        learned = suite.trained or any(PLACERS[name].learned for name in names)
        prepare = self._loads if learned else None
        return run_all(todo, self.journal, jobs=jobs, progress=progress, prepare=prepare, engine=engine)

    def _graph(self, model: str, stage: Callable[[str], None]) -> Path:
        """The file of a model's graph, extracted in a process of its own if it is not there."""
        parameters = self.suite.parameters.get(model, {})
        path = self._graphs / _folder(parameters) / f"{model}.npz"
        if not path.exists():
            stage(f"extracting {model}")
            check_writable(path)
            with contextlib.closing(ProcessEngine(1, tries=1).start(self._loads)) as worker:
                extracting = worker.submit(_extract, model, path, dict(parameters))
                while not wait([extracting], LOOK_S).done:
                    continue
            if error := extracting.exception():
                raise TfplaceError(f"{model} could not be extracted: {error}") from error
        return path


def held_out_members(count: int | None = None) -> tuple[str, ...]:
    """Members of the families that policies are not trained on: so many of each family, or all."""
    from tfplace_zoo import families

    return tuple(f"{name}_{index}" for name in families.names() for index in sorted(families.split(name)[1])[:count])


def _folder(parameters: Mapping[str, Any]) -> str:
    """Of graphs with other parameters than their model's own."""
    return "_".join(f"{name}{value}" for name, value in sorted(parameters.items()))


def family_of(model: str) -> str:
    """Of a member's name; empty for a model of the zoo."""
    from tfplace_zoo import families, zoo

    family, _, index = model.rpartition("_")
    there = model not in zoo.names() and family in families.names() and index in map(str, range(families.SIZE))
    return family if there else ""


def _extract(_: None, model: str, path: Path, parameters: dict[str, Any]) -> None:
    extracted(model, parameters).save(path)


def extracted(model: str, parameters: Mapping[str, Any]) -> OpGraph:
    """The graph of a model, built and read in this process.

    Args:
      model: of the zoo, or a member of a family.
      parameters: instead of the model's own.
    """
    from tfplace_zoo import families, zoo

    from tfplace.extraction.sources import extract_source

    family = family_of(model)
    built = families.member(family, int(model.rpartition("_")[2])) if family else zoo.build(model, **parameters)
    return extract_source(built.model, built.batch, training=None, fetches=None, name=model)
