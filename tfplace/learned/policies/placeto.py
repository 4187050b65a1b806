"""Placeto: a policy that visits every group in turn and places it anew, given where all the others are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import BudgetSpentError, SearchContext, best_of
from tfplace.errors import InputError
from tfplace.learned.training.baselines import by_step, discounted, standardised
from tfplace.learned.training.learned_move_selector import LearnedMoveSelector
from tfplace.learned.training.metrics import batch_metrics
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.learned.training.pretrained import SHIPPED, Pretrained, cut_short
from tfplace.learned.training.rewards import Reward
from tfplace.local_search.annealing import Annealing
from tfplace.local_search.devices import single_devices
from tfplace.local_search.grouped_context import in_groups
from tfplace.local_search.penalized_cost import PenalizedCost, best_start
from tfplace.local_search.repair import make_room
from tfplace.local_search.sampling import device_share, pick

if TYPE_CHECKING:
    from tfplace.learned.networks.sweep import Sweep, Sweeps
    from tfplace.learned.training.parameters import Parameters

MOVES = 4_000
_SIMULATED_OPS = 40_000_000
"""In all moves together."""


class PlacetoScratch(Placer):
    """Visits all groups in topological order and draws a device for each, given where the others are now.

    Section 3.1: the process; an episode visits every group once, and a step is rewarded by how much faster it made the
    placement. Section 3.2: the network (`Sweep`), REINFORCE, and the mean return at the same step of recent episodes as
    the baseline. Section 4.1: groups (`tfplace.group.co_placement.merge`). It learns from nothing, on the graph it
    places, until the budget is used up.

    Departures. Those of `Sweep`. Features are those of `tfplace.learned.features.graph_inputs`. Rewards are differences
    of `Reward`, on a scale that is the same for all models, with a price for missing memory, and advantages are told in
    standard deviations of the recent ones. A step that leaves a group where it is costs no evaluation.

    Args:
      starts: [U] placements; episodes begin with the best of them, and the first distribution leans towards it.
      settings: constants.
    """

    citation = (
        "R. Addanki, S. B. Venkatakrishnan, S. Gupta, H. Mao, M. Alizadeh: Placeto: Learning Generalizable Device "
        "Placement Algorithms for Distributed Machine Learning. NeurIPS 2019."
    )
    accepts_starts = True
    learned = True
    needs_tensorflow = True
    settings: PlacetoSettings

    def __init__(self, starts: Sequence[IntArray] = (), settings: PlacetoSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or PlacetoSettings()

    def place(self, context: SearchContext) -> IntArray:
        """Visits and learns until the context's budget is used up."""
        from tfplace.learned.training.host import on_host

        with on_host(), contextlib.suppress(BudgetSpentError):
            self._run(context, self.settings).go()
        return best_of(context)

    def _run(self, context: SearchContext, settings: PlacetoSettings, known: Pretrained | None = None) -> _Run:
        grouped = in_groups(context, settings.groups)
        start = best_start(grouped, grouped.known(self.starts))[0] if self.starts else None
        return _Run(grouped, settings, start, known)


