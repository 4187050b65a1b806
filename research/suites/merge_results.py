"""Results of several files, shown as one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.comparison.journal import Journal
from tfplace.errors import InputError, UnknownNameError

_APART = "Make a page of each."


@dataclass(frozen=True)
class MergedResults:
    """What some files have.

    Attributes:
      budget: of each run.
      rows: case by case, with the runs of all files.
    """

    budget: str
    rows: tuple[CaseResults, ...]


def read_merged(paths: Sequence[Path], *, cases: str = "", placers: Sequence[str] = ()) -> MergedResults:
    """Reads files of results. Of a seed that several have, the run in the last of them counts.

    Args:
      paths: at least one.
      cases: only those whose name has this in it.
      placers: only these; all if empty.

    Raises:
      InputError: one is no file of results, or they are not of one budget, or of different graphs, weights or placers
        of one name.
      UnknownNameError: no file has a run of such a placer.
    """
    journals = [Journal(path, header_of(path)) for path in paths]
    for one, other in itertools.combinations(journals, 2):
        _check_alike(one, other)
    known = {placer for journal in journals for _, placer, _ in journal.runs}
    for name in placers:
        if name not in known:
            raise UnknownNameError("placer", name, known)
    facts: dict[Case, tuple[Facts, Path]] = {}
    runs: dict[Case, dict[str, dict[int, Run]]] = {}
    for journal in journals:
        for case, found in journal.facts.items():
            if cases in str(case):
                _check_same(*facts.setdefault(case, (found, journal.path)), found, journal.path)
        for run in journal.runs.values():
            if run.case in journal.facts and run.case in facts and (not placers or run.placer in placers):
                runs.setdefault(run.case, {}).setdefault(run.placer, {})[run.seed] = run
    rows = [CaseResults(facts[case][0], _by_seed(runs[case])) for case in facts if case in runs]
    return MergedResults(str(journals[0].header.get("budget", "unknown length")), tuple(rows))


def _by_seed(runs: Mapping[str, Mapping[int, Run]]) -> dict[str, tuple[Run, ...]]:
    return {name: tuple(found[seed] for seed in sorted(found)) for name, found in runs.items()}


def header_of(path: Path) -> dict[str, Any]:
    """What the results of a file have in common.

    Raises:
      InputError: it is no file of results.
    """
    try:
        with path.open("rb") as file:
            first = file.readline()
    except OSError as error:
        raise InputError(f"{path} ({error.strerror})", "a file of results") from error
    try:
        header: dict[str, Any] = json.loads(first)["header"]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}, which begins with {first[:40]!r}", "a file of research/compare_placers.py"
        ) from error
    return header


def _check_alike(one: Journal, other: Journal) -> None:
    """Refuses runs under other conditions, and of weights or placers that have one name and are others."""
    ours, theirs = ({**journal.header, **_codes(journal)} for journal in (one, other))
    of_one = {*_codes(one)} ^ {*_codes(other)}
    if not {*one.facts} & {*other.facts}:
        of_one.add("problem")  # each has its own model or devices
    for what in sorted({*ours, *theirs} - of_one):
        if ours.get(what) != theirs.get(what):
            raise InputError(
                f"{one.path} with results of {what} {ours.get(what)!r}, {other.path} of {theirs.get(what)!r}",
                f"results of one {what}",
                _APART,
            )


def _codes(journal: Journal) -> Mapping[str, str]:
    """Digests of what is not tfplace's own, with each family's weights for themselves."""
    found = {}
    for run in journal.runs.values():
        if run.code:
            found[f"{run.placer} for {run.case.graph.rpartition('_')[0] or run.case.graph}"] = run.code
    return found


def _check_same(one: Facts, path: Path, other: Facts, other_path: Path) -> None:
    if one.fingerprint != other.fingerprint:
        raise InputError(
            f"{one.case} with {one.ops:,} ops in {path}, another graph with {other.ops:,} ops in {other_path}",
            "one graph of that name",
            _APART,
        )
