"""What goes wrong on a cluster: workers killed, stopped and stuck; ops without a kernel, memory or end."""

import os
import signal
import threading
import time

import pytest
import tensorflow as tf

from tests.measurement.clusters import (
    FIRST,
    SECOND,
    SHORT_S,
    failure,
    one_op,
    parent_of,
    running,
    soon,
    trained,
    training_graph,
)
from tfplace.core.stepcost import FailureKind
from tfplace.errors import ClusterError
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.processes import WorkerProcesses
from tfplace.measurement.backends.worker import Settings

pytestmark = pytest.mark.cluster


def test_a_worker_killed_between_steps(cluster):
    graph, init, step, _ = training_graph()
    session = cluster.session(graph)
    session.run(init)
    run = session.make_callable(step)
    run()
    lost = cluster.pids[1]
    os.kill(lost, signal.SIGKILL)
    found = failure(cluster, run)
    assert (found.kind, found.device) == (FailureKind.WORKER_LOST, SECOND)
    assert str(lost) in found.message
    assert failure(cluster, lambda: session.run(init)).kind is FailureKind.WORKER_LOST
    start = time.monotonic()
    cluster.end_session(session)
    cluster.repair()
    assert time.monotonic() - start < 25
    assert lost not in cluster.pids
    trained(cluster)


def test_a_worker_killed_during_a_step(cluster):
    graph, product = huge_product()
    session = cluster.session(graph)
    threading.Timer(0.5, os.kill, (cluster.pids[1], signal.SIGKILL)).start()
    found = failure(cluster, lambda: session.run(product))
    assert (found.kind, found.device) == (FailureKind.WORKER_LOST, SECOND)
    cluster.end_session(session)
    trained(cluster)


def test_a_worker_killed_before_the_session_costs_nothing(cluster):
    os.kill(cluster.pids[0], signal.SIGKILL)
    trained(cluster)


def test_who_hears_of_an_ended_process_knows_that_it_has_ended():
    processes = WorkerProcesses()
    os.kill(processes.pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match="a process that starts workers, which has ended"):
        while True:  # the pipe may take some more until it is broken
            processes._send({"kill": 0})
    assert not processes.alive
    processes.close()


def test_all_workers_and_what_starts_them_killed(cluster):
    workers = cluster.pids
    os.kill(parent_of(workers[0]), signal.SIGKILL)
    assert soon(lambda: not any(running(pid) for pid in workers))
    trained(cluster)
    assert len(set(cluster.pids) - set(workers)) == 2


def test_a_stopped_worker_is_a_time_out(cluster):
    graph, init, step, _ = training_graph()
    session = cluster.session(graph, timeout_s=SHORT_S)
    session.run(init)
    run = session.make_callable(step)
    run()
    stopped = cluster.pids[1]
    os.kill(stopped, signal.SIGSTOP)
    found = failure(cluster, run)
    assert (found.kind, found.device) == (FailureKind.TIME_OUT, SECOND)
    cluster.end_session(session)
    cluster.repair()
    assert not running(stopped)
    trained(cluster)


def test_a_worker_stopped_before_the_first_step_is_a_time_out(cluster):
    graph, init, _, _ = training_graph()
    session = cluster.session(graph, timeout_s=SHORT_S)
    os.kill(cluster.pids[0], signal.SIGSTOP)
    found = failure(cluster, lambda: session.run(init))
    assert (found.kind, found.device) == (FailureKind.TIME_OUT, FIRST)
    cluster.end_session(session)
    trained(cluster)


def test_an_op_that_does_not_end_is_a_time_out_and_its_worker_is_replaced(cluster):
    graph, product = huge_product()
    session = cluster.session(graph, timeout_s=SHORT_S)
    busy = cluster.pids[1]
    assert failure(cluster, lambda: session.run(product)).kind is FailureKind.TIME_OUT
    cluster.end_session(session)
    assert running(busy)
    cluster.repair()
    assert not running(busy)
    trained(cluster)


def test_a_loop_that_does_not_end_is_a_time_out(cluster):
    graph, loop = one_op(lambda: tf.while_loop(lambda i: i >= 0.0, lambda i: (i + 1.0) * 0.5, [tf.constant(0.0)]))
    session = cluster.session(graph, timeout_s=SHORT_S)
    assert failure(cluster, lambda: session.run(loop)).kind is FailureKind.TIME_OUT
    cluster.end_session(session)
    trained(cluster)


def test_a_session_from_before_a_restart_is_lost(cluster):
    graph, init, step, _ = training_graph()
    session = cluster.session(graph)
    session.run(init)
    before = cluster.restarts
    os.kill(cluster.pids[1], signal.SIGKILL)
    assert soon(lambda: cluster.health() == [1])
    cluster.repair()
    assert cluster.restarts == before + 1
    assert failure(cluster, lambda: session.run(step)).kind is FailureKind.WORKER_LOST
    cluster.end_session(session)
    trained(cluster)


