"""A calibration on two real workers: sane, complete, and a topology that loads again."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfplace.core.topology import Topology
from tfplace.errors import ApplyError, InputError
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.calibration.bench import Timings, process_of, products, time_steps, value
from tfplace.measurement.calibration.calibrate import _memory, _memory_limits, calibrate, describe_fit
from tfplace.measurement.calibration.detect import driver_gpus
from tfplace.measurement.calibration.machine import read_machine
from tfplace.measurement.calibration.rates import _per_op, device_model
from tfplace.measurement.calibration.transfers import measure_transfers

SIZES = (1024, 2**20)


@pytest.fixture(scope="module")
def cluster(logical_cpus):
    with Cluster.start(2) as workers:
        yield workers


def seldom(patched):
    """Transfers are timed a few times only, and beside less work."""
    patched.setattr("tfplace.measurement.calibration.transfers._WORK", 0.3)
    patched.setattr(
        "tfplace.measurement.calibration.transfers.time_steps",
        lambda backend, builds, repeats: time_steps(backend, builds, min(repeats, 4)),
    )


@pytest.fixture(scope="module")
def done(cluster):
    """With smaller and fewer chains than a user's: the numbers need only be of the right size."""
    told = []
    with pytest.MonkeyPatch.context() as patched:
        for name, less in (
            ("SIDE", 512),
            ("COPY_BYTES", 2**24),
            ("_FEW_OPS", 100),
            ("_MANY_OPS", 1000),
            ("_REPEATS", 4),
        ):
            patched.setattr(f"tfplace.measurement.calibration.rates.{name}", less)
        seldom(patched)
        found = calibrate(cluster, sizes=SIZES, progress=lambda text, fraction: told.append((text, fraction)))
    return found, told


@pytest.mark.cluster
def test_devices_are_measured(done):
    topology = done[0].topology
    assert topology.device_names == ("CPU:0", "CPU:1")
    for device in topology.devices:
        assert 1e9 < device.flops["float64"] < device.flops["float32"] < 1e13
        assert 1e8 < device.memory_bandwidth < 1e12
        assert 1e-8 < device.op_overhead_s < 1e-4
        assert 50e6 < device.workspace_bytes < 2e9
        assert device.model.startswith("one core of ")


@pytest.mark.cluster
def test_links_are_measured(done):
    fits = done[0].fits
    assert {(f.link.src, f.link.dst) for f in fits} == {("CPU:0", "CPU:1"), ("CPU:1", "CPU:0")}
    for fit in fits:
        times = fit.times
        assert (times.one_way_s > 0).all()
        assert times.send_s[-1] > 0 and times.receive_s[-1] > 0
        assert 5e-6 < fit.one_way(1024) < 20e-3
        link = fit.link
        assert link.send_overhead_s + link.receive_overhead_s > 0
        # sending, wire and receiving are at least the one way, and more only by what the ends do at once
        assert (fit.modelled_s > 0.99 * fit.one_way(times.size_bytes)).all()
        assert len(describe_fit(fit)) == len(SIZES)


@pytest.mark.cluster
def test_the_topology_says_what_was_measured_and_loads_again(done, tmp_path):
    topology = done[0].topology
    assert "measured on 20" in topology.source and "median error" in topology.source
    topology.save(tmp_path / "topology.json")
    assert Topology.load(tmp_path / "topology.json").fingerprint == topology.fingerprint


@pytest.mark.cluster
def test_progress_reaches_its_end(done):
    fractions = [fraction for _, fraction in done[1]]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert any("CPU:1 -> CPU:0" in text for text, _ in done[1])


def test_without_processes_to_ask_the_step_tells(logical_cpus, monkeypatch):
    seldom(monkeypatch)
    backend = LocalDevices()
    times = measure_transfers(backend, *backend.devices[:2], flops=1e11, sizes=(1024, 4096))
    assert times.one_way_s.shape == times.send_s.shape == times.receive_s.shape == (2,)
    assert (times.one_way_s > 0).all()


class Listed(LocalDevices):
    """A backend whose sessions run here, and list other devices than there are."""

    def __init__(self, limits):
        super().__init__()
        self.devices, self.limits = tuple(limits), limits

    def session(self, graph, *, timeout_s=None):
        session = super().session(graph)
        listed = [SimpleNamespace(name=name, memory_limit_bytes=limit) for name, limit in self.limits.items()]
        session.list_devices = lambda: listed
        return session


