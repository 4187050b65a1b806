"""Rates come out as they went in, and what Grappler says is passed on in seconds and bytes."""

from __future__ import annotations

import pytest
import tensorflow as tf

from grappler_bridge import cluster
from grappler_bridge.cluster import VirtualDevice, full_name, named_device, virtual_cluster
from grappler_bridge.costs import measure_costs, peak_memory, supported_devices, time_measure_costs
from tests.grappler_bridge.graphs import GPU_BANDWIDTH, GPU_FLOPS, gpus, metagraph, placeholder

SIZE = 4096
MATRIX_BYTES = 4 * SIZE**2


def two_ops():
    a = placeholder(SIZE, SIZE)
    return tf.add(tf.matmul(a, a, name="multiply"), a, name="add")


@pytest.mark.parametrize(
    ("device", "flops", "bandwidth"),
    [("GPU:0", GPU_FLOPS, GPU_BANDWIDTH), ("GPU:0", 125e12, 900e9), ("CPU:0", 1.408e12, 76.8e9), ("CPU:0", 5e9, 9e9)],
)
def test_a_large_op_takes_its_operations_and_bytes_over_the_rates(device, flops, bandwidth):
    costs = measure_costs(metagraph(two_ops, device), [VirtualDevice(device, device[:3], flops, bandwidth)])
    ops = {op.name: op for op in costs.ops}
    moved_s = 3 * MATRIX_BYTES / bandwidth
    assert ops["multiply"].compute_s == pytest.approx(2 * SIZE**3 / flops, rel=1e-3)
    assert ops["multiply"].memory_s == pytest.approx(moved_s, rel=1e-2)
    assert ops["multiply"].seconds == pytest.approx(2 * SIZE**3 / flops + moved_s, rel=1e-4)
    assert ops["add"].seconds == pytest.approx(SIZE**2 / flops + moved_s, rel=1e-4)
    assert ops["add"].device == full_name(device)
    assert costs.step_s == pytest.approx(ops["multiply"].seconds + ops["add"].seconds, rel=1e-4)
    assert costs.busy_s()[full_name(device)] == pytest.approx(costs.step_s)


def test_grappler_itself_sees_the_intended_rate():
    device = VirtualDevice("GPU:0", "GPU", GPU_FLOPS, GPU_BANDWIDTH)
    with virtual_cluster([device]) as made:
        assert made.EstimatePerformance(named_device(device)) == pytest.approx(GPU_FLOPS / 1e9, rel=1e-5)


def test_devices_compute_side_by_side():
    def towers():
        done = []
        for i in range(2):
            with tf.device(f"/device:GPU:{i}"):
                a = placeholder(SIZE, SIZE)
                done.append(tf.matmul(a, a).op)
        with tf.device("/device:GPU:0"):
            return tf.group(done)

    costs = measure_costs(metagraph(towers), gpus(2))
    one = measure_costs(metagraph(two_ops), gpus(1))
    assert costs.step_s == pytest.approx(next(op.seconds for op in one.ops if op.name == "multiply"), rel=1e-3)
    assert set(costs.busy_s()) == {full_name("GPU:0"), full_name("GPU:1")}


def test_peak_memory_counts_what_is_held_at_once():
    def chain():
        x = placeholder(SIZE, SIZE)
        for i in range(6):
            x = tf.exp(x, name=f"step{i}")
        return x

    peak = peak_memory(metagraph(chain), gpus(2))
    # an op's input is let go a nanosecond after the next op began: three instead of two
    assert peak[full_name("GPU:0")].size_bytes == 3 * MATRIX_BYTES
    assert [t.size_bytes for t in peak[full_name("GPU:0")].tensors] == [MATRIX_BYTES] * 3
    assert peak[full_name("GPU:1")].size_bytes == 0


@pytest.mark.parametrize(
    ("said", "live"),
    [
        (750_000_000_000_000, [("list", 0, 750_000_000_000_000, 0, 1)]),  # seen with loops
        (-5, []),
        (100, [("a", 0, -28, 0, 1), ("b", 0, 128, 0, 1)]),
        (100, [("a", 0, 164, 0, 1)]),
    ],
)
def test_a_peak_that_cannot_be_is_unknown(monkeypatch, said, live):
    name = full_name("GPU:0")
    monkeypatch.setattr(
        cluster.grappler_cluster.Cluster,
        "DeterminePeakMemoryUsage",
        lambda self, item: {full_name(d.name): ((said, live) if d.name == "GPU:0" else (-1, [])) for d in gpus(1)},
    )
    peak = peak_memory(metagraph(two_ops), gpus(1))
    assert peak[name].size_bytes is None
    assert peak[full_name("CPU:0")].size_bytes == 0


def test_peak_memory_does_not_care_for_limits():
    meta, small = metagraph(two_ops), gpus(1, memory_bytes=1000)
    assert peak_memory(meta, small) == peak_memory(meta, gpus(1))


def test_every_device_supports_everything():
    devices = supported_devices(metagraph(two_ops, None), gpus(2))
    assert devices["multiply"] == tuple(full_name(d) for d in ("CPU:0", "GPU:0", "GPU:1"))


def test_one_call_is_timed():
    meta = metagraph(two_ops)
    assert 0 < time_measure_costs(meta, gpus(1), repeats=2) < 10
