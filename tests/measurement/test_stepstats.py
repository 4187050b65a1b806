"""What the tracer said, as executions, transfers, memory and a timeline."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

import tfplace
from tests.extraction.models import keras_lstm
from tests.measurement.steps import problem_of, two_towers
from tfplace.errors import PlacementError
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running
from tfplace.measurement.backends.stepstats import measured_timeline, read_stats
from tfplace.report.trace import trace_events

A, B = (f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in (0, 1))
STEP_START = 1_700_000_000_000_000_000


def metadata(*parts):
    """A `RunMetadata` of (device, records), a record a dict of fields with times in ns after the step's start."""
    out = tf.compat.v1.RunMetadata()
    for device, records in parts:
        part = out.step_stats.dev_stats.add(device=device)
        for record in records:
            part.node_stats.append(_node(**record))
    return out


def _node(name, *, start=0, length=0, memory=None, label="", size=None):
    node = tf.compat.v1.RunMetadata().step_stats.dev_stats.add().node_stats.add(node_name=name, timeline_label=label)
    if size is not None:  # as the tracer writes transfers: microseconds only
        node.all_start_micros = (STEP_START + start) // 1000
        node.op_end_rel_micros = length // 1000
        node.output.add().tensor_description.allocation_description.requested_bytes = size
        return node
    node.all_start_nanos = STEP_START + start - 100
    node.op_start_rel_nanos, node.op_end_rel_nanos = 100, 100 + length
    for allocator, used in (memory or {}).items():
        node.memory.add(allocator_name=allocator, allocator_bytes_in_use=used)
    return node


def test_executions_add_up_and_bookkeeping_is_left_out():
    stats = read_stats(metadata((A, [{"name": "_SOURCE", "start": -50}, {"name": "b", "start": 500, "length": 30}])))
    assert stats.names == ("b",)
    stats = read_stats(metadata((A, [{"name": "b", "start": s, "length": 1000} for s in (4000, 0, 9000)])))
    assert stats.seconds == {"b": (pytest.approx(3e-6), 3)}
    assert stats.start_s == pytest.approx([0, 4e-6, 9e-6])
    assert stats.finish_s[-1] == pytest.approx(10e-6)


def test_transfers_have_their_exact_size_and_ends():
    label = f"[1.0MB] [13.0Gb/s] edge_11_dense/MatMul from {A} to {B}"
    received = {"name": "RecvTensor", "start": 20_000, "length": 500_000, "label": label, "size": 1_048_577}
    stats = read_stats(metadata((B, [received]), (A, [{"name": "dense/MatMul", "start": 0, "length": 15_000}])))
    (moved,) = stats.transfers
    assert (moved.op, moved.src, moved.dst, moved.size_bytes) == ("dense/MatMul", A, B, 1_048_577)
    assert (moved.start_s, moved.finish_s) == (pytest.approx(20e-6), pytest.approx(520e-6))
    assert "RecvTensor" not in stats.names


def test_memory_is_the_devices_own():
    used = {"mklcpu": 4096, "GPU_0_bfc": 10}
    stats = read_stats(metadata((A, [{"name": "a", "start": 0, "length": 10, "memory": used}, {"name": "b"}])))
    assert stats.memory_bytes.tolist() == [4096]
    assert stats.memory_device == (A,)


def test_kernel_times_of_a_gpu_come_from_its_stream():
    gpu = "/job:localhost/replica:0/task:0/device:GPU:0"
    launched = [{"name": n, "start": i * 1000, "length": 50} for i, n in enumerate(("m", "shape"))]
    kernels = [{"name": "m:MatMul", "start": 5000 + 100 * i, "length": 2000, "size": 0} for i in range(2)]
    other = (gpu + "/memcpy", [{"name": "m:MEMCPYHtoD", "start": 0, "length": 9}])
    stats = read_stats(metadata((gpu, launched), (gpu + "/stream:all", kernels), (gpu + "/stream:13", kernels), other))
    assert stats.names == ("m", "shape")
    assert stats.kernel_s == pytest.approx([5e-6, 0])  # two microseconds are between two and three
    assert stats.finish_s[0] == pytest.approx(50e-9)


def test_a_step_as_an_h200_was_traced():
    """A part of what TensorFlow 2.21 wrote of a small convolutional network's step."""
    text = (Path(__file__).parent / "gpu_step.pbtxt").read_text()
    stats = read_stats(text_format.Parse(text, tf.compat.v1.RunMetadata()))
    gpu, cpu = (f"/job:localhost/replica:0/task:0/device:{kind}:0" for kind in ("GPU", "CPU"))
    microseconds = {name: 1e6 * s for name, (s, _) in stats.seconds.items()}
    assert dict(zip(stats.names, stats.devices, strict=True)) == dict.fromkeys(stats.names, gpu) | {"data_1": cpu}
    assert microseconds["sequential_1/conv_1/convolution"] == pytest.approx(13 + 4 * 0.5)  # 1, 1, 1 and 10
    assert microseconds["sequential_1/drop_1/Add"] == pytest.approx(0.5)  # less than one
    assert microseconds["sequential_1/norm_1/mul_1/y"] == 0  # a constant launches nothing
    assert microseconds["data_1"] == pytest.approx(3.327)  # the host's own clock
    assert set(stats.memory_device) == {gpu}


