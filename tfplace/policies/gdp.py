"""GDP: a graph network and a segmented attention placer score all units at once; trained with PPO."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.errors import InputError
from tfplace.learning.settings import TrainSettings
from tfplace.study.base import Study

if TYPE_CHECKING:
    from tfplace.policies.networks.at_once import AtOnce


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
    lean: float = 0.9
    train: TrainSettings = field(default_factory=lambda: TrainSettings(batch=10, decay=None, pessimistic=False))

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.hidden % self.heads:
            raise InputError(f"hidden {self.hidden} with {self.heads} heads", "a multiple of the heads")
        if min(self.segment, self.epochs) < 1 or not self.clip > 0:
            given = f"segment {self.segment}, epochs {self.epochs} and clip {self.clip}"
            raise InputError(given, "numbers above 0")


class Gdp:
    """A graph network reads the whole graph, a placer with attention over segments scores all devices for every unit.

    Section 3.1: the graph network (`tfplace.policies.networks.sage`). 3.2: the placer, and one-shot logits without a
    grouping stage (`tfplace.policies.networks.segments`). 3.3: superposition
    (`tfplace.policies.networks.superposition`). 3.4: PPO on minus the square root of the step time, against the mean of
    all trials.

    Departures. Those of the parts named above. What is placed are units, which cannot be split. Features are those of
    `tfplace.learning.graph_inputs`, of which the paper has some; devices have features too, so that one policy serves
    any number of them. The first distribution is the blind draw (see `prior_logits`), and rewards are relative (see
    `Reward`).

    Args:
      starts: [U] placements, of which the first distribution leans towards the best.
      settings: constants.
    """

    citation = (
        "Y. Zhou, S. Roy, A. Abdolrashidi, D. Wong, P. C. Ma, Q. Xu, M. Zhong, H. Liu, A. Goldie, A. Mirhoseini, J. "
        "Laudon: GDP: Generalized Device Placement for Dataflow Graphs. arXiv 1910.01578, 2019."
    )

    learned = True

    def __init__(self, starts: Sequence[IntArray] = (), settings: GdpSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or GdpSettings()

    def place(self, study: Study) -> IntArray:
        """Draws and learns until the study's budget is used up."""
        from tfplace.learning.trainer import train

        train(study, self.starts, functools.partial(_learner, self.settings), self.settings.train)
        assert study.best is not None
        return study.best


def _learner(settings: GdpSettings, start: IntArray | None, study: Study) -> AtOnce:
    return learner_of(study.problem, settings, study.rng, start)


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
    from tfplace.learning.graph_inputs import graph_inputs
    from tfplace.policies.networks.at_once import AtOnce
    from tfplace.policies.networks.one_shot import OneShot

    inputs = graph_inputs(problem, start, settings.lean)
    network = OneShot(
        inputs.sizes,
        rng,
        hidden=settings.hidden,
        rounds=settings.rounds,
        heads=settings.heads,
        layers=settings.layers,
        segment=settings.segment,
        attention=settings.attention,
        conditioned=settings.superposition,
    )
    return AtOnce(inputs, network, clip=settings.clip, epochs=settings.epochs, entropy=settings.entropy)