def test_gpus_have_what_tensorflow_may_take_and_cpu_devices_share_the_machines(logical_cpus):
    whole = read_machine().memory_bytes
    assert _memory(LocalDevices()) == [whole // 4] * 4
    assert {*_memory_limits(LocalDevices())} == {*LocalDevices().devices}
    backend = Listed({LocalDevices().devices[0]: 2**28, "/job:worker/replica:0/task:1/device:GPU:0": 2**30})
    assert _memory(backend) == [whole, 2**30]


@pytest.mark.parametrize(
    ("listed", "model"),
    [
        (["Some Chip"] * 2, "Some Chip"),
        (["Some Chip", "Another"], "a GPU of this machine"),
        ([], "a GPU of this machine"),
    ],
)
def test_gpus_of_workers_have_names_of_their_own(listed, model, monkeypatch, tmp_path):
    tell = tmp_path / "nvidia-smi"
    tell.write_text("#!/bin/sh\n" + "".join(f"echo '{name}, 1024'\n" for name in listed))
    tell.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    gpu = "/job:worker/replica:0/task:1/device:GPU:0"
    assert driver_gpus() == [(name, 2**30) for name in listed]
    assert device_model(SimpleNamespace(pids=(1, 2)), gpu) == model
    assert device_model(SimpleNamespace(pids=(), addresses=("far:1", "there:1")), gpu) == "the GPU of there"


def test_a_process_tells_of_its_processor_alone():
    backend = SimpleNamespace(pids=(1, 2))
    worker = "/job:worker/replica:0/task:{}/device:{}:0"
    asked = [worker.format(1, "CPU"), worker.format(1, "GPU"), worker.format(2, "CPU")]
    assert [process_of(backend, device) for device in asked] == [1, None, None]


def test_one_size_is_no_line(logical_cpus):
    with pytest.raises(InputError, match="two different sizes"):
        calibrate(LocalDevices(), sizes=[1024])


def test_devices_without_room_for_tensors_are_said_before_transfers_are_measured(logical_cpus, monkeypatch):
    monkeypatch.setattr(
        "tfplace.measurement.calibration.calibrate._memory", lambda backend: [2**20] * len(backend.devices)
    )
    rates = SimpleNamespace(workspace_bytes=2**21, matmul_flops={"float32": 1.0})
    monkeypatch.setattr("tfplace.measurement.calibration.calibrate.measure_rates", lambda *_: rates)
    monkeypatch.setattr(
        "tfplace.measurement.calibration.calibrate.measure_transfers", lambda *_, **__: pytest.fail("too late")
    )
    with pytest.raises(InputError, match=r"4 devices with 1\.00 MiB each, of which a process needs 2\.00 MiB"):
        calibrate(LocalDevices())


def test_steps_take_turns_and_their_values_stay(logical_cpus):
    backend = LocalDevices()
    device = backend.devices[0]
    results = []

    def chain(count):
        def build():
            last = products(device, count, 64)[-1]
            results.append(last)
            return [last.op]

        return build

    timings = time_steps(backend, [chain(1), chain(400)], repeats=3)
    assert timings.step_s.shape == (3, 2)
    assert timings.core_s.shape == (3, 2, 0)
    assert timings.extra_s() == timings.step_s[:, 1].min() - timings.step_s[:, 0].min() > 0
    with tf.compat.v1.Session(graph=results[1].graph) as session:
        session.run(results[1].graph.get_collection("variables")[0].initializer)
        assert np.allclose(session.run(results[1]), 1 / 64)


class Steps:
    """A stand-in for timed steps: each takes a millisecond by itself, and so much for each of its ops."""

    def __init__(self, op_s):
        self.op_s = op_s
        self.lengths = []

    def __call__(self, backend, lengths, repeats):
        self.lengths.append(tuple(lengths))
        step_s = [[0.001 + length * self.op_s for length in lengths]] * repeats
        return Timings(np.array(step_s), np.zeros((repeats, 2, 0)))


@pytest.mark.parametrize(("op_s", "longest"), [(1e-3, 4), (1e-4, 16), (2e-5, 64), (1e-6, 1024), (3e-7, 4096)])
def test_a_chain_is_long_enough_that_its_ops_are_half_of_its_step(op_s, longest, monkeypatch):
    steps = Steps(op_s)
    monkeypatch.setattr("tfplace.measurement.calibration.rates.time_steps", steps)
    assert _per_op(None, lambda count: count, 1, 4) == pytest.approx(op_s)
    assert steps.lengths == [(1, 4 * 4**i) for i in range(len(steps.lengths))]
    assert steps.lengths[-1] == (1, longest)


@pytest.mark.parametrize("op_s", [0.0, -1e-8])
def test_ops_that_take_no_time_are_no_rate(op_s, monkeypatch):
    monkeypatch.setattr("tfplace.measurement.calibration.rates.time_steps", Steps(op_s))
    with pytest.raises(
        ApplyError, match=r"a step of 4096 ops that takes .* one of 1 ops that takes 0\.001 s.*twice as long"
    ):
        _per_op(None, lambda count: count, 1, 4)


def test_a_step_that_fails_says_so(logical_cpus):
    backend = LocalDevices()

    def build():
        with tf.device(backend.devices[0]):
            return [tf.raw_ops.CheckNumerics(tensor=value(backend.devices[0], [2], fill=float("nan")), message="m").op]

    with pytest.raises(ApplyError, match="a calibration step that fails"):
        time_steps(backend, [build], 1)
