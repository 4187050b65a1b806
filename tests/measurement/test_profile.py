"""Op seconds from real steps: they add up to the step, are kept, and are not measured twice."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.extraction.models import cnn_batch, keras_cnn
from tfplace.core.device import Device
from tfplace.core.stepcost import Failure, FailureKind
from tfplace.core.topology import Topology
from tfplace.cost.compiled import FusedStep, compiled_costs
from tfplace.cost.profile import DeviceProfile, OpTime, Profile
from tfplace.cost.profiled import profiled_costs, profiled_share, step_ratio
from tfplace.errors import ApplyError, InputError
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.calibration import profile as profiling
from tfplace.measurement.protocol import interference

MODEL = "the tests' processor"
BATCH = 4096
"""So many that a step takes long beside the time for which another process gets the processor."""


class OneOpAtATime(LocalDevices):
    """This process's devices, with sessions of one inter-op thread."""

    def session(self, graph, *, timeout_s=None):
        threads = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
        config = tf.compat.v1.ConfigProto(**threads, use_per_session_threads=True, device_count={"CPU": 4})
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        return tf.compat.v1.Session(graph=graph, config=config)


@pytest.fixture(scope="module")
def graph(logical_cpus):
    return tfplace.extract(keras_cnn(), cnn_batch(BATCH))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "deep" / "profiles.json"


@pytest.fixture(scope="module")
def outcome(graph, cache):
    return profiling.profile_graph(graph, OneOpAtATime, MODEL, cache=cache, steps=5)


def _never():
    raise AssertionError("opened a device for what is known")


def test_ops_add_up_to_the_step(graph, outcome):
    assert outcome.ran and outcome.new == len(outcome.device.ops) > 50
    step = outcome.device.step(graph.fingerprint)
    assert 0.3 * step.step_s < step.ops_s < 1.5 * step.step_s
    assert 0 < step.empty_s < step.step_s
    assert 0.5 < step_ratio(graph, outcome.device) < 1.5
    assert all(time.spread_s >= 0 and time.steps == 5 for time in outcome.device.ops.values())
    assert sum(time.ops for time in outcome.device.ops.values()) == (~graph.replicable).sum()


def test_compiled_costs_add_up_to_the_measured_compiled_step(graph, outcome, cache, tmp_path):
    own = shutil.copy(cache, tmp_path)
    found = profiling.profile_graph(graph, OneOpAtATime, MODEL, cache=own, steps=5, compiled=True)
    assert found.ran and found.new == 0  # all ops are known, but not the compiled step
    assert not profiling.profile_graph(graph, _never, MODEL, cache=own, compiled=True).ran
    found.profile.save(tmp_path / "profile.json")
    profile = Profile.load(tmp_path / "profile.json")
    step = profile.devices[0].step(graph.fingerprint)
    core = Device("CPU:0", "CPU", 2**33, {"float32": 1e10}, 1e10, 1e-6, model=MODEL)
    costs = compiled_costs(FusedStep(graph), Topology("core", (core,), ()), profile)
    assert step.compiled_s > 0
    assert costs.compute_s.sum() == pytest.approx(step.compiled_s - step.empty_s, rel=1e-6)


def test_an_op_merged_into_its_reader_shares_the_time(graph, outcome):
    """TensorFlow's oneDNN pass makes one op of a convolution and its bias; elsewhere both run."""
    times = {text.partition("(")[0]: time.seconds for text, time in outcome.device.ops.items()}
    assert times["Conv2D"] > times["BiasAdd"] > 0


def test_a_bias_merged_into_its_convolution_does_not_count_as_free():
    """It is a thousandth of the operations; by itself it takes between a fiftieth and a fifth of the time."""
    kernel, bias = tf.Variable(tf.ones((3, 3, 64, 64))), tf.Variable(tf.ones(64))
    step = tf.function(lambda x: tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))
    graph = tfplace.extract(step, (tf.TensorSpec((32, 48, 48, 64)),))
    convolution, added = (graph.op_types.index(kind) for kind in ("Conv2D", "BiasAdd"))
    seconds = np.zeros(graph.num_ops)
    seconds[added] = 0.06
    usual_s = profiling._usual_seconds(graph, "CPU")
    share = profiling._take_share(graph, convolution, seconds, seconds > 0, usual_s)
    assert share + seconds[added] == pytest.approx(0.06)
    assert share / 50 < seconds[added] < share / 5


