"""A worker that has the GPU beside one that has none."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.measurement.clusters import training_graph
from tests.measurement.steps import two_towers
from tfplace.core.stepcost import FailureKind
from tfplace.cost.profiled import step_ratio
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.calibration.calibrate import calibrate
from tfplace.measurement.calibration.profile import profile_graph
from tfplace.measurement.calibration.rates import machine_gpu_model
from tfplace.measurement.protocol.measured import MeasuredEvaluator

pytestmark = [pytest.mark.gpu, pytest.mark.cluster]
QUICK = {"warmup": 2, "repeats": 5, "tolerance": 100.0}
GPU, FAR = "/job:worker/replica:0/task:0/device:GPU:0", "/job:worker/replica:0/task:1/device:CPU:0"


def _halves():
    cores = sorted(os.sched_getaffinity(0))
    return cores[: len(cores) // 2], cores[len(cores) // 2 :]


@pytest.fixture(scope="module")
def profiled(logical_cpus):
    """Before the other workers start, since TensorFlow takes all of a GPU's memory."""
    graph = two_towers(2048, 4)

    def one_worker():
        return Cluster.start(1, gpus=["0"], cores=_halves()[:1], inter_op=1)

    return graph, profile_graph(graph, one_worker, machine_gpu_model(), device_type="GPU", steps=5)


@pytest.fixture(scope="module")
def cluster(profiled):
    with Cluster.start(2, gpus=["0", ""], cores=_halves()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calibrated(cluster):
    return calibrate(cluster, sizes=(2**16, 2**22))


@pytest.fixture(scope="module")
def problem(profiled, calibrated):
    return tfplace.formulate(profiled[0], calibrated.topology)


def _all_on(problem, name):
    return np.full(problem.num_units, problem.topology.device_names.index(name))


def test_ops_are_profiled_on_a_workers_gpu(profiled):
    graph, outcome = profiled
    assert outcome.ran and outcome.new > 5
    times = {text.partition("(")[0]: time.seconds for text, time in outcome.device.ops.items()}
    assert 2e-6 < times["MatMul"] < 20e-3
    assert 0.5 < step_ratio(graph, outcome.device) < 1.5


def test_a_training_step_across_workers_computes_what_one_does(cluster):
    assert cluster.devices == (GPU.replace("GPU", "CPU"), GPU, FAR)
    found = []
    for first, second in ((FAR, FAR), (GPU, FAR), (FAR, GPU)):
        graph, init, step, weights = training_graph(first, second)
        session = cluster.session(graph)
        session.run(init)
        for _ in range(5):
            session.run(step)
        found.append(session.run(weights))
        cluster.end_session(session)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-2, atol=1e-3)  # TF32


def test_a_workers_gpu_is_calibrated(calibrated):
    by_name = {d.name: d for d in calibrated.topology.devices}
    gpu, cpu = by_name["GPU:0"], by_name["CPU:1"]
    assert gpu.model == machine_gpu_model()
    assert gpu.flops["float32"] > 5 * cpu.flops["float32"]
    assert gpu.memory_bytes > 2**30 and gpu.workspace_bytes == 0
    links = {(f.link.src, f.link.dst): f for f in calibrated.fits}
    assert len(links) == 6
    assert links["GPU:0", "CPU:1"].one_way(2**22) > links["GPU:0", "CPU:0"].one_way(2**22)


def test_placements_are_measured_and_traced(problem, cluster):
    evaluator = MeasuredEvaluator(problem, cluster, **QUICK)
    random = np.random.default_rng(0).integers(problem.num_devices, size=problem.num_units)
    costs = [evaluator(units) for units in (random, _all_on(problem, "GPU:0"), _all_on(problem, "CPU:1"))]
    assert [cost.failure for cost in costs] == [None] * 3
    assert costs[1].step_s < costs[2].step_s
    timeline = evaluator.timeline(_all_on(problem, "GPU:0"))
    products = [v for v, kind in enumerate(timeline.op_types) if kind == "MatMul"]
    assert len(products) == 8
    assert (timeline.finish_s[products] > timeline.start_s[products]).all()
    evaluator.close()


def test_what_a_gpu_cannot_hold_and_a_lost_worker_cost_one_trial_each(problem, cluster, calibrated):
    @tf.function
    def step(x):
        return tf.reduce_sum(tf.tile(x, [6000, 6000]))  # 271 GiB

    graph = tfplace.extract(step, (tf.TensorSpec((45, 45)),))
    hungry = tfplace.formulate(graph, calibrated.topology)
    evaluator = MeasuredEvaluator(hungry, cluster, reference=None, **QUICK)
    assert evaluator(_all_on(hungry, "GPU:0")).failure.kind is FailureKind.OUT_OF_MEMORY
    evaluator.close()

    evaluator = MeasuredEvaluator(problem, cluster, **QUICK)
    assert evaluator(_all_on(problem, "GPU:0")).failure is None
    lost = cluster.pids[0]
    os.kill(lost, signal.SIGKILL)
    again = evaluator(_all_on(problem, "GPU:0"))
    assert again.failure is None or again.failure.kind is FailureKind.WORKER_LOST
    assert evaluator(_all_on(problem, "GPU:0")).failure is None
    assert lost not in cluster.pids and GPU in cluster.devices
    evaluator.close()
