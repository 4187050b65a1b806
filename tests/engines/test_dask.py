"""An engine on Dask: tasks survive lost workers; nothing listens beyond loopback, and nothing is left behind."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import dask
import distributed
import pytest
from distributed.comm.tcp import TCP

import tfplace
from tests.engines import tasks
from tests.engines.conformance import EngineConformance
from tests.engines.processes import gone, number_in, parent_of, wait_for
from tests.pages import ROOT
from tfplace import version
from tfplace.engines import dask_workers
from tfplace.engines.choose import chosen_engine
from tfplace.engines.dask_workers import LOOPBACK, DaskEngine
from tfplace.engines.process_workers import WorkerLostError
from tfplace.errors import InputError, WorkersError

pytestmark = pytest.mark.cluster


def two_workers(**more):
    here = {"host": LOOPBACK, "dashboard_address": f"{LOOPBACK}:0", "silence_logs": 50}
    return distributed.LocalCluster(n_workers=2, threads_per_worker=1, **here, **more)


@pytest.fixture(scope="module")
def cluster():
    with two_workers() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def engine(client):
    client.wait_for_workers(2)
    return DaskEngine(client)


@pytest.fixture
def crew(engine):
    with contextlib.closing(engine.start(dict)) as crew:
        yield crew


class TestDask(EngineConformance):
    """With a client that runs already, which stays open."""


def test_each_process_makes_its_own_thing_once(engine, tmp_path):
    with contextlib.closing(engine.start(functools.partial(tasks.made_in, tmp_path))) as crew:
        pids = {future.result(30) for future in [crew.submit(tasks.own_pid) for _ in range(40)]}
        assert {int(path.name) for path in tmp_path.iterdir()} == pids and len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_processes_compute_alike_wherever_they_run(crew):
    asked = ("TF_NUM_INTRAOP_THREADS", "CUDA_VISIBLE_DEVICES")
    assert crew.submit(tasks.environment, *asked).result(30) == ("1", "")


def test_what_cannot_be_sent_is_refused(engine, crew):
    for wrong in (lambda: crew.submit(lambda own: 1), lambda: engine.start(lambda: 1)):
        with pytest.raises(InputError, match="cannot be sent to another process"):
            wrong()


@pytest.mark.parametrize("lost", [parent_of, int], ids=["a worker", "its process"])
def test_what_is_killed_costs_its_task_only(crew, tmp_path, lost):
    future = crew.submit(tasks.slowly_the_first_time, tmp_path / "begun")
    wait_for((tmp_path / "begun").exists)
    others = [crew.submit(operator.or_, {i: i}) for i in range(4)]
    pid = number_in(tmp_path / "begun")
    os.kill(lost(pid), signal.SIGKILL)
    assert future.result(60) == "done"
    assert [f.result(60) for f in others] == [{i: i} for i in range(4)]
    assert gone(pid)


def test_a_task_that_ends_every_process_is_given_up(crew):
    with pytest.raises(WorkerLostError, match=r"ended 3 times in one task, .* status 3: these are my last words"):
        crew.submit(tasks.die).result(60)
    assert crew.submit(operator.or_, {1: 1}).result(60) == {1: 1}


def test_a_task_that_ends_dask_workers_is_given_up_as_dask_is_told():
    """With a cluster of its own: Dask does not start a worker again that ends while it starts."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
        client = stack.enter_context(distributed.Client(stack.enter_context(two_workers()), set_as_default=False))
        crew = stack.enter_context(contextlib.closing(DaskEngine(client).start(dict)))
        with pytest.raises(WorkerLostError, match="during which Dask workers ended"):
            crew.submit(tasks.kill_the_dask_worker).result(60)
        assert crew.submit(operator.or_, {1: 1}).result(60) == {1: 1}


def test_closing_ends_tasks_in_the_middle(engine, tmp_path):
    crew = engine.start(dict)
    running = crew.submit(tasks.slowly_the_first_time, tmp_path / "begun")
    waiting = [crew.submit(tasks.nap, 60.0) for _ in range(3)]
    wait_for((tmp_path / "begun").exists)
    crew.close()
    crew.close()
    assert all(future.cancelled() for future in (running, *waiting))
    assert gone(number_in(tmp_path / "begun"))
    with pytest.raises(WorkersError, match="workers that are closed"):
        crew.submit(tasks.pid)


