import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfplace.cli import BAD_INPUT, main
from tfplace.core.stepcost import FailureKind
from tfplace.errors import ClusterError
from tfplace.measure import cluster as cluster_module
from tfplace.measure.cluster import Cluster
from tfplace.measure.processes import WorkerProcesses
from tfplace.measure.sockets import SO_ATTACH_FILTER, answers, hear_loopback_only, split_address
from tfplace.measure.worker import Settings

pytestmark = pytest.mark.cluster

FIRST, SECOND = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1))
SHORT_S = 1.0
CORES = [[core] for core in (sorted(os.sched_getaffinity(0)) * 2)[:2]]


@pytest.fixture(scope="module")
def cluster():
    with Cluster.start(2, cores=CORES, timeout_s=60) as cluster:
        yield cluster


def training_graph(first=FIRST, second=SECOND):
    """Two dense layers trained with momentum, one on each device; the parameters and what to run for a step."""
    rng = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        with tf.device(first):
            x = tf.constant(rng.normal(size=(64, 32)), tf.float32)
            w1 = variable("w1", rng.normal(size=(32, 48)))
            hidden = tf.tanh(x @ w1.read_value())
        with tf.device(second):
            y = tf.constant(rng.normal(size=(64, 8)), tf.float32)
            w2 = variable("w2", rng.normal(size=(48, 8)))
            loss = tf.reduce_mean(tf.square(hidden @ w2.read_value() - y))
            g_hidden, g2 = tf.gradients(loss, [hidden, w2])
        with tf.device(first):
            (g1,) = tf.gradients(hidden, [w1], [g_hidden])
        step = []
        for w, gradient, device in ((w1, g1, first), (w2, g2, second)):
            with tf.device(device):
                m = variable(f"{w.op.name}_m", np.zeros(w.shape))
                velocity = m.assign(0.9 * m.read_value() + gradient)
                step.append(w.assign_sub(0.1 * velocity).op)
        init = tf.compat.v1.global_variables_initializer()
    return graph, init, step, [w1, w2]


def variable(name, values):
    return tf.compat.v1.get_variable(name, initializer=np.float32(values), use_resource=True)


def one_op(build, device=SECOND):
    graph = tf.Graph()
    with graph.as_default(), tf.device(device):
        return graph, build()


def trained(cluster, steps=5):
    """Trains on the cluster; also how a test sees that it works."""
    graph, init, step, weights = training_graph()
    session = cluster.session(graph)
    try:
        session.run(init)
        run = session.make_callable(step)
        for _ in range(steps):
            run()
        return session.run(weights)
    finally:
        cluster.end_session(session)


def failure(cluster, call):
    with pytest.raises(Exception) as caught:
        call()
    found = cluster.failure_of(caught.value)
    assert found is not None, repr(caught.value)
    assert "\n" not in found.message
    return found


