"""BRKGA: a genetic algorithm over random keys, on groups of units from coarse to fine."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, SearchContext
from tfplace.errors import InputError
from tfplace.group.coarsen import nested_groups
from tfplace.local_search.batches import all_keys, try_all
from tfplace.local_search.devices import single_devices
from tfplace.local_search.grouped_context import GroupedContext
from tfplace.local_search.penalized_cost import PenalizedCost, begin, limit_for
from tfplace.local_search.sampling import device_share, pick


@dataclass(frozen=True)
class Settings:
    """The method's constants, by the letters of the paper; its recommended ranges in brackets.

    Attributes:
      population: p.
      elite: p_e / p, the part that is kept [0.10, 0.25].
      mutants: p_m / p, the part that is drawn anew [0.10, 0.30].
      rho: with what probability a child has its elite parent's key (0.5, 0.8].
    """

    population: int = 50
    elite: float = 0.2
    mutants: float = 0.15
    rho: float = 0.7

    @property
    def num_elite(self) -> int:
        """p_e; at least 1."""
        return max(round(self.elite * self.population), 1)

    @property
    def num_mutants(self) -> int:
        """p_m."""
        return round(self.mutants * self.population)

    def __post_init__(self) -> None:
        if self.num_elite + self.num_mutants >= self.population:
            raise InputError(
                f"{self.num_elite} elite and {self.num_mutants} mutants of {self.population}",
                "fewer than the population, which leaves room for children",
            )


class Brkga(Placer):
    """Evolves a population of vectors with a key in [0, 1) per group of units.

    A vector stands for a placement: each group goes to the device in whose interval its key lies; see
    `tfplace.local_search.sampling.device_share` for their lengths. In each generation the elite stays, mutants are
    drawn blindly, and the rest are children of an elite and another parent, who have the elite one's key with
    probability rho and the other's else, for each key anew.

    The budget is shared equally by levels of `tfplace.group.coarsen.hierarchy` from coarse to fine. A level's first
    population is the last of the level before, each group's key given to all groups it is made of. If there are at most
    2,000 placements, all of them are tried instead.

    Departures. From the paper: the population has a fixed size instead of one in proportion to the number of keys, and
    starts with the given placements, as far as groups can express them (each group goes where its first unit is). From
    REGAL: no key for the priority of an op, since the simulator has an order of its own; one key per group for the
    device instead of one per op and device; groups. Placements that do not fit the memory are ranked with a price for
    what is missing, which rises while half of the elite or more are such (`PenalizedCost.adapt`).

    Args:
      starts: [U] placements in the first population; by default everything on each device in turn.
      groups: for each level, how many groups it has at most.
      settings: the method's constants.
    """

    citation = (
        "J. F. Goncalves, M. G. C. Resende: Biased random-key genetic algorithms for combinatorial optimization. "
        "Journal of Heuristics 17, 2011; for placement as in A. Paliwal et al.: Reinforced Genetic Algorithm Learning "
        "for Optimizing Computation Graphs (REGAL). ICLR 2020."
    )
    accepts_starts = True
    supports_workers = True
    settings: Settings

    def __init__(
        self,
        starts: Sequence[IntArray] = (),
        groups: Sequence[int] = (30, 300, 1000),
        settings: Settings | None = None,
    ) -> None:
        self.starts = tuple(starts)
        self.groups = tuple(groups)
        self.settings = settings or Settings()

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up, or all placements have been tried."""
        starts = self.starts or single_devices(context.problem)
        start, _, price = begin(context, starts)
        if not try_all(context):
            self._levels(context, starts, price)
        return start if context.best is None else context.best

    def _levels(self, context: SearchContext, starts: Sequence[IntArray], price: PenalizedCost) -> None:
        labels = nested_groups(context.problem, self.groups)
        population: Population | None = None
        for level, label in enumerate(labels):
            part = context.share(1 / (len(labels) - level), f"brkga, {int(label.max()) + 1} groups")
            grouped = GroupedContext(part, label)
            first = np.unique(label, return_index=True)[1]
            if population is None:
                share = device_share(grouped.problem)
                population = Population(
                    np.stack([encode(start[first], share) for start in starts]), price, self.settings
                )
            else:
                population.refine(labels[level - 1][first])
            with contextlib.suppress(BudgetSpentError):
                population.evolve(grouped)


class Population:
    """Random keys and what their placements cost.

    Args:
      keys: [N, G] the first ones; drawn ones fill up the population.
      price: makes one number of a placement's key.
      settings: the method's constants.
    """

    def __init__(self, keys: FloatArray, price: PenalizedCost, settings: Settings) -> None:
        self.keys = keys
        self.over, self.step_s = np.zeros(0, np.int64), np.zeros(0)
        self._price = price
        self._settings = settings

    @property
    def energy(self) -> FloatArray:
        """[N] prices of the placements."""
        return self._price.rows(self.over, self.step_s)

    def refine(self, coarse: IntArray) -> None:
        """Gives each of [G] finer groups the key of the group it is in."""
        self.keys = self.keys[:, coarse]

    def evolve(self, context: SearchContext) -> None:
        """One generation after the other, of placements of the context's units, until the context raises.

        Raises:
          BudgetSpentError: from the context.
        """
        share = device_share(context.problem)
        if not len(self.step_s):
            missing = max(self._settings.population - len(self.keys), 0)
            self.keys = np.concatenate([self.keys, context.rng.random((missing, self.keys.shape[1]))])
            self.over, self.step_s = all_keys(context, pick(self.keys, share))
        while True:
            self._generation(context, share)

    def _generation(self, context: SearchContext, share: FloatArray) -> None:
        settings, rng = self._settings, context.rng
        energy = self.energy
        order = np.argsort(energy, kind="stable")
        elite, others = order[: settings.num_elite], np.sort(order[settings.num_elite :])
        count = len(order) - settings.num_elite - settings.num_mutants
        one, other = self.keys[rng.choice(elite, count)], self.keys[rng.choice(others, count)]
        mutants = rng.random((settings.num_mutants, self.keys.shape[1]))
        fresh = np.concatenate([crossover(rng, one, other, settings.rho), mutants])
        # What is slower than an elite that fits is never in one, so it makes no difference how slow it is.
        slowest = math.inf if self.over[elite].any() else float(energy[elite[-1]])
        limit_s = limit_for(context, slowest)
        over, step_s = all_keys(context, pick(fresh, share), limit_s)
        self.keys = np.concatenate([self.keys[elite], fresh])
        self.over = np.concatenate([self.over[elite], over])
        self.step_s = np.concatenate([self.step_s[elite], step_s])
        self._price.adapt(fits=np.median(self.over[: len(elite)]) == 0)


def crossover(rng: np.random.Generator, elite: FloatArray, other: FloatArray, rho: float) -> FloatArray:
    """[B, G] children: each key is the elite parent's with probability rho (Goncalves and Resende, section 2)."""
    return np.where(rng.random(elite.shape) < rho, elite, other)


def encode(devices: IntArray, share: FloatArray) -> FloatArray:
    """[G] keys in the middle of the intervals of [G] devices; `pick` gives the devices back.

    Args:
      devices: [G], each with a share above 0.
      share: [G, D] lengths of the intervals; each row sums to 1.
    """
    groups = np.arange(len(devices))
    top = np.cumsum(share, axis=1)
    return np.asarray(top[groups, devices] - share[groups, devices] / 2, np.float64)