def test_workers_that_do_not_start_are_tried_again(cluster, monkeypatch):
    launch, refusals = cluster._processes.launch, [ClusterError("a refusal", "none")] * 3

    def unreliable(settings):
        if refusals:
            raise refusals.pop()
        return launch(settings)

    monkeypatch.setattr(cluster._processes, "launch", unreliable)
    os.kill(cluster.pids[1], signal.SIGKILL)
    trained(cluster)
    assert not refusals


def test_an_op_without_a_kernel(cluster):
    def reduce():
        return tf.raw_ops.NcclAllReduce(input=tf.constant(1.0), reduction="sum", num_devices=1, shared_name="x")

    graph, reduced = one_op(reduce)
    session, workers = cluster.session(graph), cluster.pids
    found = failure(cluster, lambda: session.run(reduced))
    assert (found.kind, found.device) == (FailureKind.NO_KERNEL, SECOND)
    assert "NcclAllReduce" in found.message
    cluster.end_session(session)
    trained(cluster)
    assert cluster.pids == workers


def test_a_device_that_is_not_there(cluster):
    graph, one = one_op(lambda: tf.constant(1.0), "/job:worker/task:0/device:GPU:0")
    session = cluster.session(graph)
    found = failure(cluster, lambda: session.run(one))
    assert found.kind is FailureKind.NO_KERNEL
    assert found.device == ""
    cluster.end_session(session)


def test_an_op_that_fails(cluster):
    graph, number = one_op(lambda: tf.gather(tf.ones([3]), [7]))
    session = cluster.session(graph)
    found = failure(cluster, lambda: session.run(number))
    assert (found.kind, found.device) == (FailureKind.ERROR, SECOND)
    assert found.message.startswith("indices[0] = 7 is not in [0, 3)")
    cluster.end_session(session)


def test_a_bug_is_no_failure(cluster):
    graph, one = one_op(lambda: tf.constant(1.0))
    session = cluster.session(graph)
    with pytest.raises(TypeError) as caught:
        session.run(object())
    assert cluster.failure_of(caught.value) is None
    session.run(one)
    cluster.end_session(session)


def one_large_tensor():
    return tf.reduce_sum(tf.fill([2**27], tf.random.uniform([])))


def many_small_tensors():
    """480 MB in pieces that are all alive at once, too small for the allocator that waits."""
    number = tf.random.uniform([])
    pieces = [tf.fill([1000, 60], number) for _ in range(2000)]
    with tf.control_dependencies(pieces):
        one = tf.constant(1.0)
    return tf.add_n([tf.reduce_sum(piece * one) for piece in pieces])


@pytest.mark.parametrize(
    "build",
    [many_small_tensors, pytest.param(one_large_tensor, marks=pytest.mark.slow)],  # for which TensorFlow waits 10 s
)
def test_steps_too_large_for_a_limited_worker(build):
    with Cluster.start(1, memory_limit=2**27, timeout_s=60) as cluster:
        workers = cluster.pids
        assert out_of_memory(cluster, build)
        assert build is many_small_tensors or cluster.pids == workers
        assert cluster.health() == []
        assert sums_up(cluster, 2**24)
        workers = cluster.pids
        session = cluster.session(tf.Graph())
    assert not any(running(pid) for pid in workers)
    session.close()
    with pytest.raises(ClusterError, match="closed"):
        cluster.session(tf.Graph())


def out_of_memory(cluster, build):
    graph, total = one_op(build, FIRST)
    session = cluster.session(graph)
    found = failure(cluster, lambda: session.run(total))
    cluster.end_session(session)
    return (found.kind, found.device) == (FailureKind.OUT_OF_MEMORY, FIRST)


def sums_up(cluster, size):
    graph, total = one_op(lambda: tf.reduce_sum(tf.fill([size], 1.0)), FIRST)
    session = cluster.session(graph)
    try:
        return session.run(total) == size
    finally:
        cluster.end_session(session)


def test_no_threads_are_left_by_failures(cluster):
    trained(cluster)
    assert soon(lambda: not any(thread.name == "tfplace session" for thread in threading.enumerate()))


def huge_product():
    """Minutes of work in one op, which cannot be interrupted."""
    return one_op(lambda: tf.reduce_sum(tf.linalg.matmul(*(tf.fill([12000, 12000], tf.random.uniform([])),) * 2)))


def test_a_worker_may_say_that_it_serves_before_its_parent_says_who_it_is(cluster, monkeypatch):
    note, late = WorkerProcesses._note, []

    def noted(processes, event):
        if "forked" in event:
            late.append(event)
            return
        note(processes, event)
        time.sleep(0.2)
        while late:
            note(processes, late.pop())

    monkeypatch.setattr(WorkerProcesses, "_note", noted)
    (worker,) = cluster._processes.launch([Settings()])
    assert parent_of(worker.pid) == cluster._processes.pid
    cluster._processes.kill(worker.pid)