def test_the_gradient_of_a_convolutions_bias_is_computed_with_that_of_its_filter(graph):
    work = {
        v: {graph.op_types[u] for u in profiling.does_its_work(graph, v)}
        for v, kind in enumerate(graph.op_types)
        if kind == "BiasAddGrad"
    }
    of_convolutions = [kinds for kinds in work.values() if "Conv2DBackpropFilter" in kinds]
    assert 0 < len(of_convolutions) < len(work)  # the others' are of dense layers
    assert all(kinds == {"Conv2DBackpropFilter"} for kinds in of_convolutions)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_is_not_taken_is_not_measured(taken, logical_cpus):
    """What it would have taken is not known: not in this graph, and in no other one that has such an op."""

    @tf.function
    def step(x, flag):
        return tf.cond(flag, lambda: tf.matmul(tf.nn.relu(x), x) + 1.0, lambda: x)

    batch = (np.zeros((300, 300), "float32"), np.bool_(taken))
    graph = tfplace.extract(step, batch)
    found = profiling.profile_graph(graph, OneOpAtATime, MODEL, batch=batch, steps=3)
    times = {text.partition("(")[0]: time.seconds for text, time in found.device.ops.items()}
    assert ("MatMul" in times) == ("Relu" in times) == taken
    assert "Merge" in times and times["Merge"] < 1e-3
    if taken:
        assert times["MatMul"] > times["Merge"]
    else:
        assert found.unrun > 0


def test_work_takes_longer_than_none(graph, outcome):
    seconds = {text.partition("(")[0]: time.seconds for text, time in outcome.device.ops.items()}
    assert seconds["Conv2D"] > 5 * seconds["NoOp"]


def test_costs_of_the_profile_say_where_they_come_from(graph, outcome):
    device = Device("CPU:0", "CPU", 2**30, {"float32": 1e9}, 1e9, 1e-6, model=MODEL)
    costs = profiled_costs(graph, Topology("t", (device,)), outcome.profile)
    assert profiled_share(costs) > 0.99
    assert {p.partition(":")[0] for p, c in zip(costs.provenance, graph.replicable, strict=True) if not c} == {
        "profiled"
    }


def test_a_known_graph_needs_no_run(graph, outcome, cache):
    again = profiling.profile_graph(graph, _never, MODEL, cache=cache)
    assert not again.ran and again.new == 0
    assert again.device == outcome.device
    assert Profile.load(cache).devices == outcome.profile.devices


def test_nor_does_another_graph_of_known_signatures(graph, outcome, cache):
    other = tfplace.extract(keras_cnn(), cnn_batch(BATCH), name="the same under another name")
    data = json.loads(cache.read_text())
    data["devices"][0]["steps"][0]["fingerprint"] = "other"
    cache.with_name("known.json").write_text(json.dumps(data))
    assert not profiling.profile_graph(other, _never, MODEL, cache=cache.with_name("known.json")).ran


def test_other_sizes_models_and_settings_do(graph, outcome, cache):
    smaller = tfplace.extract(keras_cnn(), cnn_batch(2))
    for changed, model, threads in (
        (smaller, MODEL, profiling.ONE_THREAD),
        (graph, "x", profiling.ONE_THREAD),
        (graph, MODEL, "x"),
    ):
        with pytest.raises(AssertionError, match="for what is known"):
            profiling.profile_graph(changed, _never, model, threads=threads, cache=cache)


def test_what_was_measured_stays_when_more_is_added(outcome, cache):
    smaller = tfplace.extract(keras_cnn(), cnn_batch(2))
    more = profiling.profile_graph(smaller, OneOpAtATime, MODEL, cache=cache, steps=2)
    assert more.ran and 0 < more.new < len(more.device.ops)
    assert {text: more.device.ops[text] for text in outcome.device.ops} == outcome.device.ops
    assert {s.fingerprint for s in more.device.steps} > {s.fingerprint for s in outcome.device.steps}


