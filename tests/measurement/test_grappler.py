"""Placements costed by Grappler in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import spearmanr

import tfplace
from grappler_bridge.cluster import VirtualDevice
from grappler_bridge.costs import measure_costs
from grappler_bridge.step import StepGraph
from tfplace.core.costs import CostTable
from tfplace.core.stepcost import UNKNOWN_BYTES, FailureKind
from tfplace.core.topology import Topology
from tfplace.errors import GraphError, PlacementError, TopologyError
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.measurement.grappler import GrapplerEvaluator
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem
from tfplace.testing.variety import variety

BATCH, WIDTH = 256, 512


def training_graph(recurrent=False):
    layers = [keras.layers.Dense(WIDTH, "relu") for _ in range(4)]
    shape = (WIDTH,)
    if recurrent:
        layers, shape = [keras.layers.LSTM(16)], (5, WIDTH)
    model = keras.Sequential([keras.layers.Input(shape), *layers, keras.layers.Dense(10)])
    model.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return tfplace.extract(model, (tf.TensorSpec((BATCH, *shape)), tf.TensorSpec((BATCH,), tf.int32)))


@pytest.fixture(scope="module")
def problem(logical_cpus):
    return tfplace.formulate(training_graph(), "4xP100")


@pytest.fixture(scope="module")
def evaluator(problem):
    with GrapplerEvaluator(problem) as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def single(problem):
    return single_device(problem, compute_devices(problem)[0])


@pytest.fixture(scope="module")
def scattered(problem):
    gpus = compute_devices(problem)
    turns = gpus[np.arange(problem.num_units) % len(gpus)]
    return np.where(problem.allowed[np.arange(problem.num_units), turns], turns, 0)


class InThisProcess(StepGraph):
    """Answers as `GrapplerProcess` does, which takes seconds to start."""

    def __init__(self, step, time_out_s):
        super().__init__(step)

    def close(self):
        pass


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr("tfplace.measurement.grappler.GrapplerProcess", InThisProcess)


def pid_of(evaluator):
    return evaluator._processes[0].pid


def wait_until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_interruption_waits_for_what_is_being_evaluated_only(problem, single, monkeypatch):
    with GrapplerEvaluator(problem, workers=2) as several:
        asked = []

        def cost(process, op_device):
            asked.append(process)
            if process is several._processes[0]:
                raise KeyboardInterrupt
            time.sleep(0.2)
            return several_cost

        several_cost = Simulator(problem)(single)
        monkeypatch.setattr(several, "_cost", cost)
        assert several.batch_limit == 2
        with pytest.raises(KeyboardInterrupt):
            several.keys(np.repeat(single[None], 40, axis=0))
        assert len(asked) <= 3


def test_one_device_is_what_grappler_says_and_sends_nothing(evaluator, problem, single):
    cost = evaluator(single)
    own_s, with_transfers_s = evaluator.figures(single)
    gpu = compute_devices(problem)[0]
    assert cost.source == evaluator.source == "grappler"
    assert cost.failure is None
    assert cost.step_s == own_s == with_transfers_s
    assert cost.compute_s[gpu] == pytest.approx(cost.step_s, rel=1e-6)
    assert cost.compute_s.sum() == pytest.approx(cost.step_s, rel=1e-6)
    assert cost.moved_bytes == 0
    assert not cost.transfer_s.any()


def test_grappler_alone_likes_scattered_ops_and_transfers_change_that(evaluator, single, scattered):
    alone, scattered_alone = evaluator.figures(single), evaluator.figures(scattered)
    assert scattered_alone[0] < alone[0]
    assert scattered_alone[1] > 2 * alone[1]


def test_what_is_sent_is_what_the_simulator_sends(evaluator, problem, scattered):
    cost, simulated = evaluator(scattered), Simulator(problem)(scattered)
    assert cost.moved_bytes == simulated.moved_bytes
    np.testing.assert_allclose(cost.transfer_s, simulated.transfer_s, rtol=0.3, atol=1e-4)
    np.testing.assert_allclose(cost.idle_s, cost.step_s - cost.compute_s)


def test_it_ranks_placements_much_as_the_simulator_does(evaluator, problem):
    named = variety(problem, searches=(50,))
    simulator = Simulator(problem)
    simulated = [simulator(devices).step_s for devices in named.values()]
    over, step_s = evaluator.keys(list(named.values()))
    assert not over.any()
    assert spearmanr(step_s, simulated).statistic > 0.8
    own = [evaluator.figures(devices)[0] for devices in named.values()]
    assert spearmanr(own, simulated).statistic < 0


@pytest.mark.usefixtures("in_this_process")
def test_given_the_same_op_seconds_the_simulator_says_the_same():
    # of two devices, since a transfer then waits for both of its ends or for neither (docs/reference/grappler.md)
    graph, topology = training_graph(), Topology.preset("2xP100")
    columns = []
    for device in topology.devices:
        alone = VirtualDevice(device.name, device.type, device.flops["float32"], device.memory_bandwidth)
        costs = measure_costs(graph.metagraph(dict.fromkeys(graph.op_names, device.name)), [alone])
        seconds = {op.name: op.seconds for op in costs.ops}
        columns.append([seconds.get(op, 0.0) for op in graph.op_names])
    table = CostTable(np.array(columns).T, ("grappler",) * graph.num_ops)
    problem = tfplace.formulate(graph, topology, costs=table)
    named, simulator = variety(problem, searches=(50,)), Simulator(problem)
    with GrapplerEvaluator(problem) as evaluator:
        _, step_s = evaluator.keys(list(named.values()))
    simulated = [simulator(devices).step_s for devices in named.values()]
    error = np.abs(step_s / simulated - 1)
    assert np.median(error) < 0.005
    assert np.quantile(error, 0.9) < 0.05  # Grappler breaks ties by names, which differ with what Keras named before


def test_peak_memory_is_plausible(evaluator, problem, single, scattered):
    simulator = Simulator(problem)
    for devices in (single, scattered):
        cost, simulated = evaluator(devices), simulator(devices)
        used = simulated.peak_bytes > 2**20
        np.testing.assert_allclose(cost.peak_bytes[used], simulated.peak_bytes[used], rtol=0.5)
        assert np.all(cost.peak_bytes[~used] < 2**21)


def test_too_little_memory_is_an_excess_and_no_failure(problem, single, evaluator):
    small = replace(problem, memory_limit=np.full(problem.num_devices, 2**20))
    tight = GrapplerEvaluator(small)
    tight._processes = evaluator._processes  # which know nothing of limits
    cost = tight(single)
    assert cost.failure is None
    assert not cost.feasible
    assert cost.step_s == evaluator(single).step_s


def test_the_same_placement_costs_the_same_again_and_by_every_way(evaluator, problem, scattered):
    cost = evaluator(scattered)
    assert evaluator.key(scattered) == cost.key
    with GrapplerEvaluator(problem, workers=2) as two:
        over, step_s = two.keys([scattered] * 3)
    assert [(o, s) for o, s in zip(over, step_s, strict=True)] == [cost.key] * 3


def test_wrong_placements_are_refused_as_everywhere(evaluator, problem, single):
    with pytest.raises(PlacementError):
        evaluator(single[:-1])
    with pytest.raises(PlacementError):
        evaluator(np.full(problem.num_units, 99))


def test_a_search_can_use_it(problem, evaluator):
    placement = tfplace.place(
        problem, placer="local_search", budget=15, evaluator=evaluator, baselines=(), progress=False
    )
    assert placement.cost.source == "grappler"
    assert placement.cost.step_s <= min(
        evaluator(single_device(problem, d)).step_s for d in compute_devices(problem).tolist()
    )


@pytest.mark.usefixtures("in_this_process")
def test_loops_run_their_trips_and_have_no_known_peak():
    graph = training_graph(recurrent=True)
    problem = tfplace.formulate(graph, "2xP100")
    devices = single_device(problem, compute_devices(problem)[0])
    once = tfplace.formulate(replace(graph, trips=np.ones(graph.num_ops)), "2xP100")
    with GrapplerEvaluator(problem) as evaluator, GrapplerEvaluator(once) as ignorant:
        cost, short = evaluator(devices), ignorant(devices)
    assert graph.trips.max() == 5
    assert cost.failure is None
    assert cost.step_s > 1.5 * short.step_s
    assert np.all(cost.peak_bytes == UNKNOWN_BYTES)
    assert cost.feasible


# ---- what cannot be costed ---------------------------------------------------------------------------------------


def test_graphs_of_plain_arrays_are_refused():
    with pytest.raises(GraphError, match=r"plain arrays.*tfplace\.extract"):
        GrapplerEvaluator(random_problem(np.random.default_rng(0)))


def test_devices_that_grappler_cannot_stand_for_are_refused(problem):
    gpu = problem.topology.devices[1]
    slow = replace(gpu, flops={"float32": 1e3})
    devices = tuple(slow if d is gpu else d for d in problem.topology.devices)
    topology = replace(problem.topology, devices=devices)
    with pytest.raises(TopologyError, match=r"flops 1000\.0"):
        GrapplerEvaluator(replace(problem, topology=topology))


def test_graphs_that_would_mislead_grappler_are_refused(problem):
    class Calling:
        description = "a call"

        def metagraph(self, devices=None):
            meta = problem.graph.metagraph(devices)
            meta.graph_def.node[0].op = "Frobnicate"
            return meta

    spoilt = replace(problem, graph=replace(problem.graph, origin=Calling()))
    with pytest.raises(GraphError, match="'Frobnicate'; expected an op type"):
        GrapplerEvaluator(spoilt)


@pytest.mark.usefixtures("in_this_process")
def test_what_grappler_gives_up_on_is_a_failure(problem, single):
    class Broken:
        description = "an output that is not there"

        def metagraph(self, devices=None):
            meta = problem.graph.metagraph(devices)
            reader = next(n for n in meta.graph_def.node if n.op == "Relu")
            reader.input[0] = reader.input[0].partition(":")[0] + ":5"
            return meta

    broken = replace(problem, graph=replace(problem.graph, origin=Broken()))
    with GrapplerEvaluator(broken) as evaluator:
        cost = evaluator(single)
        own_s, with_transfers_s = evaluator.figures(single)
    assert cost.failure is not None
    assert cost.failure.kind == FailureKind.ERROR
    assert "Grappler failed" in cost.failure.message
    assert own_s == with_transfers_s == float("inf")


# ---- the process -------------------------------------------------------------------------------------------------


def test_a_killed_process_costs_one_trial_at_most(evaluator, single):
    before = evaluator(single)
    os.kill(pid_of(evaluator), signal.SIGKILL)
    wait_until(lambda: evaluator._processes[0].ended)
    assert evaluator(single).step_s == before.step_s  # found dead before it was asked
    os.kill(pid_of(evaluator), signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (pid_of(evaluator), signal.SIGKILL)).start()
    cost = evaluator(single)  # dies while it is asked
    assert cost.failure is not None
    assert cost.failure.kind == FailureKind.WORKER_LOST
    assert "signal 9" in cost.failure.message
    assert not cost.feasible
    assert evaluator(single).step_s == before.step_s


def test_a_process_that_is_lost_among_many_questions_costs_one_of_them(evaluator, single):
    step_s = evaluator(single).step_s
    os.kill(pid_of(evaluator), signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (pid_of(evaluator), signal.SIGKILL)).start()
    _, found = evaluator.keys([single] * 3)
    assert found.tolist() == [np.inf, step_s, step_s]
    pid = pid_of(evaluator)
    time.sleep(1)
    assert not evaluator._processes[0].ended  # it lives on, though another thread had started it
    assert evaluator(single).step_s == step_s
    assert pid_of(evaluator) == pid


def test_a_process_that_hangs_is_given_up(evaluator, single, monkeypatch):
    assert evaluator(single).failure is None
    hanging = pid_of(evaluator)
    os.kill(hanging, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(evaluator._processes[0], "_time_out_s", 0.5)
        begin = time.monotonic()
        cost = evaluator(single)
    assert time.monotonic() - begin < 60
    assert cost.failure is not None
    assert cost.failure.kind == FailureKind.TIME_OUT
    assert gone(hanging)
    assert evaluator(single).failure is None


def test_closing_ends_the_process_and_may_be_repeated_and_the_terminal_hears_nothing(problem, single, capfd):
    evaluator = GrapplerEvaluator(problem)
    evaluator.close()
    assert evaluator(single).failure is None
    pid = pid_of(evaluator)
    evaluator.close()
    evaluator.close()
    assert gone(pid)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")
def test_the_process_ends_with_the_thread_that_started_it_and_is_replaced(problem, single):
    with GrapplerEvaluator(problem) as evaluator:
        found = []
        asker = threading.Thread(target=lambda: found.append((evaluator(single).step_s, pid_of(evaluator))))
        asker.start()
        asker.join()
        step_s, pid = found[0]
        wait_until(lambda: evaluator._processes[0].ended)
        assert evaluator(single).step_s == step_s
        assert pid_of(evaluator) != pid
