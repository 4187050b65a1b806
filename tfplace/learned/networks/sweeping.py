"""Placeto's policy at work: sweeps over placements of one problem; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.learned.features.graph_inputs import GraphInputs
from tfplace.learned.features.sweep_inputs import sweep_inputs
from tfplace.learned.features.sweep_state import SweepState, sweep_rows
from tfplace.learned.features.unit_features import Float32
from tfplace.learned.networks.sweep_layers import Layers, scorer, told
from tfplace.local_search.sampling import pick


class Sweeper:
    """A problem that is swept over; rows are those of `GraphInputs`.

    Args:
      problem: whose units are placed; few, such as groups.
      inputs: of the problem.
      rounds: of message passing.
    """

    def __init__(self, problem: Problem, inputs: GraphInputs, rounds: int) -> None:
        self.told = told(inputs, sweep_inputs(inputs))
        self.rows = sweep_rows(problem, inputs)
        self._rounds = rounds

    def sweep(
        self,
        layers: Layers,
        before: IntArray,
        rng: np.random.Generator | None = None,
        visited: Callable[[IntArray, BoolArray], None] | None = None,
        temperature: float = 1.0,
    ) -> tuple[IntArray, Float32]:
        """Visits every unit once, side by side in all placements.

        Args:
          layers: the network.
          before: [N, G] devices of rows.
          rng: draws devices; without it each unit goes where the network would have it most.
          visited: called after each visit with [N, G] devices and [N] in which of them the unit has moved.
          temperature: of what is drawn.

        Returns:
          [N, G] devices, and the relations of all visits, [N, G, D, COLUMNS].
        """
        state, score = SweepState(self.rows, before), scorer(layers, self.told, before, self._rounds)
        relations = []
        for row in range(before.shape[1]):
            relations.append(state.relate(row))
            share = score.share(row, relations[-1], temperature)
            # a row of shares is one placement's distribution: `pick` draws one device from each
            device = share.argmax(axis=1) if rng is None else pick(rng.random((1, len(share))), share)[0]
            moved = state.devices[:, row] != device
            state.put(row, device)
            if visited is not None:
                visited(state.devices, moved)
        return state.devices, np.stack(relations, axis=1)

    def improve(
        self,
        layers: Layers,
        first: IntArray,
        judge: Callable[[IntArray], FloatArray],
        rng: np.random.Generator,
        *,
        again: int,
        draws: int,
        temperature: float,
    ) -> None:
        """Sweeps over a placement with every unit where the network would have it most, then draws, again and again.

        The first draws begin with the same placement, those that follow with the best that came of any before.

        Args:
          layers: the network.
          first: [G] devices of rows.
          judge: is told what [N, G] sweeps came to, once for each round, and says how good each is, [N].
          rng: draws devices.
          again: rounds of draws.
          draws: sweeps of a round.
          temperature: of what is drawn.
        """
        once, _ = self.sweep(layers, first[None])
        best, best_is = once[0], float(judge(once)[0])
        start = first
        for _ in range(again):
            drawn, _ = self.sweep(layers, np.repeat(start[None], draws, axis=0), rng, temperature=temperature)
            good = judge(drawn)
            if good.max() > best_is:
                best, best_is = drawn[good.argmax()], float(good.max())
            start = best