def test_tasks_end_with_the_program_that_sent_them(cluster, tmp_path):
    program = (
        "from pathlib import Path; from tests.engines import tasks; import time\n"
        "from tfplace.engines.dask_workers import DaskEngine\n"
        f"crew = DaskEngine({cluster.scheduler_address!r}).start(dict)\n"
        f"future = crew.submit(tasks.slowly_the_first_time, Path({str(tmp_path / 'begun')!r}))\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as parent:
        wait_for((tmp_path / "begun").exists)
        parent.kill()
    assert gone(number_in(tmp_path / "begun"))


def test_ctrl_c_ends_a_cluster_of_this_machine_and_reaches_no_worker(tmp_path):
    program = (
        "from pathlib import Path; from tests.engines import tasks; import contextlib\n"
        "from tfplace.engines.dask_workers import DaskEngine\n"
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with contextlib.closing(DaskEngine(count=1).start(dict)) as crew:\n"
        f"    crew.submit(tasks.slowly_the_first_time, Path({str(tmp_path / 'begun')!r})).result()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True) as parent:
        wait_for((tmp_path / "begun").exists)
        child = number_in(tmp_path / "begun")
        worker = parent_of(child)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        said = parent.communicate(timeout=60)[1]
    assert said.count("Traceback") == 1 and "KeyboardInterrupt" in said
    assert gone(child) and gone(worker)


def test_workers_join(cluster, client, crew):
    cluster.scale(3)
    try:
        client.wait_for_workers(3)
        wait_for(lambda: crew.count == 3)
        assert len({f.result(60) for f in [crew.submit(tasks.nap, 0.5) for _ in range(9)]}) == 3
    finally:
        cluster.scale(2)


def test_workers_with_another_version_are_refused(client, engine):
    client.run(tasks.pretend_version, "0.0.1")
    try:
        with pytest.raises(WorkersError) as refused:
            engine.start(dict)
    finally:
        client.run(tasks.pretend_version, version.VERSION)
    assert "tcp://127.0.0.1:" in refused.value.received and "tfplace 0.0.1" in refused.value.received
    assert f"tfplace {version.VERSION}" in refused.value.expected


def dask_cli(*arguments, **more):
    """A program of Dask's."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'models'}"}
    return subprocess.Popen([sys.executable, "-m", "dask", *arguments], env=env, stderr=subprocess.PIPE, text=True)


def test_one_that_joins_with_another_version_leaves_again(cluster, client, crew, tmp_path):
    (tmp_path / "old.py").write_text("from tfplace import version; version.VERSION = '0.0.1'")
    flags = (
        "--host",
        LOOPBACK,
        "--dashboard-address",
        f"{LOOPBACK}:0",
        "--no-nanny",
        "--preload",
        str(tmp_path / "old.py"),
    )
    with dask_cli("worker", cluster.scheduler_address, *flags) as late:
        said = late.communicate(timeout=60)[1]
    assert "tfplace 0.0.1" in said and f"tfplace {version.VERSION}" in said
    assert len(client.nthreads()) == 2
    assert crew.submit(operator.or_, {1: 1}).result(30) == {1: 1}


def free_port():
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        return listening.getsockname()[1]


@pytest.fixture
def scheduler():
    """Of a cluster of Dask's own commands: its process, its worker's and its address."""
    address = f"tcp://{LOOPBACK}:{(port := free_port())}"
    here = ("--host", LOOPBACK, "--dashboard-address", f"{LOOPBACK}:0")
    with dask_cli("scheduler", *here, "--port", str(port)) as scheduler:
        with dask_cli("worker", address, *here, "--nthreads", "1", "--no-nanny") as worker:
            yield scheduler, worker, address
            worker.kill()
        scheduler.kill()


def test_a_scheduler_that_is_lost_is_an_error(scheduler, tmp_path):
    process, _, address = scheduler
    with contextlib.closing(DaskEngine(address).start(dict)) as crew:
        running = crew.submit(tasks.slowly_the_first_time, tmp_path / "begun")
        wait_for((tmp_path / "begun").exists)
        process.kill()
        with pytest.raises(WorkersError, match="scheduler that is lost"):
            running.result(30)
        with pytest.raises(WorkersError, match="scheduler that is lost"):
            crew.submit(tasks.pid)
    assert gone(number_in(tmp_path / "begun"))


def test_a_cluster_without_workers_is_an_error_after_a_while(scheduler, monkeypatch):
    monkeypatch.setattr(dask_workers, "_JOIN_S", 1.0)
    _, worker, address = scheduler
    with contextlib.closing(DaskEngine(address).start(dict)) as crew:
        waiting = crew.submit(tasks.nap, 60.0)
        worker.kill()
        with pytest.raises(WorkersError, match="no Dask worker for 1 s"):
            waiting.result(30)
    with pytest.raises(WorkersError, match="0 threads of Dask workers within 1 s; expected at least 1"):
        DaskEngine(address).start(dict)


def test_no_scheduler_is_an_error(monkeypatch):
    monkeypatch.setattr(dask_workers, "_CONNECT_S", 0.5)
    with pytest.raises(WorkersError, match=rf"no Dask scheduler at tcp://{LOOPBACK}:9 "):
        DaskEngine(f"tcp://{LOOPBACK}:9").start(dict)


def test_no_scheduler_is_an_error_before_a_model_is_read(monkeypatch):
    monkeypatch.setattr(dask_workers, "_CONNECT_S", 0.5)
    with pytest.raises(WorkersError, match=rf"no Dask scheduler at tcp://{LOOPBACK}:9 "):
        tfplace.compare("no model", engine=f"dask:tcp://{LOOPBACK}:9")


def test_what_workers_make_is_sent_to_each_once(engine, monkeypatch):
    sent, write = [], TCP.write

    async def counted(self, *message, **more):
        sent.append(await write(self, *message, **more))
        return sent[-1]

    monkeypatch.setattr(TCP, "write", counted)  # of the client and the scheduler, which are in this process
    size = 2_000_000
    with contextlib.closing(engine.start(functools.partial(bytes, b"x" * size))) as crew:
        assert {f.result(30) for f in [crew.submit(len) for _ in range(20)]} == {size}
    assert 3 * size < sum(sent) < 3.2 * size  # to the scheduler, and from there to two workers


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
def test_a_cluster_with_tls_takes_those_with_its_certificate(tmp_path):
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tfplace -keyout key.pem -out cert.pem"
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True)
    files = {name: str(tmp_path / f"{file}.pem") for name, file in (("ca", "cert"), ("cert", "cert"), ("key", "key"))}
    ends = {f"tls_{end}_{name}": files[name] for end in ("scheduler", "worker", "client") for name in ("cert", "key")}
    security = distributed.Security(require_encryption=True, tls_ca_file=files["ca"], **ends)
    with two_workers(security=security, protocol="tls://") as cluster:
        address = cluster.scheduler_address
        assert address.startswith(f"tls://{LOOPBACK}:")
        told = ",".join(f"{name}={path}" for name, path in files.items())
        with contextlib.closing(chosen_engine(f"dask:{address},{told}").start(dict)) as crew:
            assert crew.submit(operator.or_, {1: 1}).result(30) == {1: 1}
        with pytest.raises(WorkersError, match="no Dask scheduler"):
            DaskEngine(address.replace("tls", "tcp")).start(dict)


def listening(pids):
    """Addresses and ports on which processes listen, in the kernel's hexadecimal."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_cluster_of_this_machine_listens_on_loopback_only():
    before = listening([os.getpid()])
    with contextlib.closing(DaskEngine(count=1).start(dict)) as crew:
        child = crew.submit(tasks.pid).result(60)
        found = listening([os.getpid(), parent_of(child), child]) - before
    assert {address.partition(":")[0] for address in found} == {"0100007F"}
    assert gone(child)


def test_wrong_engines_are_refused():
    with pytest.raises(InputError, match="0 workers; expected at least 1"):
        DaskEngine(count=0)
