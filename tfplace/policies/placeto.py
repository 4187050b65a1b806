"""Placeto: a policy that visits every group in turn and places it anew, given where all the others are."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.errors import InputError
from tfplace.learning.baselines import by_step
from tfplace.learning.metrics import batch_metrics
from tfplace.learning.rewards import Reward, RewardSettings
from tfplace.study.base import BudgetSpentError, Study
from tfplace.study.devices import single_devices
from tfplace.study.draws import device_share, pick
from tfplace.study.grouped import in_groups
from tfplace.study.price import best_start

Initial = Literal["random", "single", "best"]
_INITIAL = ("random", "single", "best")


@dataclass(frozen=True)
class PlacetoSettings:
    """Constants of Addanki et al. 2019 and of the code they published, where they tell.

    Attributes:
      groups: what is placed, if there are more units.
      hidden: width of the network (the paper's is that of its features, 5 to 8).
      rounds: k, of message passing.
      episodes: placements that are worked on side by side, each an episode; the paper has 4 to 8 workers.
      initial: what an episode begins with: a "random" placement, everything on a "single" device, or the "best" so far.
      intermediate: whether each step is rewarded by what it gained, the paper's choice; else the last one alone, by
        what the whole episode gained.
      last: episodes whose returns at the same step are the baseline.
      rate: of Adam at first.
      last_rate: at the budget's end; it falls in proportion to the budget.
      clip: the gradient's norm is at most this.
      entropy: weight of the mean entropy of a choice at first, which falls to 0 at the budget's end.
      lean: of `prior_logits`, if there is a start.
      reward: of what is visited.
    """

    groups: int = 256
    hidden: int = 16
    rounds: int = 8
    episodes: int = 4
    initial: Initial = "random"
    intermediate: bool = True
    last: int = 10
    rate: float = 1e-3
    last_rate: float = 1e-4
    clip: float = 1.25
    entropy: float = 0.01
    lean: float = 0.9
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        if self.initial not in _INITIAL:
            raise InputError(f"initial {self.initial!r}", f"one of {', '.join(_INITIAL)}")
        if min(self.groups, self.episodes, self.last) < 1 or not (self.rate > 0 and self.clip > 0):
            given = f"groups {self.groups}, episodes {self.episodes}, last {self.last}, rate {self.rate}"
            raise InputError(f"{given} and clip {self.clip}", "numbers above 0")


class Placeto:
    """Visits all groups in topological order and draws a device for each, given where the others are now.

    Section 3.1: the process; an episode visits every group once, and a step is rewarded by how much faster it made the
    placement. Section 3.2: the network (`Sweep`), REINFORCE, and the mean return at the same step of recent episodes as
    the baseline. Section 4.1: groups (`tfplace.group.co_placement.merge`).

    Departures. Those of `Sweep`. Features are those of `tfplace.learning.graph_inputs`. Rewards are differences of
    `Reward`, on a scale that is the same for all models, with a price for missing memory. A step that leaves a group
    where it is costs no evaluation.

    Args:
      starts: [U] placements; episodes begin with the best of them, and the first distribution leans towards it.
      settings: constants.
    """

    citation = (
        "R. Addanki, S. B. Venkatakrishnan, S. Gupta, H. Mao, M. Alizadeh: Placeto: Learning Generalizable Device "
        "Placement Algorithms for Distributed Machine Learning. NeurIPS 2019."
    )

    learned = True

    def __init__(self, starts: Sequence[IntArray] = (), settings: PlacetoSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or PlacetoSettings()

    def place(self, study: Study) -> IntArray:
        """Visits and learns until the study's budget is used up."""
        grouped = in_groups(study, self.settings.groups)
        with contextlib.suppress(BudgetSpentError):
            start = best_start(grouped, [grouped.group(s) for s in self.starts])[0] if self.starts else None
            _Run(grouped, self.settings, start).go()
        assert study.best is not None
        return study.best


class _Episodes(NamedTuple):
    """N episodes of T steps: [T, N, G] devices before each, [T, N] what was taken, [T + 1, N] rewards of all states."""

    devices: IntArray
    actions: IntArray
    rewards: FloatArray


class _Run:
    """One run on the units of a study, rows being units in topological order."""

    def __init__(self, study: Study, settings: PlacetoSettings, start: IntArray | None) -> None:
        from tfplace.learning.graph_inputs import graph_inputs
        from tfplace.learning.parameters import Parameters
        from tfplace.learning.sweep_inputs import sweep_inputs
        from tfplace.policies.networks.sweep import Sweep, told

        problem = study.problem
        self.study = study
        self.settings = settings
        self.start = start
        self.inputs = graph_inputs(problem, start, settings.lean)
        self.network = Sweep(self.inputs.sizes[:2], study.rng, hidden=settings.hidden, rounds=settings.rounds)
        self.told = told(self.inputs, sweep_inputs(problem, self.inputs))
        self.parameters = Parameters(self.network.trainable_variables, settings.rate)
        self.reward = Reward(study, settings.reward)
        self.returns = np.zeros((0, problem.num_units))
        self.last: dict[str, float] = {}

    def go(self) -> None:
        """Until the study raises."""
        kept = self.study.recall()
        if kept is not None:
            self.parameters.restore(kept)
            self.returns = kept["returns"]
            self.reward = Reward(self.study, self.settings.reward, float(kept["weight"]))
        while True:
            metrics = self._learn(self._visit())
            self.study.log(metrics)
            self.study.keep(self._state)

    def _visit(self) -> _Episodes:
        """Episodes side by side, on the same policy."""
        rows = self._begin()
        over, step_s = self._keys(rows)
        states, actions, rewards = [], [], [self.reward(over, step_s)]
        for unit in range(rows.shape[1]):
            share = self.network.share(self.told, rows, unit)
            # a row is one placement's distribution: `pick` draws one device from each
            device = pick(self.study.rng.random((1, len(rows))), share)[0]
            states.append(rows.copy())
            actions.append(device)
            moved = np.flatnonzero(rows[:, unit] != device)
            rows[:, unit] = device
            if len(moved):
                over[moved], step_s[moved] = self._keys(rows[moved])
            rewards.append(self.reward(over, step_s))
        self.last = batch_metrics(over, step_s, rewards[-1])
        self.reward.adapt(over)
        return _Episodes(np.stack(states), np.stack(actions), np.stack(rewards))

    def _begin(self) -> IntArray:
        """[N, G] what the episodes begin with."""
        count, study = self.settings.episodes, self.study
        if self.start is not None:
            units = np.repeat(self.start[None], count, axis=0)
        elif self.settings.initial == "best" and study.best is not None:
            units = np.repeat(study.best[None], count, axis=0)
        elif self.settings.initial == "random":
            units = pick(study.rng.random((count, study.problem.num_units)), device_share(study.problem))
        else:
            units = np.repeat(single_devices(study.problem)[0][None], count, axis=0)
        return self.inputs.rows_of(units).copy()

    def _keys(self, rows: IntArray) -> tuple[LongArray, FloatArray]:
        """[N] of all rows.

        Raises:
          BudgetSpentError: the budget does not suffice for all of them; what it sufficed for counts.
        """
        over, step_s = self.study.keys(self.inputs.units_of(rows))
        if len(over) < len(rows):
            raise BudgetSpentError
        return over, step_s

    def _learn(self, episodes: _Episodes) -> dict[str, float]:
        """One step of Adam on all steps of the episodes."""
        from tfplace.policies.networks.sweep import Visits

        settings, rewards = self.settings, episodes.rewards
        returns = (rewards[-1] - rewards[:-1] if settings.intermediate else rewards[-1:] - rewards[:1]).T
        returns = np.broadcast_to(returns, (rewards.shape[1], len(rewards) - 1))
        self.returns = np.concatenate([self.returns, returns])[-settings.last :]
        baseline = by_step(self.returns, settings.last)
        left = 1 - self.study.spent
        steps, count = episodes.actions.shape
        visits = Visits(
            episodes.devices.reshape(steps * count, -1),
            np.repeat(np.arange(steps, dtype=np.int32), count),
            episodes.actions.ravel(),
            (returns - baseline).T.ravel().astype(np.float32),
        )
        found, metrics = self.network.gradients(self.told, visits, settings.entropy * left)
        rate = settings.last_rate + (settings.rate - settings.last_rate) * left
        norm = self.parameters.descend(found, rate, settings.clip)
        return self.last | {"baseline": float(baseline.mean()), "gradient": norm, **metrics}

    def _state(self) -> dict[str, NDArray[Any]]:
        weight = np.array(self.reward.weight)
        return self.parameters.state() | {"returns": self.returns, "weight": weight}
