"""Contiguous: the dynamic program of Tarnawski et al. over the ideals of a graph."""

from __future__ import annotations

import math

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.local_search.devices import single_devices
from tfplace.schedule.pipeline.cuts import Table, cut, make_table
from tfplace.schedule.pipeline.ideals import Ideals, all_ideals, chain, depth_first_order
from tfplace.schedule.pipeline.pieces import Order, Pieces, make_pieces

_IDEALS = 60_000
_BLOCKS = 2000
_CELLS = 300_000_000
_STEPS = 4_000_000_000
_STATES = 4000
_STEPS_AT_ONCE = 20_000_000


class Contiguous(Placer):
    """Cuts the forward pass into one piece per device so that the largest load is least.

    A piece is what lies between two ideals of the order of `tfplace.group.forward` (with a block an ideal has all that
    comes before it), together with the backward ops attached. Over ideals I, and for every number of devices of each
    kind already used,

        best[I, used + a device] = min over ideals J within I of max(best[J, used], load of the device with I - J)

    which is the least largest load of all contiguous placements (the throughput DP). Pieces may be empty, and a host
    takes one like any other device. Kinds that are most alike count as one, with the longer seconds and the smaller
    memory of the two, as long as there are more than 4,000 numbers of devices used. If the order has more ideals than
    the limit, only the prefixes of one depth-first topological order are looked at (the paper's DPL); with more than
    2,000 blocks, only cuts between 2,000 stretches of that order, or fewer where devices are of many kinds, since the
    numbers used of each kind multiply. `notes` tells which it was.

    Departures: devices of any kinds, each kind told apart by seconds, memory and links. A piece's load cannot depend on
    where its neighbors are, so each transfer is counted over the slowest of the device's links to others that pay for
    transfers; where links differ, the published value may be lower. Pieces whose seconds alone pass the best solution
    so far, or after which the rest cannot be done within it (the work bound), are skipped. A block of no seconds (and
    no bytes, if memory is short) that a single other block exchanges anything with joins that. Units that may only be
    on a host beside accelerators are left out of the order and put there; a piece on that host counts the room for what
    they send it, which it does not need.

    By the step-time objective the same placement is evaluated, for what it is worth.

    Args:
      ideals: the most there may be for the full program; fewer with many blocks or kinds of devices, so that its
        table stays below a few hundred megabytes.
    """

    citation = (
        "J. Tarnawski, A. Phanishayee, N. R. Devanur, D. Mahajan, F. Nina Paravecino: Efficient Algorithms for Device "
        "Placement of DNN Graph Operators. NeurIPS 2020, the dynamic programs for throughput (DP, DPL)."
    )

    def __init__(self, ideals: int = _IDEALS) -> None:
        self.ideals = ideals

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates the linearised solution, then the full one, unless a budget of seconds is spent before."""
        home = single_devices(context.problem)[0]
        order, pieces = make_pieces(context.problem, _BLOCKS, _STATES, home)
        states = math.prod((pieces.number + 1).tolist())
        most = min(_CELLS // (16 * states), math.isqrt(_STEPS // (states * len(pieces.number))))
        if most < len(pieces.held):  # devices of many kinds
            order, pieces = make_pieces(context.problem, max(most, 1), _STATES, home)
        blocks = len(pieces.held)
        if blocks < 2:
            self.notes = ("contiguous: there is nothing to cut, so all is on one device",)
            return _best_single(context)
        line = _Solution(context, order, pieces, chain(depth_first_order(blocks, order.before)), home)
        weight = float(pieces.weight @ pieces.number)
        least_s = float(pieces.work.sum()) / weight if weight > 0 else 0.0  # nothing is known if others take longest
        # Pieces longer than the limit are not looked at, so it is first set low.
        best = None
        for limit_s in (1.25 * least_s, 2.5 * least_s, 10.0 * least_s, math.inf):
            best = line.best(limit_s)
            if best is not None or context.left.seconds == 0.0:
                break
        if best is not None:
            context.key(best)
        limit = min(self.ideals, _CELLS // (blocks + 16 * states))
        ideals = None if order.joined else all_ideals(blocks, order.before, limit)
        if order.joined:
            self.notes = (f"contiguous: linearized, {order.joined:,} blocks as {blocks:,} stretches of one order",)
        elif ideals is None:
            self.notes = (f"contiguous: linearized, as {blocks} blocks have more than {limit:,} ideals",)
        else:
            full = _Solution(context, order, pieces, ideals, home)
            better = full.best(line.value_s)
            done = "" if full.done else ", stopped early by the budget"
            self.notes = (f"contiguous: full program, {len(ideals.member):,} ideals of {blocks} blocks{done}",)
            if better is not None:
                best = better
                context.key(best)
        return _best_single(context) if best is None else best


class _Solution:
    """One run of the program.

    Args:
      context: for its problem and its budget.
      order: units as blocks.
      pieces: the blocks.
      ideals: between which pieces lie.
      home: [U] where units are that are in no block.
    """

    def __init__(self, context: SearchContext, order: Order, pieces: Pieces, ideals: Ideals, home: IntArray) -> None:
        self.value_s = math.inf
        self.done = False
        self._home = home
        self._context, self._order, self._pieces, self._ideals = context, order, pieces, ideals

    def best(self, limit_s: float) -> IntArray | None:
        """[U] devices of the best solution below the limit, or None."""
        table, count = make_table(self._pieces, self._ideals), len(self._ideals.member)
        self.value_s = limit_s
        # Of devices of many kinds few starts take as long as many of others.
        at_once = max(_STEPS_AT_ONCE // (count * table.best.shape[1] * len(self._pieces.number)), 1)
        for first in range(0, count, at_once):
            if first and self._context.left.seconds == 0.0:
                break
            end = min(first + at_once, count)
            self.value_s = cut(self._pieces, self._ideals, table, first, end, self.value_s)
        else:
            self.done = True
        if not np.isfinite(table.best[-1].min()):
            return None
        return self._devices(table)

    def _devices(self, table: Table) -> IntArray:
        """Goes back from the full set piece by piece; each takes the next device of its kind."""
        order = self._order
        device = np.zeros(len(self._pieces.held), np.int32)
        free = [np.flatnonzero(order.kind == k).tolist() for k in range(len(self._pieces.number))]
        at, state = len(table.rest) - 1, int(table.best[-1].argmin())
        while at:
            start, kind = int(table.parent[at, state]), int(table.last[at, state])
            device[self._ideals.member[at] & ~self._ideals.member[start]] = free[kind].pop()
            fewer = table.used[state].copy()
            fewer[kind] -= 1
            at, state = start, int(np.flatnonzero((table.used == fewer).all(axis=1))[0])
        return np.where(order.block >= 0, device[order.block], self._home).astype(np.int32)


def _best_single(context: SearchContext) -> IntArray:
    """Everything on one device, where no cut fits."""
    return min(single_devices(context.problem), key=context.key)
