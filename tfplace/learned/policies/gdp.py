"""GDP: a graph network and a segmented attention placer score all units at once; trained with PPO."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import BudgetSpentError, SearchContext, best_of
from tfplace.errors import InputError
from tfplace.learned.features.prior import HOTTEST
from tfplace.learned.training.pretrained import SHIPPED, Pretrained, cut_short
from tfplace.learned.training.settings import TrainSettings
from tfplace.local_search.batches import all_keys
from tfplace.local_search.grouped_context import in_groups
from tfplace.local_search.penalized_cost import best_start
from tfplace.local_search.repair import make_room
from tfplace.local_search.sampling import together

if TYPE_CHECKING:
    from tfplace.learned.networks.at_once import AtOnce
    from tfplace.learned.networks.one_shot import OneShot


@dataclass(frozen=True)
class GdpSettings:
    """Constants. The paper tells of the parts, not of their sizes and rates, so that all of these are chosen here.

    Attributes:
      hidden: width of all layers.
      rounds: of the graph network: how far a unit sees.
      heads: of the attention.
      layers: of the placer.
      segment: units that are scored together.
      attention: whether units attend to one another; without it, the paper's ablation.
      superposition: whether the graph's features gate dense layers; without it, the paper's other ablation.
      clip: of PPO's ratios.
      epochs: how often each batch is learned from.
      entropy: weight of the mean entropy of a unit's choice, which is made large.
      coarse: how many groups are placed first, at once, if there are more units.
      draws: placements that are drawn at once, with weights; half of them, rounded down, in coarse groups.
      temperature: of these draws.
      together: of how many groups the units draw together; see `tfplace.local_search.sampling.together`.
      lean: of `prior_logits`, if there is a start.
      train: see there. The baseline is the mean of all trials, as in the paper.
    """

    hidden: int = 64
    rounds: int = 3
    heads: int = 4
    layers: int = 2
    segment: int = 256
    attention: bool = True
    superposition: bool = True
    clip: float = 0.2
    epochs: int = 3
    entropy: float = 0.0
    coarse: int = 32
    draws: int = 48
    temperature: float = 2.0
    together: int = 256
    lean: float = 0.9
    train: TrainSettings = field(default_factory=lambda: TrainSettings(batch=10, decay=None, pessimistic=False))

    def __post_init__(self) -> None:
        above = ("hidden", "heads", "layers", "segment", "epochs", "coarse", "draws", "together", "clip", "temperature")
        wrong = [f"{name} {getattr(self, name)}" for name in above if not getattr(self, name) > 0]
        if wrong or self.rounds < 0:
            raise InputError(", ".join(wrong) or f"rounds {self.rounds}", "numbers above 0, and rounds of at least 0")
        if self.temperature > HOTTEST:
            raise InputError(f"temperature {self.temperature}", f"at most {HOTTEST:g}")
        if self.hidden % self.heads:
            raise InputError(
                f"hidden {self.hidden} with {self.heads} heads", "a hidden that is a multiple of the heads"
            )


class GdpScratch(Placer):
    """A graph network reads the whole graph, a placer with attention over segments scores all devices for every unit.

    Section 3.1: the graph network (`tfplace.learned.networks.sage`). 3.2: the placer, and one-shot logits without a
    grouping stage (`tfplace.learned.networks.segments`). 3.3: superposition
    (`tfplace.learned.networks.superposition`). 3.4: PPO on minus the square root of the step time, against the mean of
    all trials. It learns from nothing, on the graph it places, until the budget is used up.

    Departures. Those of the parts named above. What is placed are units, which cannot be split. Units of a group draw
    with the same random number, where the paper's draw each for itself (see `tfplace.local_search.sampling.together`);
    whether they come to the same device is still the policy's to say, and each of them counts in the update. Features
    are those of `tfplace.learned.features.graph_inputs`, of which the paper has some; devices have features too, so
    that one policy serves any number of them. The first distribution is the blind draw (see `prior_logits`), and
    rewards are relative (see `Reward`).

    Args:
      starts: [U] placements, of which the first distribution leans towards the best.
      settings: constants.
    """

    citation = (
        "Y. Zhou, S. Roy, A. Abdolrashidi, D. Wong, P. C. Ma, Q. Xu, M. Zhong, H. Liu, A. Goldie, A. Mirhoseini, J. "
        "Laudon: GDP: Generalized Device Placement for Dataflow Graphs. arXiv 1910.01578, 2019."
    )
    accepts_starts = True
    learned = True
    needs_tensorflow = True
    settings: GdpSettings

    def __init__(self, starts: Sequence[IntArray] = (), settings: GdpSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or GdpSettings()

    def place(self, context: SearchContext) -> IntArray:
        """Draws and learns until the context's budget is used up."""
        from tfplace.learned.training.trainer import train

        train(context, self.starts, functools.partial(_learner, self.settings, None), self.settings.train)
        return best_of(context)


