"""How a policy does on the graphs that are held out, at the end of a training or long after it."""

from __future__ import annotations

import contextlib
import functools
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

from tfplace.core.engine import Engine, Workers
from tfplace.errors import InputError
from tfplace.learned.training.pretrained import Pretrained
from tfplace.pretraining.corpus import Entry
from tfplace.pretraining.student import Student, Teaching, examine, teach
from tfplace.pretraining.trainable import Trainable
from tfplace.version import VERSION

_SEED = 10**6
_SAME_FLAGS = "Give the flags of the command in its card."


class Shown(Protocol):
    """Who is told how a training or an examination goes."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """How far a stage is."""

    def examined(self, update: int, exams: Mapping[str, Mapping[str, float]]) -> None:
        """How the policy did on held-out graphs: geometric means, by family and topology."""


class Examination:
    """Examines a policy, as often as it is asked to.

    Args:
      entries: all of a training, since seeds depend on their numbers.
      shown: is told how it goes.

    Attributes:
      held_out: numbers of the entries that are held out.
      exams: geometric means of the last time, by family and topology.
    """

    def __init__(self, entries: Sequence[Entry], shown: Shown) -> None:
        self.held_out = [n for n, entry in enumerate(entries) if entry.held_out]
        self.exams: dict[str, dict[str, float]] = {}
        self._entries = entries
        self._shown = shown
        self._each: dict[str, Mapping[str, float]] = {}
        self._fingerprints: dict[str, str] = {}
        self._known_s: dict[str, float] = {}

    def teach(self, workers: Workers, numbers: Sequence[int]) -> None:
        """Finds the best known placements of these entries, as far as they are not kept."""
        futures = [workers.submit(teach, n) for n in numbers]
        for done, (n, future) in enumerate(zip(numbers, futures, strict=True)):
            self._shown.progress("best known placements", done, len(futures))
            case, (fingerprint, known_s) = self._entries[n].case, future.result()
            self._fingerprints[case.graph] = fingerprint
            self._known_s[str(case)] = known_s

    def examine(self, workers: Workers, values: Sequence[NDArray[Any]], update: int) -> dict[str, float]:
        """The geometric means, flat, of a policy with these parameters, after so many updates."""
        futures = [workers.submit(examine, values, n, (_SEED, n)) for n in self.held_out]
        found: dict[str, list[Mapping[str, float]]] = {}
        for done, (n, future) in enumerate(zip(self.held_out, futures, strict=True)):
            self._shown.progress("held-out graphs", done, len(futures))
            entry = self._entries[n]
            self._each[str(entry.case)] = row = future.result()
            found.setdefault(_kind(entry), []).append(row)
        self.exams = {
            name: {key: _geometric(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()
        }
        self._shown.examined(update, self.exams)
        return {f"{name}, {key}": value for name, row in self.exams.items() for key, value in row.items()}

    def facts(self) -> dict[str, Any]:
        """For the card: the last exams, each held-out entry, and fingerprints of the graphs that were taught."""
        each = {case: {"best_known_s": self._known_s[case], **row} for case, row in self._each.items()}
        return {"exams": self.exams, "held_out": each, "fingerprints": self._fingerprints}


def examined_anew(
    trained: Pretrained,
    entries: Sequence[Entry],
    make: Callable[[], Trainable[Any]],
    *,
    teaching: Teaching,
    engine: Engine,
    shown: Shown,
) -> Pretrained:
    """The same weights, with a card that says how they do by this version's costs.

    Args:
      trained: weights with the card of their training.
      entries: those of the training; files of the graphs that are learned from are not read.
      make: the policy.
      teaching: how the best known placements are found.
      engine: starts the workers.
      shown: is told how it goes.

    Raises:
      InputError: the weights were trained on other graphs, none of these is held out, or they are of another network.
      WorkersError: workers do not come back.
    """
    ours, theirs = counts(entries), trained.card.get("graphs", {})
    if other := [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]:
        raise InputError(
            f"graphs that differ from those of training ({', '.join(other)})", "the same graphs", _SAME_FLAGS
        )
    examination, pupil = Examination(entries, shown), make()
    if not examination.held_out:
        raise InputError(f"{len(entries)} graphs, none held out", "some held-out graphs")
    if dict(pupil.settings) != dict(trained.settings):
        raise InputError(f"settings {dict(pupil.settings)}", f"the weights' own, {trained.settings}", _SAME_FLAGS)
    trained.give(pupil.variables)  # refuses those of another network, before anything takes long
    with contextlib.closing(engine.start(functools.partial(Student, entries, teaching, make))) as workers:
        examination.teach(workers, examination.held_out)
        examination.examine(workers, trained.values, trained.card["updates"])
    facts = examination.facts()
    facts["fingerprints"] = {**trained.card["fingerprints"], **facts["fingerprints"]}
    examined = {"tfplace": VERSION, "python": platform.python_version(), "teaching": teaching.facts()}
    return replace(trained, card={**trained.card, **facts, "examined": examined})


def counts(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """How many graphs of each family are learned from and held out, on each topology."""
    rows: dict[str, dict[str, int]] = {}
    for entry in entries:
        row = rows.setdefault(_kind(entry), {"learned": 0, "held_out": 0})
        row["held_out" if entry.held_out else "learned"] += 1
    return rows


def _kind(entry: Entry) -> str:
    return f"{entry.family} on {entry.case.topology}"


def _geometric(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))
