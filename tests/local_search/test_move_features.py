"""What is told of moves, against plain sums over the edges, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.core.critical_path import CriticalPath
from tfplace.local_search.move_features import MoveFeatures
from tfplace.local_search.move_features_kernel import Feature
from tfplace.local_search.move_kernel import MoveState
from tfplace.local_search.moves import Move, Moves
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

PARTS = 256


def plain_edges(problem):
    """(maker, reader) -> [messages, bytes], a tensor once for each unit that reads it."""
    graph, of_op = problem.graph, problem.grouping.unit_of
    found, seen = {}, set()
    for src, dst, tensor, back in zip(graph.edge_src, graph.edge_dst, graph.edge_tensor, graph.edge_back, strict=True):
        maker, reader = of_op[src], of_op[dst]
        skipped = back or maker == reader or min(maker, reader) < 0 or graph.replicable[[src, dst]].any()
        if skipped or (tensor >= 0 and (tensor, reader) in seen):
            continue
        seen.add((tensor, reader))
        row = found.setdefault((maker, reader), [0.0, 0.0])
        row[0] += graph.trips[src]
        row[1] += graph.trips[src] * (graph.tensor_bytes[tensor] if tensor >= 0 else 0)
    return found


def plain(problem, devices, path, move, done):
    """The features in their order."""
    step_s, seconds = path.finish.max(), np.where(problem.allowed, problem.unit_seconds, 0.0)
    to = devices.copy()
    to[move.units] = move.devices
    moved = np.flatnonzero(to != devices)
    count = problem.num_devices

    def loads(of):
        return np.array([sum(seconds[u, d] for u in range(len(of)) if of[u] == d) for d in range(count)])

    def transfer(edge, a, b):
        trips, size = edge
        topology = problem.topology
        send_s, send_byte, receive_s, receive_byte = (table[a, b] for table in topology.link_overheads)
        latency_s = topology.latency_s[a, b] + send_s + receive_s
        byte_s = 1 / topology.bandwidth[a, b] + send_byte + receive_byte
        return 0.0 if a == b else trips * latency_s + size * byte_s

    gained = np.array([sum(seconds[u, d] for u in moved if to[u] == d) for d in range(count)])
    lost = np.array([sum(seconds[u, d] for u in moved if devices[u] == d) for d in range(count)])
    target = int(gained.argmax()) if gained.max() > 0 else int(move.devices[0])
    source = int(lost.argmax())
    critical = sum(s for u, r, s in zip(path.unit, path.reader, path.seconds, strict=True) if r < 0 and u in moved)
    before = after = cut_before = cut_after = cut = 0
    late, early, read, made, read_from, made_for = [], [], 0, 0, 0, 0
    for (maker, reader), edge in plain_edges(problem).items():
        if maker not in moved and reader not in moved:
            continue
        was, now = transfer(edge, devices[maker], devices[reader]), transfer(edge, to[maker], to[reader])
        before, after = before + was, after + now
        cut_before += devices[maker] != devices[reader]
        cut_after += to[maker] != to[reader]
        cut += devices[maker] == devices[reader] and to[maker] != to[reader]
        slack = max(path.start[reader] - path.finish[maker], 0)
        late.append(max(now - was - slack, 0))
        early.append(max(was - slack, 0) if to[maker] == to[reader] else 0)
        if reader not in moved:
            made, made_for = made + edge[1], made_for + edge[1] * (devices[reader] == target)
        if maker not in moved:
            read, read_from = read + edge[1], read_from + edge[1] * (devices[maker] == target)
    begin, end = path.start[moved].min(), path.finish[moved].max()
    first = min(int(begin / step_s * PARTS), PARTS - 1)
    last = max(min(int(end / step_s * PARTS) + 1, PARTS), first + 1)

    def busy(device):
        """Seconds it computes from the first part to the last, in the schedule."""
        total = 0.0
        for u in np.flatnonzero(devices == device):
            a, b = path.start[u] / step_s * PARTS, path.finish[u] / step_s * PARTS
            if min(int(a), PARTS - 1) == min(int(b), PARTS - 1):
                total += seconds[u, device] if first <= min(int(a), PARTS - 1) < last else 0.0
            else:
                total += seconds[u, device] * max(min(b, last) - max(a, first), 0) / (b - a)
        return total

    span, took = (last - first) / PARTS * step_s, gained.sum()
    load, new = loads(devices), loads(to)
    return [
        np.log(len(moved)), took / step_s, new[target] / step_s, new.max() / step_s, load[source] / step_s,
        (new.max() - load.max()) / step_s, (after - before) / step_s, before / step_s, after / step_s,
        critical / step_s, span / step_s, busy(target) / span, busy(source) / span,
        (span - busy(target) - took) / step_s,
        sum(late) / step_s, max(late, default=0) / step_s, sum(early) / step_s, max(early, default=0) / step_s,
        read_from / max(read, 1), made_for / max(made, 1), (lost > 0).sum(), cut, critical / max(lost.sum(), 1e-12),
        cut_before, cut_after, done,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_features_are_plain_sums(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=50, num_devices=2 + seed % 3, unit=1e-3, ties=False)
    moves = Moves(Search(problem, Budget(evaluations=10_000), seed).context("x"))
    move_features, simulator = MoveFeatures(problem), Simulator(problem)
    devices = problem.allowed.argmax(axis=1).astype(np.int32)
    seen = 0
    for step in range(30):
        drawn = moves.draw(devices, 8)
        now = moves.at(devices, 8)
        path, _ = simulator.critical_path(devices)
        move_features.learn(devices, path)
        found = move_features.of(now, len(drawn), step / 30)
        assert found.shape == (len(drawn), len(Feature))
        for row, move in zip(found, drawn, strict=True):
            np.testing.assert_allclose(row, plain(problem, devices, path, move, step / 30), rtol=1e-9, atol=1e-9)
            seen += 1
        devices = devices.copy()
        devices[drawn[0].units] = drawn[0].devices
    assert seen > 200


def test_a_transfer_that_has_time_is_not_late():
    """c reads what a makes after 1 s, but begins after 5, as b takes so long; links move 1 byte a second."""
    graph = make_graph({"a": 3, "b": 1, "c": 0}, ["a -> c", "b -> c"])
    problem = make_problem(graph, make_topology(2, bandwidth=1.0, latency=0.0), {"a": 1.0, "b": 4.0, "c": 1.0})
    devices = np.zeros(3, np.int32)
    path, _ = Simulator(problem).critical_path(devices)
    assert path.start.tolist() == [0, 1, 5] and path.finish.tolist() == [1, 5, 6]
    move_features = MoveFeatures(problem)
    move_features.learn(devices, path)
    late = Feature.LATE
    grown = Feature.TRANSFER_GROWTH
    for unit, transfer_s, late_s in ((0, 3, 0), (1, 1, 1), (2, 4, 1)):
        row = told(move_features, devices, Move(np.array([unit]), np.array([1])))
        assert row[[grown, late]] == pytest.approx([transfer_s / 6, late_s / 6])


def told(move_features, devices, move):
    """The features of one move."""
    units = len(devices)
    now = MoveState(
        devices, np.zeros(0, np.int64), np.array([-1]), np.zeros(units, np.bool_),
        np.zeros((1, units), np.int32), np.zeros((1, units), np.int32), np.array([len(move.units)]),
    )  # fmt: skip
    now.unit[0, : len(move.units)], now.device[0, : len(move.units)] = move
    return move_features.of(now, 1, 0.0)[0]


def test_nothing_is_told_before_a_step_that_takes_time_is_known():
    problem = random_problem(np.random.default_rng(0), num_ops=10, num_devices=2)
    move_features, none = MoveFeatures(problem), np.zeros(0)
    devices = np.zeros(problem.num_units, np.int32)
    now = Moves(Search(problem, Budget(evaluations=9), 0).context("x")).at(devices, 1)
    assert move_features.of(now, 0, 0.0) is None
    at_once = np.zeros(problem.num_units)
    no_ops = none.astype(np.int32)
    move_features.learn(devices, CriticalPath(no_ops, no_ops, none, at_once, at_once, no_ops))
    assert move_features.of(now, 0, 0.0) is None
