"""Placeto's policy at work: sweeps over placements of one problem."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.problem import Problem
from tfplace.learning.graph_inputs import GraphInputs
from tfplace.learning.sweep_inputs import sweep_inputs
from tfplace.learning.sweep_state import SweepState, sweep_rows
from tfplace.policies.networks.sweep import Sweep, Sweeps, told
from tfplace.study.draws import pick


class Sweeper:
    """A network and the problem it places; rows are those of `GraphInputs`.

    Args:
      problem: whose units are placed; few, such as groups.
      inputs: of the problem.
      network: says where units go.
    """

    def __init__(self, problem: Problem, inputs: GraphInputs, network: Sweep) -> None:
        self.network = network
        self.told = told(inputs, sweep_inputs(inputs))
        self.rows = sweep_rows(problem, inputs)

    def sweep(
        self,
        before: IntArray,
        rng: np.random.Generator | None = None,
        visited: Callable[[IntArray, BoolArray], None] | None = None,
    ) -> Sweeps:
        """Visits every unit once, side by side in all placements.

        Args:
          before: [N, G] devices of rows.
          rng: draws devices; without it each unit goes where the network would have it most.
          visited: called after each visit with [N, G] devices and [N] in which of them the unit has moved.
        """
        state, scorer = SweepState(self.rows, before), self.network.scorer(self.told, before)
        relations = []
        for row in range(before.shape[1]):
            relations.append(state.relate(row))
            share = scorer.share(row, relations[-1])
            # a row of shares is one placement's distribution: `pick` draws one device from each
            device = share.argmax(axis=1) if rng is None else pick(rng.random((1, len(share))), share)[0]
            moved = state.devices[:, row] != device
            state.put(row, device)
            if visited is not None:
                visited(state.devices, moved)
        return Sweeps(before, np.stack(relations, axis=1), state.devices)
