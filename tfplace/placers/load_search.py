"""Load search: simulated annealing on the loads of a pipeline, with moves that cost only what they touch."""

# Kernels take plain arguments, of which there are many; a NamedTuple's fields are of type Any once compiled.
# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.kernels import helper, inlined, kernel
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.group.coarsen import hierarchy
from tfplace.group.vicinity import members
from tfplace.local_search.devices import compute_devices, single_devices
from tfplace.simulation.pipeline import LoadProgram, compile_loads

_MOVES = 1000
"""Moves for each evaluation, since a move is counted from what it touches alone."""

_ROUNDS = 6
"""Falls of the temperature, each over an equal part of the budget; an even number, so that the last one starts from the
best placement found."""

_POWER = 16.0
_OVER_S = 0.01
_OVER_ALL_S = 2.0


class LoadSearch(Placer):
    """Anneals largest loads, by the throughput objective whatever the context's, until the budget is used up.

    A move puts a unit, or all units of a cluster of `tfplace.group.coarsen`, on a neighbor's device or a random one,
    or swaps two units. What it changes is counted from the messages of the units moved. The energy is the 16-norm of
    the devices' loads, which is near the largest and falls too when another load does, and a price for bytes over the
    limits; the temperature falls geometrically, several times over the budget: in turn from the best of the starts and
    from the best placement found.

    Every 1,000 moves the best placement among them is evaluated by the context, which is one evaluation of its budget.
    By another objective than throughput this placer is only a way to balance loads.

    Args:
      starts: [U] placements to start from; by default all of the problem on each device in turn.
      hot: temperature at the start of a round, in largest loads of the start divided by the number of units.
      cold: temperature at its end, alike.
    """

    citation = (
        "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi: Optimization by Simulated Annealing. Science 220, 1983; for the "
        "max-load objective of J. Tarnawski et al.: Efficient Algorithms for Device Placement of DNN Graph Operators. "
        "NeurIPS 2020."
    )
    accepts_starts = True
    supports_workers = True

    def __init__(self, starts: Sequence[IntArray] = (), hot: float = 3.0, cold: float = 0.003) -> None:
        self.starts = tuple(starts)
        self.hot = hot
        self.cold = cold

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up; returns before only if there is nothing to move."""
        problem = context.problem
        starts = self.starts or single_devices(problem)
        keys = [context.key(start) for start in starts]
        first = starts[min(range(len(starts)), key=keys.__getitem__)]
        board = make_board(problem)
        if not board.movable.any():
            return first
        state = make_state(board, int(context.rng.integers(1, 2**62)))
        while context.spent < 1:
            turn = min(int(context.spent * _ROUNDS), _ROUNDS - 1)
            start = first if turn % 2 == 0 or context.best is None else context.best
            self._round(context, board, state, start, (turn + 1) / _ROUNDS)
        return first if context.best is None else context.best

    def _round(self, context: SearchContext, board: Board, state: State, start: IntArray, until: float) -> None:
        """One fall of the temperature, which ends when `until` of the budget is spent."""
        place_all(board.loads, state, start)
        mean = max(float(state.load.max()) / len(start), math.ulp(0.0))
        since = context.spent
        while context.spent < until or context.spent == since:
            part = min((context.spent - since) / max(until - since, 1e-9), 1.0)
            temperature = mean * self.hot * (self.cold / self.hot) ** part
            anneal(board, state, temperature, _MOVES)
            context.key(state.best)


class Board(NamedTuple):
    """What does not change: the loads, and how units hang together.

    Attributes:
      loads: the compiled problem.
      touch_first: [U + 1] unit u makes or reads the messages `touch[touch_first[u]:touch_first[u + 1]]`.
      touch: messages.
      allowed: [U, D].
      usual: devices that work is spread over.
      movable: units that may be on several devices.
      cluster_first: [K + 1] cluster k has the units `member[cluster_first[k]:cluster_first[k + 1]]`.
      member: units.
    """

    loads: LoadProgram
    touch_first: IntArray
    touch: IntArray
    allowed: BoolArray
    usual: IntArray
    movable: IntArray
    cluster_first: IntArray
    member: IntArray


class State(NamedTuple):
    """What a search changes.

    Attributes:
      units: [U] devices.
      there: [M, D] readers of a message on a device, its maker's own unit left out.
      load: [D] seconds.
      held: [D] bytes.
      best: [U] the best placement since the last start of `anneal`.
      before: [U] scratch, devices before a move.
      moved: [U] scratch, what a move moved.
      random: [1] state of the generator.
    """

    units: IntArray
    there: IntArray
    load: FloatArray
    held: LongArray
    best: IntArray
    before: IntArray
    moved: IntArray
    random: LongArray


def make_board(problem: Problem) -> Board:
    """Lays a problem out for the search."""
    loads = compile_loads(problem)
    of = np.repeat(np.arange(len(loads.maker)), np.diff(loads.first))
    unit = np.concatenate([loads.maker, loads.reader])
    order = np.argsort(unit, kind="stable")
    clusters = [units for label in hierarchy(problem) for units in members(label) if len(units) > 1]
    return Board(
        loads=loads,
        touch_first=np.searchsorted(unit[order], np.arange(problem.num_units + 1)).astype(np.int32),
        touch=np.concatenate([np.arange(len(loads.maker)), of])[order].astype(np.int32),
        allowed=problem.allowed.copy(),
        usual=compute_devices(problem),
        movable=np.flatnonzero(problem.allowed.sum(axis=1) > 1).astype(np.int32),
        cluster_first=np.cumsum([0, *map(len, clusters)]).astype(np.int32),
        member=np.concatenate([*clusters, np.zeros(0, np.int64)]).astype(np.int32),
    )


def make_state(board: Board, seed: int) -> State:
    """Arrays for one search at a time."""
    units, devices = board.allowed.shape
    zeros = np.zeros
    return State(
        units=zeros(units, np.int32),
        there=zeros((len(board.loads.maker), devices), np.int32),
        load=zeros(devices),
        held=zeros(devices, np.int64),
        best=zeros(units, np.int32),
        before=zeros(units, np.int32),
        moved=zeros(units, np.int32),
        random=np.array([seed], np.int64),
    )


@inlined
def _draw(s: State) -> float:
    """A number from 0 to 1: xorshift64 (Marsaglia 2003)."""
    x = np.uint64(s.random[0])
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    s.random[0] = np.int64(x)
    return np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@helper
def _count(p: LoadProgram, s: State, m: int, sign: float) -> None:
    """Adds what sending and receiving a message costs, or takes it away."""
    home, longest = s.units[p.maker[m]], 0.0
    for d in range(len(s.load)):
        if s.there[m, d] == 0 or d == home:
            continue
        s.load[d] += sign * (p.trips[m] * p.into[0, home, d] + p.volume[m] * p.into[1, home, d])
        s.held[d] += np.int64(sign) * p.size[m]
        longest = max(longest, p.trips[m] * p.out[0, home, d] + p.volume[m] * p.out[1, home, d])
    s.load[home] += sign * longest


@helper
def _move(b: Board, s: State, u: int, to: int) -> None:
    """Puts a unit on a device."""
    p, at = b.loads, s.units[u]
    if at == to:
        return
    for i in range(b.touch_first[u], b.touch_first[u + 1]):
        _count(p, s, b.touch[i], -1.0)
    s.units[u] = to
    for i in range(b.touch_first[u], b.touch_first[u + 1]):
        m = b.touch[i]
        if p.maker[m] != u:
            s.there[m, at] -= 1
            s.there[m, to] += 1
        _count(p, s, m, 1.0)
    s.load[at] -= p.seconds[u, at]
    s.load[to] += p.seconds[u, to]
    s.held[at] -= p.unit_bytes[u]
    s.held[to] += p.unit_bytes[u]


@kernel
def place_all(p: LoadProgram, s: State, units: IntArray) -> None:
    """Starts anew from a placement."""
    _place_all(p, s, units)


@helper
def _place_all(p: LoadProgram, s: State, units: IntArray) -> None:
    for d in range(len(s.load)):
        s.load[d], s.held[d] = 0.0, 0
        for m in range(len(p.maker)):
            s.there[m, d] = 0
    for u in range(len(units)):
        s.units[u] = s.best[u] = units[u]
        s.load[units[u]] += p.seconds[u, units[u]]
        s.held[units[u]] += p.unit_bytes[u]
    for m in range(len(p.maker)):
        for r in range(p.first[m], p.first[m + 1]):
            s.there[m, units[p.reader[r]]] += 1
        _count(p, s, m, 1.0)


@helper
def _over(p: LoadProgram, s: State) -> int:
    over = 0
    for d in range(len(s.held)):
        over += max(s.held[d] - p.limit[d], 0)
    return over


@helper
def _largest(load: FloatArray) -> float:
    largest = load[0]
    for d in range(1, len(load)):
        largest = max(largest, load[d])
    return largest


@helper
def _energy(p: LoadProgram, s: State, scale: float, total: float) -> float:
    over = _over(p, s)
    price = scale * (_OVER_S + _OVER_ALL_S * over / total) if over else 0.0
    largest = _largest(s.load)
    if largest <= 0:
        return price
    norm = 0.0
    for d in range(len(s.load)):
        norm += (s.load[d] / largest) ** 16
    return largest * norm ** (1.0 / _POWER) + price


@helper
def _device_for(b: Board, s: State, u: int) -> int:
    """A device for a unit: a neighbor's, a usual one, or seldom any; where it is if it may not be there."""
    draw = _draw(s)
    first, end = b.touch_first[u], b.touch_first[u + 1]
    if draw < 0.5 and end > first:
        m = b.touch[first + int(_draw(s) * (end - first))]
        p = b.loads
        other = p.maker[m]
        if other == u:
            other = p.reader[p.first[m] + int(_draw(s) * (p.first[m + 1] - p.first[m]))]
        to = s.units[other]
    elif draw < 0.95:
        to = b.usual[int(_draw(s) * len(b.usual))]
    else:
        to = np.int32(_draw(s) * len(s.load))
    return to if b.allowed[u, to] else s.units[u]


