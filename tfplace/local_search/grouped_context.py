"""A context in which whole groups of units are placed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.critical_path import CriticalPath
from tfplace.core.engine import Controllers
from tfplace.core.problem import Problem
from tfplace.core.search_context import Left, SearchContext
from tfplace.core.stepcost import Key
from tfplace.group.co_placement import merge
from tfplace.group.merge import merge_units

_BEST, _KEY, _STATE = "grouped.best", "grouped.key", "grouped.state."


def in_groups(context: SearchContext, count: int) -> GroupedContext:
    """The context in at most `count` groups of `co_placement.merge`; every unit by itself if it has fewer.

    Those are the groups of the papers on learned placement: producers with their only consumers, then the smallest with
    their neighbors.
    """
    return GroupedContext(context, labels(context.problem, count))


def labels(problem: Problem, count: int) -> IntArray:
    """[U] the group of each unit, as `in_groups` has them."""
    few = problem.num_units <= count
    return np.arange(problem.num_units, dtype=np.int32) if few else merge(problem, count)


def group_devices(problem: Problem, label: IntArray, unit_device: IntArray) -> IntArray:
    """[U] devices of units -> [G]: of those a group may be on, where its units spend most seconds.

    Where they take none, it is where most of them are.

    Args:
      problem: the units'.
      label: [U] group of each unit, as in `GroupedContext`.
      unit_device: [U].
    """
    mean = np.nanmean(np.where(np.isfinite(problem.unit_seconds), problem.unit_seconds, np.nan), axis=1)
    allowed = np.ones((int(label.max(initial=-1)) + 1, problem.num_devices), np.bool_)
    np.logical_and.at(allowed, label, problem.allowed)
    seconds = np.where(allowed, 0.0, -np.inf)
    np.add.at(seconds, (label, unit_device), mean + np.finfo(np.float64).tiny)
    return np.asarray(seconds.argmax(axis=1), np.int32)


class GroupedContext(SearchContext):
    """A context of the same search in which whole groups of units are placed.

    Its problem has the groups as units. What it evaluates counts for the context it is made from, unit by unit.

    Args:
      context: of the ungrouped problem.
      label: [U] group of each unit, numbered from 0 by first unit; units of one group share an allowed device.
    """

    def __init__(self, context: SearchContext, label: IntArray) -> None:
        self._problem = merge_units(context.problem, label)
        self.best: IntArray | None = None
        self.best_key: Key | None = None
        self._context = context
        self._label = label
        self._line: tuple[GroupedContext, ...] = (self,)

    @property
    def problem(self) -> Problem:
        """The context's, with groups as units."""
        return self._problem

    @property
    def rng(self) -> np.random.Generator:
        """The context's generator."""
        return self._context.rng

    @property
    def evaluations(self) -> int:
        """Of the whole search."""
        return self._context.evaluations

    @property
    def spent(self) -> float:
        """Fraction of the context's budget used."""
        return self._context.spent

    @property
    def controllers(self) -> Controllers | None:
        """As of the context."""
        return self._context.controllers

    def replica(self) -> Callable[[], SearchContext]:
        """See `SearchContext.replica`."""
        return functools.partial(_replica, self._context.replica(), self._label)

    @property
    def bound_s(self) -> float:
        """The ungrouped problem's, which groups cannot beat either."""
        return self._context.bound_s

    @property
    def objective(self) -> str:
        """The context's."""
        return self._context.objective

    @property
    def plain(self) -> bool:
        """As of the context."""
        return self._context.plain

    @property
    def left(self) -> Left:
        """What is left of the context's budget."""
        return self._context.left

    def key(self, unit_device: IntArray, limit_s: float = np.inf) -> Key:
        """See `SearchContext.key`; [G] devices."""
        key = self._context.key(unit_device[self._label], limit_s)
        self._keep(unit_device, key)
        return key

    def keys(self, unit_devices: IntArray, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """See `SearchContext.keys`; [B, G] devices."""
        over, step_s = self._context.keys(self._ungrouped(unit_devices), limit_s)
        self._keep_first(unit_devices, over, step_s)
        return over, step_s

    def tell(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> int:
        """See `SearchContext.tell`; [B, G] devices."""
        count = self._context.tell(self._ungrouped(unit_devices), over, step_s)
        self._keep_first(unit_devices[:count], over[:count], step_s[:count])
        return count

    def count(self, evaluations: int) -> None:
        """See `SearchContext.count`."""
        self._context.count(evaluations)

    def critical_path(self, unit_device: IntArray) -> CriticalPath | None:
        """See `SearchContext.critical_path`; of groups."""
        path = self._context.critical_path(self.ungroup(unit_device))
        if path is None:
            return None
        reader = np.where(path.reader < 0, -1, self._label[path.reader])
        start, finish = np.full(self.problem.num_units, np.inf), np.zeros(self.problem.num_units)
        np.minimum.at(start, self._label, path.start)
        np.maximum.at(finish, self._label, path.finish)
        return CriticalPath(self._label[path.unit], reader, path.seconds, start, finish, path.op)

    def log(self, metrics: Mapping[str, float]) -> None:
        """See `SearchContext.log`."""
        self._context.log(metrics)

    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """See `SearchContext.save_checkpoint`; with the state goes the best of the groups' placements."""
        if self.best is not None and self.best_key is not None:
            best, key = self.best, np.array(self.best_key)
            self._context.save_checkpoint(lambda: {**_inside(state()), _BEST: best, _KEY: key})

    def load_checkpoint(self, *, same: bool = True) -> dict[str, NDArray[Any]] | None:
        """See `SearchContext.load_checkpoint`."""
        kept = self._context.load_checkpoint(same=same)
        if kept is not None:
            over, step_s = kept.pop(_KEY).tolist()
            self.best, self.best_key = kept.pop(_BEST), (int(over), step_s)
            kept = {name.removeprefix(_STATE): value for name, value in kept.items()}
        return kept

    def share(self, fraction: float, stage: str, most: int | None = None) -> GroupedContext:
        """See `SearchContext.share`."""
        return self._of(self._context.share(fraction, stage, most), self._line)

    def apart(self, left: Left, seed: int, span: tuple[float, float] = (0.0, 1.0)) -> GroupedContext:
        """See `SearchContext.apart`."""
        return self._of(self._context.apart(left, seed, span), ())

    def _of(self, context: SearchContext, line: tuple[GroupedContext, ...]) -> GroupedContext:
        """The same groups, which are not merged again, in another context."""
        part = copy.copy(self)
        part.best = part.best_key = None
        part._context = context
        part._line = (part, *line)
        return part

    def ungroup(self, group_device: IntArray) -> IntArray:
        """[G] devices of groups -> [U] devices of the context's units."""
        return group_device[self._label]

    def group(self, unit_device: IntArray) -> IntArray:
        """[U] devices of the context's units -> [G] of groups; see `group_devices`."""
        return group_devices(self._context.problem, self._label, unit_device)

    def known(self, starts: Sequence[IntArray]) -> list[IntArray]:
        """[G] devices of groups, for [U] placements known beforehand.

        Those that part a group are evaluated as they are, so that the answer is no worse.

        Raises:
          BudgetSpentError: from the context.
        """
        grouped = [self.group(start) for start in starts]
        for start, devices in zip(starts, grouped, strict=True):
            if not np.array_equal(devices[self._label], start):
                self._context.key(start)
        return grouped

    def _ungrouped(self, unit_devices: IntArray) -> IntArray:
        return np.ascontiguousarray(unit_devices[:, self._label])

    def _keep_first(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> None:
        """Keeps the best of the rows."""
        if len(over):
            first = int(np.lexsort((step_s, over))[0])
            self._keep(unit_devices[first], (int(over[first]), float(step_s[first])))

    def _keep(self, unit_device: IntArray, key: Key) -> None:
        for context in self._line:
            if context.best_key is None or key < context.best_key:
                context.best, context.best_key = unit_device.copy(), key


def _inside(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Under other names, since the state may be that of another context in groups."""
    return {_STATE + name: value for name, value in state.items()}


def _replica(context: Callable[[], SearchContext], label: IntArray) -> GroupedContext:
    return GroupedContext(context(), label)