def running(pid):
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def soon(condition, within_s=5.0):
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def python(code, *arguments):
    """Another Python with this package."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


# ---- what it does ----------------------------------------------------------------------------------------------------


def test_devices_processes_and_cores(cluster):
    assert cluster.devices == (FIRST, SECOND)
    assert cluster.cores == tuple(sorted({core for own in CORES for core in own}))
    for pid, cores in zip(cluster.pids, CORES, strict=True):
        assert os.sched_getaffinity(pid) == set(cores)
    assert cluster.health() == []


def test_training_on_two_workers_gives_the_numbers_of_one(cluster):
    graph, init, step, weights = training_graph(FIRST, FIRST)
    session = cluster.session(graph)
    session.run(init)
    for _ in range(5):
        session.run(step)
    alone = session.run(weights)
    cluster.end_session(session)
    for one, two in zip(alone, trained(cluster), strict=True):
        np.testing.assert_array_equal(one, two)


def test_ops_run_where_they_are_put(cluster):
    graph, init, step, _ = training_graph()
    session = cluster.session(graph)
    session.run(init)
    metadata = tf.compat.v1.RunMetadata()
    session.run(step, options=tf.compat.v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    cluster.end_session(session)
    ran = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
    placed = {op.name: op.device for op in graph.get_operations() if op.device}
    there = placed.keys() & ran.keys()
    assert len(there) > 20
    assert all(ran[name] == tf.DeviceSpec.from_string(placed[name]).to_string() for name in there)


def test_sessions_have_variables_of_their_own(cluster):
    graph, init, step, weights = training_graph()
    sessions = [cluster.session(graph) for _ in range(2)]
    for session in sessions:
        session.run(init)
    sessions[0].run(step)
    first, second = (session.run(weights[0]) for session in sessions)
    assert np.abs(first - second).max() > 0
    for session in sessions:
        cluster.end_session(session)


def test_workers_and_the_master_hear_loopback_only(cluster):
    ports = {split_address(address)[1] for address in (*cluster.addresses, cluster._chief)}
    fds = Path("/proc/self/fd")
    filtered = set()
    for fd in list(fds.iterdir()):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd.name))) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            if own.getsockname()[1] in ports and own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                assert own.getsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER) > 0  # the filter's length
                filtered.add(own.getsockname()[1])
    assert filtered == {split_address(cluster._chief)[1]}
    assert all(answers(address, 2) for address in cluster.addresses)


@pytest.mark.skipif(len(socket.if_nameindex()) < 2, reason="needs a second network interface")
def test_the_filter_keeps_other_interfaces_out():
    other = next(name for _, name in socket.if_nameindex() if name != "lo")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        socket.create_connection(address, timeout=1).close()
        assert hear_loopback_only(address[1], other) == 1
        with pytest.raises(TimeoutError):
            socket.create_connection(address, timeout=0.3)
        assert hear_loopback_only(address[1]) == 1
        socket.create_connection(address, timeout=1).close()


# ---- what goes wrong -------------------------------------------------------------------------------------------------


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
    assert time.monotonic() - start < 10
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
    processes._process.stdin.write("half a line, which is written when the pipe is closed")
    os.kill(processes._process.pid, signal.SIGKILL)
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


def test_steps_too_large_for_a_limited_worker():
    with Cluster.start(1, memory_limit=2**27, timeout_s=60) as cluster:
        assert out_of_memory(cluster, many_small_tensors)
        assert sums_up(cluster, 2**24)
        survivor = cluster.pids
        # TensorFlow waits 10 s for memory before it gives up
        assert out_of_memory(cluster, lambda: tf.reduce_sum(tf.fill([2**27], tf.random.uniform([]))))
        assert cluster.pids == survivor
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


def many_small_tensors():
    """480 MB in pieces that are all alive at once, too small for the allocator that waits."""
    number = tf.random.uniform([])
    pieces = [tf.fill([1000, 60], number) for _ in range(2000)]
    with tf.control_dependencies(pieces):
        one = tf.constant(1.0)
    return tf.add_n([tf.reduce_sum(piece * one) for piece in pieces])


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_worker_may_say_that_it_serves_before_its_parent_says_who_it_is(monkeypatch):
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
    with contextlib.closing(WorkerProcesses()) as processes:
        (worker,) = processes.launch([Settings()])
        assert parent_of(worker.pid) == processes._process.pid


# ---- ends ------------------------------------------------------------------------------------------------------------

STARTS = """
import sys, time
from tfplace.measure.cluster import Cluster
cluster = Cluster.start(2, cores=[[{core}], [{core}]])
print(cluster._processes._process.pid, *cluster.pids, flush=True)
{then}
"""


@pytest.mark.parametrize(("then", "end"), [("time.sleep(600)", signal.SIGKILL), ("", None)], ids=["killed", "ended"])
def test_nothing_is_left_behind(then, end):
    parent = python(STARTS.format(core=CORES[0][0], then=then))
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    if end is not None:
        assert all(running(pid) for pid in pids)
        os.kill(pids[1], signal.SIGSTOP)  # even so
        parent.send_signal(end)
    parent.communicate(timeout=30)
    assert soon(lambda: not any(running(pid) for pid in pids))


def test_the_process_that_forks_has_one_thread(cluster):
    status = Path(f"/proc/{parent_of(cluster.pids[0])}/status").read_text()
    assert re.search(r"^Threads:\s*1$", status, re.MULTILINE)


# ---- workers that others started -------------------------------------------------------------------------------------

COMMAND = "import sys; from tfplace.cli import main; sys.exit(main(sys.argv[1:]))"


@contextlib.contextmanager
def command(*flags):
    process = python(COMMAND, "worker", *flags)
    try:
        yield process, re.fullmatch(r"tfplace worker at (\S+)\n", process.stdout.readline())[1]
    finally:
        process.kill()
        process.communicate()


def test_connecting_to_workers_that_run_already(cluster, monkeypatch):
    expected = trained(cluster)
    core = str(CORES[0][0])
    with command("--cores", core) as (first, address), command("--cores", core, "--inter_op=2") as (second, other):
        with Cluster.connect([address, other]) as far:
            assert far.devices == (FIRST, SECOND)
            assert far.pids == far.cores == ()
            for one, two in zip(trained(far), expected, strict=True):
                np.testing.assert_array_equal(one, two)
            graph, init, _, _ = training_graph()
            session = far.session(graph)
            session.run(init)
            os.kill(grandchildren(second.pid)[0], signal.SIGKILL)  # and the command starts another
            assert failure(far, lambda: session.run(init)).kind is FailureKind.WORKER_LOST
            far.end_session(session)
            trained(far)
            first.send_signal(signal.SIGTERM)
            assert first.wait(10) == 0
            monkeypatch.setattr(cluster_module, "RETURN_S", 0.5)
            with pytest.raises(ClusterError, match=f"no answer from {address}"):
                far.session(graph)
        server = grandchildren(second.pid)[0]
        second.send_signal(signal.SIGINT)
        assert second.wait(10) == 0
        assert soon(lambda: not running(server))


def grandchildren(pid):
    def children(pid):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    own = [int(c) for t in threads for c in Path(f"/proc/{pid}/task/{t}/children").read_text().split()]
    return [grandchild for child in own for grandchild in children(child)]


@pytest.mark.parametrize("addresses", [[], ["here"], ["host:0"], ["a:1", "a:1"]])
def test_addresses_are_checked(addresses):
    with pytest.raises(ClusterError):
        Cluster.connect(addresses)


def test_nobody_at_an_address(monkeypatch):
    monkeypatch.setattr(cluster_module, "RETURN_S", 0.1)
    monkeypatch.setattr(cluster_module, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ClusterError, match="tfplace worker"):
        Cluster.connect([f"127.0.0.1:{silent.getsockname()[1]}"])


@pytest.mark.parametrize(
    "arguments",
    [{"workers": 0}, {"workers": 10**4}, {"workers": 1, "cores": [[10**6]]}, {"workers": 1, "gpus": ["0", "1"]}],
)
def test_what_cannot_be_started_is_refused(arguments):
    with pytest.raises(ClusterError):
        Cluster.start(**arguments)


@pytest.mark.parametrize("flags", [["--port=x"], ["--cores=a"], ["--memory_limit=much"], ["here"], ["--nosuch"]])
def test_the_command_explains_bad_flags(flags, capsys):
    assert main(["worker", *flags]) == BAD_INPUT
    assert "received" in capsys.readouterr().err


def test_the_command_has_help(capsys):
    assert main(["worker", "--help"]) == 0
    assert "--inter_op" in capsys.readouterr().out