@helper
def _propose(b: Board, s: State) -> int:
    """Makes a random move; writes down in `s.moved` which units it moved, and in `s.before` where they were."""
    draw = _draw(s)
    clusters = len(b.cluster_first) - 1
    u = b.movable[int(_draw(s) * len(b.movable))]
    if draw < 0.1 and clusters > 0:
        k = int(_draw(s) * clusters)
        u = b.member[b.cluster_first[k]]
        to, n = _device_for(b, s, u), 0
        for i in range(b.cluster_first[k], b.cluster_first[k + 1]):
            v = b.member[i]
            if s.units[v] != to and b.allowed[v, to]:
                s.moved[n], s.before[v] = v, s.units[v]
                n += 1
                _move(b, s, v, to)
        return n
    if draw < 0.4:
        v = b.movable[int(_draw(s) * len(b.movable))]
        here, there = s.units[u], s.units[v]
        if here == there or not b.allowed[u, there] or not b.allowed[v, here]:
            return 0
        s.moved[0], s.moved[1], s.before[u], s.before[v] = u, v, here, there
        _move(b, s, u, there)
        _move(b, s, v, here)
        return 2
    if draw < 0.7:  # off the device that decides
        worst = 0
        for d in range(1, len(s.load)):
            if s.load[d] > s.load[worst]:
                worst = d
        for _ in range(8):
            if s.units[u] == worst:
                break
            u = b.movable[int(_draw(s) * len(b.movable))]
    to = _device_for(b, s, u)
    if to == s.units[u]:
        return 0
    s.moved[0], s.before[u] = u, s.units[u]
    _move(b, s, u, to)
    return 1


