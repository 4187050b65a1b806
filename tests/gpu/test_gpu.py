"""What tfplace does with the GPUs of its own process."""

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution.test_same_results import MODELS, TOLERANCE, run
from tests.gpus import HALF_MIB
from tests.keras.fitting import both, fit, make_model
from tests.measurement.steps import two_towers
from tfplace.core.stepcost import FailureKind
from tfplace.cost.profiled import step_ratio
from tfplace.keras import PlacementCallback
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.calibration.calibrate import calibrate
from tfplace.measurement.calibration.profile import profile_graph
from tfplace.measurement.calibration.rates import gpu_model
from tfplace.measurement.protocol.measured import MeasuredEvaluator

pytestmark = pytest.mark.gpu
CLOSE = {"rtol": 1e-2, "atol": 1e-2}


@pytest.fixture(scope="module")
def graph(logical_cpus):
    return tfplace.extract(two_towers(2048, 4))


@pytest.fixture(scope="module")
def topology(logical_cpus):
    return tfplace.Topology.detect()


def test_the_gpu_and_its_halves_are_found(topology, devices):
    assert sorted(topology.device_names) == sorted(devices)
    halves = [d for d in topology.devices if d.type == "GPU"]
    assert {d.model for d in halves} == {gpu_model(0)}
    assert {d.memory_bytes for d in halves} == {HALF_MIB * 2**20}
    assert "data sheet" in topology.source


def test_placements_are_measured(graph, topology):
    problem = tfplace.formulate(graph, topology)
    with_gpus = [d for d, device in enumerate(topology.devices) if device.type == "GPU"]
    evaluator = MeasuredEvaluator(problem, warmup=2, repeats=5, tolerance=100.0)
    rng = np.random.default_rng(0)
    for units in (np.full(problem.num_units, with_gpus[0]), rng.choice(with_gpus, problem.num_units)):
        cost = evaluator(units)
        assert cost.failure is None and 1e-5 < cost.step_s < 1
    on_cpu = evaluator(np.full(problem.num_units, topology.device_names.index("CPU:0")))
    assert on_cpu.step_s > cost.step_s
    evaluator.close()


def test_out_of_memory_is_a_failure_of_the_placement(topology):
    @tf.function
    def step(x):
        return tf.reduce_sum(tf.tile(x, [1024, 1024]))  # 8 GiB of a half's 4

    graph = tfplace.extract(step, (tf.TensorSpec((45, 45)),))
    problem = tfplace.formulate(graph, topology)
    evaluator = MeasuredEvaluator(problem, warmup=1, repeats=2, tolerance=100.0, reference=None)
    cost = evaluator(np.full(problem.num_units, topology.device_names.index("GPU:0")))
    assert cost.failure.kind is FailureKind.OUT_OF_MEMORY
    evaluator.close()


def test_ops_are_profiled_on_the_gpu(graph, topology):
    outcome = profile_graph(graph, lambda: LocalDevices(inter_op=1), gpu_model(0), device_type="GPU", steps=5)
    assert outcome.ran and outcome.new > 5
    times = {text.partition("(")[0]: time.seconds for text, time in outcome.device.ops.items()}
    assert 2e-6 < times["MatMul"] < 20e-3
    assert times["MatMul"] > times["Tanh"] > 0
    assert 0.5 < step_ratio(graph, outcome.device) < 1.5
    costs = tfplace.formulate(graph, topology, profile=outcome.profile).costs
    products = [v for v, kind in enumerate(graph.op_types) if kind == "MatMul"]
    assert all("profiled" in costs.provenance[v] for v in products)


def test_a_step_is_traced_on_the_gpu(graph, topology):
    problem = tfplace.formulate(graph, topology)
    evaluator = MeasuredEvaluator(problem, warmup=2, repeats=2, tolerance=100.0)
    timeline = evaluator.timeline(np.full(problem.num_units, topology.device_names.index("GPU:0")))
    products = [v for v, kind in enumerate(timeline.op_types) if kind == "MatMul"]
    assert len(products) == 8
    assert (timeline.finish_s[products] > timeline.start_s[products]).all()
    assert not timeline.replicated[products].any()
    evaluator.close()


def test_devices_and_links_are_calibrated(logical_cpus):
    found = calibrate(LocalDevices(), sizes=(2**16, 2**22, 2**25))
    by_name = {d.name: d for d in found.topology.devices}
    assert by_name["GPU:0"].flops["float32"] > 5 * by_name["CPU:0"].flops["float32"]
    assert by_name["GPU:0"].memory_bandwidth > by_name["CPU:0"].memory_bandwidth
    assert 1e-7 < by_name["GPU:0"].op_overhead_s < 1e-3
    links = {(f.link.src, f.link.dst): f for f in found.fits}
    assert len(links) == 6
    assert links["GPU:0", "CPU:0"].one_way(2**25) > links["GPU:0", "CPU:0"].one_way(2**16)


@pytest.mark.filterwarnings("ignore:.*XLA")  # Keras's default on a GPU; a placed step runs op by op
@both
@pytest.mark.parametrize("placer", ["round_robin", "random", "auto"])
def test_fit_is_the_same(package, placer, devices):
    plain, placed = make_model(package), make_model(package)
    call = PlacementCallback(placer=placer, budget=10, verbose=0)
    history, expected = fit(placed, call), fit(plain)
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], **CLOSE, err_msg=name)
    for a, b in zip(plain.get_weights(), placed.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, **CLOSE)
    assert call.actual.moved == ()


GPU_ALONE = {
    "lstm_while": "cuDNN's kernels are none of the CPU's",
    "tf_keras_cnn": "kernels that hold a random state draw other numbers on the CPU",
    "nested_inputs": "Adam's first steps make the last bits 0.015 where the CPU has a part",
}
"""Models that are placed on the two halves of the GPU only, and why."""


@pytest.fixture(scope="module")
def rows(logical_cpus):
    with_cpu = tuple(name for name in MODELS if name not in GPU_ALONE)
    return run("gpu", visible="0", models=with_cpu) | run("halves", visible="0", models=tuple(GPU_ALONE))


@pytest.mark.parametrize("model", MODELS)
def test_a_placed_step_computes_what_the_plain_one_does(rows, model):
    row = rows[model]
    assert row["finite"] and row["largest"] < TOLERANCE
    assert {reason for _, reason in row["moved"]} <= {"optimized away"}  # Grappler merges a convolution and its bias
    assert row["variable_devices"] == [2 if model in GPU_ALONE else 3, 1]