def test_kernels_of_a_part_of_a_gpu_are_in_the_whole_ones_stream():
    half = "/job:localhost/replica:0/task:0/device:GPU:1"
    kernels = [{"name": "m:MatMul", "start": 5000, "length": 2000, "size": 0}]
    stats = read_stats(metadata((half, [{"name": "m", "length": 50}]), ("/device:GPU:0/stream:all", kernels)))
    assert stats.kernel_s == pytest.approx([2.5e-6])


@pytest.fixture(scope="module")
def traced(logical_cpus):
    """A small model with a loop, its step traced on two devices."""
    graph = tfplace.extract(keras_lstm(), (np.zeros((4, 7), "int32"), np.zeros((4, 7), "int32")))
    backend = LocalDevices()
    placement = {name: "right" if name.startswith("compile_loss") else "left" for name in graph.op_names}
    devices = {"left": backend.devices[0], "right": backend.devices[1]}
    program = StepGraph(graph)
    program.place({name: devices[where] for name, where in placement.items()})
    running = Running(program, backend, None)
    try:
        running()
        return graph, placement, devices, running.traced()
    finally:
        running.close()


def test_a_traced_step_is_a_timeline(traced):
    graph, placement, devices, run_metadata = traced
    timeline = measured_timeline(run_metadata, graph, ["left", "right"], placement, devices=devices)
    assert timeline.source == "measured"
    ran = ~timeline.replicated
    assert ran.sum() > 0.9 * (~graph.replicable).sum()
    assert not ran[graph.replicable].any()
    assert (timeline.finish_s[ran] > timeline.start_s[ran]).all()
    assert timeline.start_s[ran].min() < 1e-3
    assert timeline.finish_s.max() < 60
    assert (timeline.finish_s[~ran] == 0).all() and (timeline.start_s[~ran] == 0).all()
    assert set(timeline.op_device[ran]) == {0, 1}
    forward = ~graph.edge_back
    src, dst = graph.edge_src[forward], graph.edge_dst[forward]
    once = ran[src] & ran[dst] & (graph.trips[src] == 1) & (graph.trips[dst] == 1)
    assert (timeline.start_s[dst[once]] >= timeline.start_s[src[once]]).all()
    assert any(event["ph"] == "X" for event in trace_events(timeline))


def test_loops_run_as_often_as_the_graph_says(traced):
    graph, _, _, run_metadata = traced
    counts = {name: count for name, (_, count) in read_stats(run_metadata).seconds.items()}
    inside = [v for v in range(graph.num_ops) if graph.trips[v] > 1 and graph.op_types[v] == "MatMul"]
    assert inside
    assert {counts[graph.op_names[v]] for v in inside} == {7}


def test_an_op_without_a_device_is_refused(traced):
    graph, placement, devices, run_metadata = traced
    with pytest.raises(PlacementError, match="'elsewhere'"):
        measured_timeline(run_metadata, graph, ["left"], placement | {graph.op_names[0]: "elsewhere"}, devices=devices)


@pytest.mark.cluster
def test_tensors_between_workers_are_transfers_of_their_true_size(logical_cpus):
    graph = problem_of(two_towers(64)).graph
    placement = {name: "right" if "MatMul_1" in name else "left" for name in graph.op_names}
    with Cluster.start(2) as cluster:
        devices = dict(zip(("left", "right"), cluster.devices, strict=True))
        program = StepGraph(graph)
        program.place({name: devices[where] for name, where in placement.items()})
        running = Running(program, cluster, None)
        running()
        timeline = measured_timeline(running.traced(), graph, ["left", "right"], placement, devices=devices)
        running.close()
    crossing = {
        graph.op_names[s]
        for s, d, t in zip(graph.edge_src, graph.edge_dst, graph.edge_tensor, strict=True)
        if t >= 0 and placement[graph.op_names[s]] != placement[graph.op_names[d]]
    }
    assert crossing and crossing == {
        name for name, size in zip(timeline.moved, timeline.moved_bytes, strict=True) if size
    }
    assert set(timeline.moved_bytes[timeline.moved_bytes > 0]) == {64 * 64 * 4}
    for name, src, start in zip(timeline.moved, timeline.moved_src, timeline.moved_start_s, strict=True):
        made = graph.index[name]
        assert timeline.op_device[made] == src
        assert start > timeline.start_s[made]
    assert (timeline.moved_dst != timeline.moved_src).all()
