"""Placeto's policy at work: sweeps over placements of one problem; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.problem import Problem
from tfplace.learning.features import Float32
from tfplace.learning.graph_inputs import GraphInputs
from tfplace.learning.sweep_inputs import sweep_inputs
from tfplace.learning.sweep_state import SweepState, sweep_rows
from tfplace.policies.networks.sweep_layers import Layers, scorer, told
from tfplace.study.draws import pick


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
    ) -> tuple[IntArray, Float32]:
        """Visits every unit once, side by side in all placements.

        Args:
          layers: the network.
          before: [N, G] devices of rows.
          rng: draws devices; without it each unit goes where the network would have it most.
          visited: called after each visit with [N, G] devices and [N] in which of them the unit has moved.

        Returns:
          [N, G] devices, and the relations of all visits, [N, G, D, COLUMNS].
        """
        state, score = SweepState(self.rows, before), scorer(layers, self.told, before, self._rounds)
        relations = []
        for row in range(before.shape[1]):
            relations.append(state.relate(row))
            share = score.share(row, relations[-1])
            # a row of shares is one placement's distribution: `pick` draws one device from each
            device = share.argmax(axis=1) if rng is None else pick(rng.random((1, len(share))), share)[0]
            moved = state.devices[:, row] != device
            state.put(row, device)
            if visited is not None:
                visited(state.devices, moved)
        return state.devices, np.stack(relations, axis=1)