@kernel
def anneal(b: Board, s: State, temperature: float, moves: int) -> None:
    """Tries some moves at one temperature; `s.best` is the best placement among those accepted, or the present one."""
    p = b.loads
    for u in range(len(s.units)):
        s.before[u] = s.units[u]
    _place_all(p, s, s.before)  # sums of many differences drift
    bytes_there = 0
    for d in range(len(b.usual)):
        bytes_there += p.limit[b.usual[d]]
    scale, total = _largest(s.load), max(float(bytes_there), 1.0)
    if scale <= 0:
        scale = 1.0  # where nothing takes time, what does not fit has a price all the same
    energy = _energy(p, s, scale, total)
    best_over, best_load = _over(p, s), _largest(s.load)
    for _ in range(moves):
        n = _propose(b, s)
        if n == 0:
            continue
        new = _energy(p, s, scale, total)
        if new > energy and _draw(s) >= math.exp(-(new - energy) / temperature):
            for i in range(n):
                _move(b, s, s.moved[i], s.before[s.moved[i]])
            continue
        energy = new
        load = _largest(s.load)
        if load < best_load * (1 - 1e-12) or _over(p, s) < best_over:
            over = _over(p, s)
            if over < best_over or (over == best_over and load < best_load):
                best_over, best_load = over, load
                for u in range(len(s.units)):
                    s.best[u] = s.units[u]