class Gdp(GdpScratch):
    """GDP with what it has learned on other graphs: places at once.

    Every unit goes where the network would have it most; then some placements are drawn. That is done for few large
    groups, which the network reads as if they were units, then for units. If none of these fits the memory, what comes
    nearest is repaired (`tfplace.local_search.repair`). The best of all is the answer, unless it is to be fine-tuned,
    as it would be trained from nothing.

    Departures, beside those of `GdpScratch`. The paper has no groups, and repairs nothing. Of a graph that is unlike
    those it has learned on, the network often places a few large groups better than thousands of units
    (docs/research/pretrained_parts.md).

    Args:
      starts: [U] placements, of which the distribution leans towards the best.
      settings: constants; those of the network are the weights' own.
      weights: "shipped", or a file that scripts/train_policy.py wrote.
      fine_tune: updates after the first placements.

    Raises:
      InputError: a `fine_tune` below 0.
    """

    pretrained = True

    def __init__(
        self,
        starts: Sequence[IntArray] = (),
        settings: GdpSettings | None = None,
        weights: str | Path = SHIPPED,
        fine_tune: int = 0,
    ) -> None:
        super().__init__(starts, settings)
        if fine_tune < 0:
            raise InputError(f"fine_tune {fine_tune}", "a number of updates, at least 0")
        self.weights = weights
        self.fine_tune = fine_tune

    def place(self, context: SearchContext) -> IntArray:
        """Places, and learns as long as it is to."""
        from tfplace.learned.training.host import on_host
        from tfplace.learned.training.trainer import Training

        known = Pretrained.find(self.weights, "gdp")
        settings = known.settle(self.settings)
        training: Training | None = None
        with on_host(), contextlib.suppress(BudgetSpentError):
            network = _network_with(known, settings)
            first = settings.draws // 2 if settings.coarse < context.problem.num_units else 0
            if first:
                groups = in_groups(context, settings.coarse)
                _at_once(groups, groups.known(self.starts), settings, network, first)
            start = _at_once(context, self.starts, settings, network, settings.draws - first)
            make_room(context, settings.together)
            if self.fine_tune:
                training = Training(context, functools.partial(_learner, settings, known, start), settings.train)
                training.go(self.fine_tune)
        self.notes = cut_short(0 if training is None else training.updates, self.fine_tune)
        return best_of(context)


@functools.lru_cache(maxsize=2)
def _network_with(known: Pretrained, settings: GdpSettings) -> OneShot:
    """A network that has learned, which is kept: to trace its functions takes longer than to place most graphs."""
    network = network_of(settings, np.random.default_rng(0))
    known.give(network.trainable_variables)
    network.serve_all()
    return network


def _at_once(
    context: SearchContext, starts: Sequence[IntArray], settings: GdpSettings, network: OneShot, draws: int
) -> IntArray | None:
    """Places without learning anything; the best start."""
    start = best_start(context, starts)[0] if starts else None
    policy = _policy_of(context.problem, settings, network, start)
    context.key(policy.likeliest())
    seed = context.rng.integers(2**31, size=2).astype(np.int32)
    all_keys(context, policy.draw(draws, seed, settings.temperature).devices)
    return start


def _learner(settings: GdpSettings, known: Pretrained | None, start: IntArray | None, context: SearchContext) -> AtOnce:
    learner = learner_of(context.problem, settings, context.rng, start)
    if known is not None:
        known.give(learner.variables)
    return learner


def learner_of(
    problem: Problem, settings: GdpSettings, rng: np.random.Generator, start: IntArray | None = None
) -> AtOnce:
    """An untrained policy for a problem.

    Args:
      problem: what is placed.
      settings: constants.
      rng: draws the first weights.
      start: [U] placement that the first distribution leans towards.
    """
    return _policy_of(problem, settings, network_of(settings, rng), start)


def _policy_of(problem: Problem, settings: GdpSettings, network: OneShot, start: IntArray | None) -> AtOnce:
    from tfplace.learned.features.graph_inputs import graph_inputs
    from tfplace.learned.networks.at_once import AtOnce

    inputs = graph_inputs(problem, start, settings.lean)
    alike = together(problem, inputs.order, settings.together)
    return AtOnce(inputs, network, alike, clip=settings.clip, epochs=settings.epochs, entropy=settings.entropy)


def network_of(settings: GdpSettings, rng: np.random.Generator) -> OneShot:
    """An untrained network.

    Args:
      settings: constants.
      rng: draws the first weights.
    """
    from tfplace.learned.networks.one_shot import OneShot

    return OneShot(
        rng,
        hidden=settings.hidden,
        rounds=settings.rounds,
        heads=settings.heads,
        layers=settings.layers,
        segment=settings.segment,
        attention=settings.attention,
        conditioned=settings.superposition,
    )
