"""A cluster of workers: what it does, how it ends, and workers that others started."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.measurement.clusters import (
    CORES,
    FIRST,
    SECOND,
    failure,
    has_filter,
    parent_of,
    running,
    soon,
    trained,
    training_graph,
)
from tfplace.cli import BAD_INPUT, main
from tfplace.core.stepcost import FailureKind
from tfplace.engines.sockets import answers, hear_loopback_only, split_address
from tfplace.errors import ClusterError
from tfplace.measurement.backends import cluster as cluster_module
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.calibration.rates import device_model

pytestmark = pytest.mark.cluster


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
    sockets = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_socket()]
    filtered = set()
    for fd in sockets:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd.name))) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            if own.getsockname()[1] in ports and own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                assert has_filter(own)
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


# ---- ends ------------------------------------------------------------------------------------------------------------

STARTS = """
import sys, time
from tfplace.measurement.backends.cluster import Cluster
cluster = Cluster.start(2, cores=[[{core}], [{core}]])
print(cluster._processes.pid, *cluster.pids, flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("then", "end"),
    [("time.sleep(600)", signal.SIGKILL), pytest.param("", None, marks=pytest.mark.slow)],
    ids=["killed", "ended"],
)
def test_nothing_is_left_behind(then, end):
    parent = python(STARTS.format(core=CORES[0][0], then=then))
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    if end is not None:
        assert all(running(pid) for pid in pids)
        os.kill(pids[1], signal.SIGSTOP)  # even so
        parent.send_signal(end)
    parent.communicate(timeout=60)
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
            assert device_model(far, FIRST) == "the processor of 127.0.0.1"
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
            assert first.wait(60) == 0
            monkeypatch.setattr(cluster_module, "RETURN_S", 0.5)
            with pytest.raises(ClusterError, match=f"no answer from {address}"):
                far.session(graph)
        server = grandchildren(second.pid)[0]
        second.send_signal(signal.SIGINT)
        assert second.wait(60) == 0
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


@pytest.mark.parametrize(
    "flags", [["--port=x"], ["--cores=a"], ["--cores=9999"], ["--memory_limit=much"], ["here"], ["--nosuch"]]
)
def test_the_command_explains_bad_flags(flags, capsys):
    assert main(["worker", *flags]) == BAD_INPUT
    assert "received" in capsys.readouterr().err


def test_the_command_has_help(capsys):
    assert main(["worker", "--help"]) == 0
    assert "--inter_op" in capsys.readouterr().out