class Placeto(PlacetoScratch):
    """Placeto with what it has learned on other graphs: places at once.

    Everything on one device is swept over with every group where the network would have it most; then sweeps are drawn,
    a dozen at a time, the first from the same start, later ones from the best that came of any. That is done in few
    large groups, then in as many as the network was trained with. If none of these fits the memory, what comes nearest
    is repaired (`tfplace.local_search.repair`). The best of these few placements is improved in moves, each of which is
    tried and kept if it is worth it, as in `tfplace.local_search.annealing`: of several that are drawn, those from
    which a second network expects most (`tfplace.learned.training.learned_move_selector`). Nothing is learned on the
    graph, unless it is to be fine-tuned, before it is moved: further updates draw sweeps side by side, and each is
    rewarded by how its end compares with the others'.

    Departures, beside those of `PlacetoScratch`. The paper sweeps over one grouping, repairs nothing, and moves whole
    groups alone. Of a graph that is unlike those it has learned on, the network often places large groups better than
    small ones (docs/research/pretrained_parts.md). Fine-tuning rewards the end alone, so that an update costs an
    evaluation an episode and not one a step. Steps that are not simulated, and throughput, have no critical path,
    which moves begin at: there is none there.

    Args:
      starts: [U] placements; the best of them is swept over instead of everything on one device.
      settings: constants; those of the network, and `groups`, are the weights' own.
      weights: "shipped", or a file that scripts/train_policy.py wrote.
      fine_tune: updates after the first placements.
      moves: placements that are tried in moves, at most; fewer of graphs of more than 10,000 ops, so that it takes no
        longer.

    Raises:
      InputError: a `fine_tune` or `moves` below 0.
    """

    needs_tensorflow = False
    pretrained = True

    def __init__(
        self,
        starts: Sequence[IntArray] = (),
        settings: PlacetoSettings | None = None,
        weights: str | Path = SHIPPED,
        fine_tune: int = 0,
        moves: int = MOVES,
    ) -> None:
        super().__init__(starts, settings)
        if fine_tune < 0:
            raise InputError(f"fine_tune {fine_tune}", "a number of updates, at least 0")
        if moves < 0:
            raise InputError(f"moves {moves}", "a number of placements, at least 0")
        self.weights = weights
        self.fine_tune = fine_tune
        self.moves = moves

    def place(self, context: SearchContext) -> IntArray:
        """Places, learns as long as it is to, and moves."""
        known, run = self._known(context), None
        with contextlib.suppress(BudgetSpentError):
            run = self._at_once(context, known)
            make_room(context, run.settings.groups)
            if self.fine_tune:
                from tfplace.learned.training.host import on_host

                with on_host():
                    run.tune(self.fine_tune)
            self._move(context)
        self.notes = cut_short(0 if run is None else run.updates, self.fine_tune)
        return best_of(context)

    def _at_once(self, context: SearchContext, known: Pretrained) -> _Run:
        """Places in coarse groups if there are more, then in as many as the weights are for; the run in those."""
        settings = known.settle(self.settings)
        first = settings.again // 2 if settings.coarse < min(settings.groups, context.problem.num_units) else 0
        if first:
            self._run(context, replace(settings, groups=settings.coarse), known).at_once(first)
        run = self._run(context, settings, known)
        run.at_once(settings.again - first)
        return run

    def _move(self, context: SearchContext) -> None:
        """Anneals from the best placement for a while.

        Raises:
          BudgetSpentError: that is over.
        """
        most = min(self.moves, _SIMULATED_OPS // max(context.problem.graph.num_ops, 1))
        if most and context.best is not None and context.best_key is not None:
            share = context.share(1.0, "moves", most)
            if share.critical_path(context.best) is not None:
                price = PenalizedCost(share, context.best_key)
                Annealing(share, context.best, context.best_key, price, LearnedMoveSelector.shipped()).run()

    def _known(self, context: SearchContext) -> Pretrained:
        del context
        return Pretrained.find(self.weights, "placeto")


class PlacetoUntrained(Placeto):
    """Placeto at once with the weights it begins with: what its network does without any training, to compare."""

    needs_tensorflow = True

    def _move(self, context: SearchContext) -> None:
        """What its network does is compared."""

    def _known(self, context: SearchContext) -> Pretrained:
        from tfplace.learned.training.host import on_host

        known = super()._known(context)
        with on_host():
            network = network_of(known.settle(self.settings), context.rng)
            return replace(known, values=[variable.numpy() for variable in network.variables])


def network_of(settings: PlacetoSettings, rng: np.random.Generator) -> Sweep:
    """An untrained network.

    Args:
      settings: constants.
      rng: draws the first weights.
    """
    from tfplace.learned.networks.sweep import Sweep

    return Sweep(rng, hidden=settings.hidden, rounds=settings.rounds)


def alone(problem: Problem) -> IntArray:
    """[U] what sweeps begin with at once: everything on the quickest device."""
    return single_devices(problem)[0]


class _Episodes(NamedTuple):
    """N episodes, each of which is a sweep, and [N, G + 1] rewards of all their states."""

    sweeps: Sweeps
    rewards: FloatArray


class _Run:
    """One run on the units of a context, rows being units in topological order."""

    def __init__(
        self, context: SearchContext, settings: PlacetoSettings, start: IntArray | None, known: Pretrained | None = None
    ) -> None:
        from tfplace.learned.features.graph_inputs import graph_inputs
        from tfplace.learned.networks.sweeping import Sweeper

        problem = context.problem
        self.context = context
        self.settings = settings
        self.start = start
        leant = start if known is None else None
        self.inputs = graph_inputs(problem, leant, settings.lean)
        self.sweeper = Sweeper(problem, self.inputs, settings.rounds)
        self.known = known
        self.reward = Reward(context, settings.reward)
        self.returns = np.zeros((0, problem.num_units))
        self.updates = 0
        self.last: dict[str, float] = {}

    def go(self) -> None:
        """Until the context raises."""
        self._recall()
        while True:
            metrics = self._learn(self._visit())
            self.context.log(metrics)
            self.context.save_checkpoint(self._state)

    def at_once(self, again: int) -> None:
        """Places without learning anything, and without TensorFlow, with so many rounds of draws."""
        from tfplace.learned.networks.sweep_layers import filled

        assert self.known is not None
        settings = self.settings
        self.sweeper.improve(
            filled(settings.hidden, self.known.values),
            self._first(),
            lambda rows: self.reward(*self._keys(rows)),
            self.context.rng,
            again=again,
            draws=settings.draws,
            temperature=settings.temperature,
        )

    def tune(self, updates: int) -> None:
        """Learns from sweeps side by side, each of which is compared with the others' ends."""
        self._recall()
        settings, count, first = self.settings, self.settings.draws, self._first()
        while self.updates < updates:
            sweeps = self._swept(np.repeat(first[None], count, axis=0))
            over, step_s = self._keys(sweeps.actions)
            rewards = self.reward(over, step_s)
            self.last = batch_metrics(over, step_s, rewards)
            self.reward.adapt(over)
            advantage = np.repeat(standardised(rewards)[:, None], sweeps.actions.shape[1], axis=1)
            found, metrics = self.network.gradients(self.sweeper.told, sweeps, advantage, 0.0)
            norm = self.parameters.descend(found, settings.last_rate, settings.clip)
            self.updates += 1
            self.context.log(self.last | {"gradient": norm, **metrics})
            self.context.save_checkpoint(self._state)

    @cached_property
    def network(self) -> Sweep:
        """What is trained; at once there is none."""
        network = network_of(self.settings, self.context.rng)
        if self.known is not None:
            self.known.give(network.variables)
        return network

    @cached_property
    def parameters(self) -> Parameters:
        """Of the network."""
        from tfplace.learned.training.parameters import Parameters

        return Parameters(self.network.variables, self.settings.rate)

    def _swept(self, before: IntArray, visited: Callable[[IntArray, BoolArray], None] | None = None) -> Sweeps:
        """Sweeps that the network draws."""
        from tfplace.learned.networks.sweep import Sweeps

        actions, relations = self.sweeper.sweep(self.network.arrays, before, self.context.rng, visited)
        return Sweeps(before, relations, actions)

    def _first(self) -> IntArray:
        """[G] what is swept over with weights."""
        return self.inputs.rows_of(alone(self.context.problem) if self.start is None else self.start)

    def _visit(self) -> _Episodes:
        """Episodes side by side, on the same policy."""
        before = self._begin()
        over, step_s = self._keys(before)
        rewards = [self.reward(over, step_s)]

        def visited(devices: IntArray, moved: BoolArray) -> None:
            if moved.any():
                over[moved], step_s[moved] = self._keys(devices[moved])
            rewards.append(self.reward(over, step_s))

        sweeps = self._swept(before, visited)
        self.last = batch_metrics(over, step_s, rewards[-1])
        self.reward.adapt(over)
        return _Episodes(sweeps, np.stack(rewards, axis=1))

    def _begin(self) -> IntArray:
        """[N, G] what the episodes begin with."""
        count, context = self.settings.episodes, self.context
        if self.start is not None:
            units = np.repeat(self.start[None], count, axis=0)
        elif self.settings.initial == "best" and context.best is not None:
            units = np.repeat(context.best[None], count, axis=0)
        elif self.settings.initial == "random":
            units = pick(context.rng.random((count, context.problem.num_units)), device_share(context.problem))
        else:
            units = np.repeat(alone(context.problem)[None], count, axis=0)
        return self.inputs.rows_of(units).copy()

    def _keys(self, rows: IntArray) -> tuple[LongArray, FloatArray]:
        """[N] of all rows.

        Raises:
          BudgetSpentError: the budget does not suffice for all of them; what it sufficed for counts.
        """
        over, step_s = self.context.keys(self.inputs.units_of(rows))
        if len(over) < len(rows):
            raise BudgetSpentError
        return over, step_s

    def _learn(self, episodes: _Episodes) -> dict[str, float]:
        """One step of Adam on all steps of the episodes."""
        settings, rewards = self.settings, episodes.rewards
        if settings.intermediate:
            returns = discounted(np.diff(rewards, axis=1), settings.discount)
        else:
            returns = np.broadcast_to(rewards[:, -1:] - rewards[:, :1], episodes.sweeps.actions.shape)
        self.returns = np.concatenate([self.returns, returns])[-settings.last :]
        baseline = by_step(self.returns, settings.last)
        left = 1 - self.context.spent
        spread = float((self.returns - baseline).std())  # 0 in the first update, which has nothing to compare with
        advantage = (returns - baseline) / (spread if spread > 0 else 1.0)
        found, metrics = self.network.gradients(self.sweeper.told, episodes.sweeps, advantage, settings.entropy * left)
        rate = settings.last_rate + (settings.rate - settings.last_rate) * left
        norm = self.parameters.descend(found, rate, settings.clip)
        return self.last | {"baseline": float(baseline.mean()), "gradient": norm, **metrics}

    def _state(self) -> dict[str, NDArray[Any]]:
        numbers = {"weight": np.array(self.reward.weight), "updates": np.array(self.updates)}
        return self.parameters.state() | {"returns": self.returns, **numbers}

    def _recall(self) -> None:
        parameters, kept = (
            self.parameters,
            self.context.load_checkpoint(),
        )  # first weights are drawn before anything else
        if kept is not None:
            parameters.restore(kept)
            self.returns, self.updates = kept["returns"], int(kept["updates"])
            self.reward = Reward(self.context, self.settings.reward, float(kept["weight"]))