def test_what_others_add_to_the_cache_meanwhile_stays(logical_cpus, tmp_path):
    cache = tmp_path / "profiles.json"
    other = Profile().updated(DeviceProfile("another", "CPU", "2", "1", {"x": OpTime(1.0, 0.0, 1, 1)}, ()))

    def slowly():
        other.save(cache)  # another process ends while this one measures
        return OneOpAtATime()

    graph = tfplace.extract(tf.function(lambda x: x * 2.0), (np.zeros(3, "float32"),), name="twice")
    found = profiling.profile_graph(graph, slowly, MODEL, cache=cache, steps=1)
    assert [d.model for d in Profile.load(cache).devices] == ["another", MODEL]
    assert found.device.ops


def test_what_is_known_is_measured_again_if_asked(logical_cpus, tmp_path):
    cache = tmp_path / "profiles.json"
    graph = tfplace.extract(tf.function(lambda x: x * 2.0), (np.zeros(3, "float32"),), name="twice")
    found = profiling.profile_graph(graph, OneOpAtATime, MODEL, cache=cache, steps=1)
    wrong = {text: dataclasses.replace(time, seconds=1e3) for text, time in found.device.ops.items()}
    Profile().updated(dataclasses.replace(found.device, ops=wrong)).save(cache)
    assert not profiling.profile_graph(graph, _never, MODEL, cache=cache).ran
    again = profiling.profile_graph(graph, OneOpAtATime, MODEL, cache=cache, steps=1, again=True)
    assert again.ran and again.new == len(again.device.ops)
    assert all(time.seconds < 1e3 for time in Profile.load(cache).devices[0].ops.values())


def test_steps_that_count_though_others_ran_beside_them_are_counted(logical_cpus, monkeypatch):
    graph = tfplace.extract(tf.function(lambda x: x * 2.0), (np.zeros(3, "float32"),), name="twice")
    monkeypatch.setattr(profiling, "watch_backend", lambda backend: lambda: 0.5)
    found = profiling.profile_graph(graph, OneOpAtATime, MODEL, steps=2)
    assert (found.disturbed, found.rejected) == (2, 2)


def test_a_step_that_takes_too_long_says_what_to_do(logical_cpus, monkeypatch):
    graph = tfplace.extract(tf.function(lambda x: x * 2.0), (np.zeros(3, "float32"),), name="twice")
    late = Failure(FailureKind.TIME_OUT, "too late")
    monkeypatch.setattr(OneOpAtATime, "failure_of", lambda self, error: late)
    monkeypatch.setattr(profiling, "_turns", lambda *_: 1 / 0)
    with pytest.raises(ApplyError, match=r"too late.*--step_timeout"):
        profiling.profile_graph(graph, OneOpAtATime, MODEL)


def test_loops_are_counted_by_execution(logical_cpus):
    @tf.function
    def step(x):
        return tf.while_loop(lambda i, y: i < 20, lambda i, y: (i + 1, tf.matmul(y, y)), (0, x))[1]

    graph = tfplace.extract(step, (np.zeros((64, 64), "float32"),))
    found = profiling.profile_graph(graph, OneOpAtATime, MODEL, steps=3)
    product = graph.op_types.index("MatMul")
    assert graph.trips[product] == 20
    assert found.miscounted == 0
    assert step_ratio(graph, found.device) == pytest.approx(1, abs=0.5)


def test_ops_side_by_side_are_refused(logical_cpus):
    @tf.function
    def step(x):
        return [tf.linalg.matmul(x + i, x) for i in range(8)]

    # so long that they overlap on one core too, which takes them in turn
    graph = tfplace.extract(step, (np.zeros((1000, 1000), "float32"),))

    with pytest.raises(ApplyError, match="one inter-op thread"):
        profiling.profile_graph(graph, lambda: LocalDevices(inter_op=8), MODEL, steps=3)
    assert profiling.profile_graph(graph, lambda: LocalDevices(inter_op=1), MODEL, steps=3).ran


def test_a_processor_elsewhere_is_not_watched(graph, monkeypatch):
    class Elsewhere(OneOpAtATime):
        cores = ()

    monkeypatch.setattr(interference, "find_counters", lambda *_: pytest.fail("watched this machine's processor"))
    found = profiling.profile_graph(graph, Elsewhere, MODEL, warmup=0, steps=1)
    assert found.ran and found.rejected == 0


def test_no_device_of_the_type(graph):
    with pytest.raises(InputError, match="a device of type GPU"):
        profiling.profile_graph(graph, OneOpAtATime, MODEL, device_type="GPU")
