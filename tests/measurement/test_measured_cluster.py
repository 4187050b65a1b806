"""Placements measured on worker processes, some of which do not survive it."""

import contextlib
import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.measurement.steps import problem_of, two_towers
from tfplace.core.stepcost import FailureKind
from tfplace.errors import ApplyError, ClusterError
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.local import ChainedLogicalDevices
from tfplace.measurement.protocol.measured import MeasuredEvaluator

pytestmark = pytest.mark.cluster
QUICK = {"warmup": 1, "repeats": 2, "tolerance": 100.0}
FOREVER = {"warmup": 0, "repeats": 100_000, "tolerance": 100.0}
MIB = 2**20


def _two_cores():
    own = sorted(os.sched_getaffinity(0))
    return [[own[0]], [own[-1]]]


@pytest.fixture(scope="module")
def cluster(logical_cpus):
    with Cluster.start(2, cores=_two_cores()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def problem(logical_cpus):
    return problem_of(two_towers())


def _random(problem, seed=0):
    return np.random.default_rng(seed).integers(problem.num_devices, size=problem.num_units)


@contextlib.contextmanager
def _evaluating(problem, cluster, after_s, act, **settings):
    """An evaluation that would last for minutes, and what is done meanwhile."""
    evaluator = MeasuredEvaluator(problem, cluster, **settings)
    timer = threading.Timer(after_s, act)
    timer.start()
    yield evaluator
    timer.cancel()
    evaluator.close()


def test_steps_run_on_the_workers(problem, cluster):
    evaluator = MeasuredEvaluator(problem, cluster, **QUICK)
    cost = evaluator(_random(problem))
    assert cost.failure is None and cost.samples.ratio > 0
    stats = evaluator.step_stats(_random(problem)).step_stats
    ran = {d.device for d in stats.dev_stats if d.node_stats}
    assert {f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)} <= ran
    assert evaluator.empty_step_s(1) > 0
    evaluator.close()
    assert cluster.health() == []


def test_a_worker_killed_during_an_evaluation(problem, cluster):
    lost = cluster.pids[1]
    with _evaluating(problem, cluster, 1.0, lambda: os.kill(lost, signal.SIGKILL), **FOREVER) as evaluator:
        cost = evaluator(_random(problem))
        assert cost.failure.kind is FailureKind.WORKER_LOST and cost.failure.device == cluster.devices[1]
        assert lost not in cluster.pids and cluster.health() == []
    again = MeasuredEvaluator(problem, cluster, **QUICK)(_random(problem))
    assert again.failure is None and again.samples.ratio > 0


def test_a_worker_that_stops_answering(problem, cluster):
    def stop():
        os.kill(cluster.pids[0], signal.SIGSTOP)

    with _evaluating(problem, cluster, 1.0, stop, timeout_s=1.5, **FOREVER) as evaluator:
        start = time.monotonic()
        cost = evaluator(_random(problem))
        assert cost.failure.kind is FailureKind.TIME_OUT
        assert time.monotonic() - start < 60
    assert MeasuredEvaluator(problem, cluster, **QUICK)(_random(problem)).failure is None


def _hungry():
    """Two branches that each hold 600 MiB."""

    @tf.function
    def step(a, b):
        sums = []
        for x in (a, b):
            parts = [tf.fill((MIB // 4, 50), x + i) for i in range(6)]
            sums.append(tf.reduce_max(tf.stack(parts)))
        return sums

    return tfplace.extract(step, (tf.TensorSpec(()), tf.TensorSpec(())))


@pytest.fixture(scope="module")
def small_workers(logical_cpus):
    with Cluster.start(2, cores=_two_cores(), memory_limit=1000 * MIB) as cluster:
        yield cluster


def _apart(problem):
    """[U] what depends on the second argument on device 1."""
    graph = problem.graph
    second = {graph.index["b"]}
    for src, dst in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        if src in second:
            second.add(dst)
    return np.array([int(min(members) in second) for members in problem.grouping.members], np.int32)


@pytest.mark.slow
def test_a_search_goes_on_when_placements_run_out_of_memory(small_workers):
    problem = problem_of(_hungry())
    apart = _apart(problem)
    evaluator = MeasuredEvaluator(problem, small_workers, reference=None, timeout_s=60, **QUICK)
    together = np.zeros(problem.num_units, int)  # TensorFlow waits ten seconds for memory before it gives up
    costs = [evaluator(units) for units in (apart, 1 - apart, together, apart, 1 - apart, apart)]
    kinds = [cost.failure and cost.failure.kind for cost in costs]
    assert kinds == [None, None, FailureKind.OUT_OF_MEMORY, None, None, None]
    best = min(costs, key=lambda cost: cost.key)
    assert best.failure is None


# ---- chained logical devices -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chained(logical_cpus):
    with ChainedLogicalDevices(2) as devices:
        yield devices


def test_chained_devices_run_one_op_at_a_time(chained):
    problem = problem_of(two_towers(256, 6))
    evaluator = MeasuredEvaluator(problem, chained, **QUICK)
    assert repr(evaluator) == "MeasuredEvaluator('step' on ChainedLogicalDevices(2))"
    assert evaluator(_random(problem)).failure is None
    for units in (_random(problem, 1), np.zeros(problem.num_units, int)):
        # a busy machine may note an end late; ops that do run side by side do so in every step
        assert any(_one_at_a_time(evaluator.step_stats(units), problem) for _ in range(3))
    evaluator.close()


def _one_at_a_time(metadata, problem):
    for device in metadata.step_stats.dev_stats:
        spans = sorted(
            (node.op_start_rel_micros + node.all_start_micros, node.all_start_micros + node.op_end_rel_micros)
            for node in device.node_stats
            if node.node_name in problem.graph.index
        )
        if not all(then[0] >= first[1] - 5 for first, then in itertools.pairwise(spans)):
            return False
    return True


def test_chained_devices_compute_the_same(chained):
    from tfplace.measurement.backends.program import StepGraph

    problem = problem_of(two_towers(8, 3))
    batch = (np.random.default_rng(0).random((8, 8), np.float32),)
    results = []
    for backend in (chained, None):
        evaluator = MeasuredEvaluator(problem, backend, batch=batch, reference=None, **QUICK)
        evaluator._program = StepGraph(problem.graph, batch)
        run = evaluator._running(evaluator._program, _random(problem, 2), compiled=False)
        run()
        results.append(evaluator._program.read(run._session))
        run.close()
    assert results[0].keys() == results[1].keys() and len(results[0]) == 2
    for name, value in results[0].items():
        assert value.any()
        np.testing.assert_allclose(value, results[1][name], rtol=1e-5)


def test_graphs_with_loops_are_not_chained(chained):
    @tf.function
    def step(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))[1]

    with pytest.raises(ApplyError, match=r"loops or branches \(Enter, Exit.*cluster"):
        MeasuredEvaluator(problem_of(tfplace.extract(step, (tf.TensorSpec((2,)),))), chained)


def test_more_chained_devices_than_cores_are_refused():
    with pytest.raises(ClusterError, match="a core for each"):
        ChainedLogicalDevices(len(os.sched_getaffinity(0)) + 1)
