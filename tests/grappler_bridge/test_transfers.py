"""Transfers added to what Grappler computes: against times worked out by hand."""

from __future__ import annotations

import itertools

import pytest
import tensorflow as tf

from grappler_bridge.check import EXECUTIONS
from grappler_bridge.cluster import full_name
from grappler_bridge.costs import measure_costs, peak_memory
from grappler_bridge.errors import GrapplerInputError
from grappler_bridge.transfers import Link, Tensor, add_transfers, copy_constants, infer_tensors
from tests.grappler_bridge.graphs import GPU_BANDWIDTH, GPU_FLOPS, gpus, metagraph, node, placeholder

SIZE = 1024
MATRIX_BYTES = 4 * SIZE**2
BANDWIDTH, LATENCY_S = 10e9, 20e-6
SENT_S = LATENCY_S + MATRIX_BYTES / BANDWIDTH
PRODUCT_S = 2 * SIZE**3 / GPU_FLOPS + 3 * MATRIX_BYTES / GPU_BANDWIDTH


def links(devices, **changes):
    """All ways between the devices, full duplex, each device with one channel out and one in."""
    names = [d.name for d in devices]
    rates = {"bandwidth": BANDWIDTH, "latency_s": LATENCY_S} | changes
    return [Link(a, b, **({"channels": (f"{a} out", f"{b} in")} | rates)) for a, b in itertools.permutations(names, 2)]


def both(meta, devices=None, **changes):
    """Grappler's own step seconds, and those with transfers."""
    devices = devices or gpus(4)
    sent = add_transfers(meta, devices, links(devices, **changes))
    return measure_costs(meta, devices).step_s, measure_costs(sent.meta, sent.devices).step_s


def chain(placement):
    def build():
        x = placeholder(SIZE, SIZE)
        for i, gpu in enumerate(placement):
            with tf.device(f"/device:GPU:{gpu}"):
                x = tf.matmul(x, x, name=f"layer{i}")
        return x

    return metagraph(build)


PLACEMENTS = {"one GPU": [0] * 16, "two halves": [0] * 8 + [1] * 8, "alternating": [0, 1] * 8}
SENT = {"one GPU": 0, "two halves": 1, "alternating": 15}


def test_grappler_alone_cannot_tell_placements_of_a_chain_apart():
    times = [measure_costs(chain(p), gpus(2)).step_s for p in PLACEMENTS.values()]
    assert times == pytest.approx([16 * PRODUCT_S] * 3, rel=1e-3)


def test_grappler_alone_may_overlook_a_control_edge_between_devices():
    def build():
        with tf.device("/device:GPU:1"):
            small = tf.exp(placeholder(2, 2))
        product = tf.matmul(placeholder(SIZE, SIZE), placeholder(SIZE, SIZE))
        with tf.control_dependencies([product]), tf.device("/device:GPU:1"):
            return tf.exp(small, name="last")

    own, with_transfers = both(metagraph(build))
    assert own == pytest.approx(PRODUCT_S, rel=1e-3)
    assert with_transfers == pytest.approx(PRODUCT_S + LATENCY_S, rel=1e-3)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_chain_with_transfers_takes_what_is_worked_out_by_hand(name):
    _, with_transfers = both(chain(PLACEMENTS[name]))
    assert with_transfers == pytest.approx(16 * PRODUCT_S + SENT[name] * SENT_S, rel=1e-3)


def test_what_is_moved_is_counted_once_per_destination():
    def build():
        x = placeholder(SIZE, SIZE)
        done = []
        for i in range(6):
            with tf.device(f"/device:GPU:{i % 3}"):
                done.append(tf.exp(x).op)
        return tf.group(done)

    sent = add_transfers(metagraph(build), gpus(3), links(gpus(3)))
    assert sent.moved_bytes == 2 * MATRIX_BYTES
    assert sent.count == 2
    assert set(sent.channels) == {"GPU:0 out", "GPU:1 in", "GPU:2 in"}


def fan_out(count):
    def build():
        x = tf.exp(placeholder(SIZE, SIZE))
        done = []
        for i in range(count):
            with tf.device(f"/device:GPU:{i + 1}"):
                done.append(tf.exp(x).op)
        return tf.group(done)

    return metagraph(build)


def fan_in(count):
    def build():
        sent = []
        for i in range(count):
            with tf.device(f"/device:GPU:{i + 1}"):
                sent.append(tf.exp(placeholder(SIZE, SIZE)))
        return tf.add_n(sent)

    return metagraph(build)


@pytest.mark.parametrize("graph", [fan_out, fan_in])
def test_transfers_on_one_channel_wait_for_one_another(graph):
    times = [both(graph(count))[1] for count in (2, 3)]
    assert times[1] - times[0] == pytest.approx(SENT_S, rel=0.03)
    devices = gpus(4)
    pairs = itertools.permutations([d.name for d in devices], 2)
    sent = add_transfers(graph(3), devices, [Link(a, b, BANDWIDTH, LATENCY_S, (f"{a} to {b}",)) for a, b in pairs])
    apart = measure_costs(sent.meta, sent.devices).step_s
    assert apart - times[0] < 0.1 * SENT_S


def test_a_channel_that_links_share_carries_one_transfer_at_a_time():
    def build():
        done = []
        for a, b in ((0, 1), (2, 3)):
            with tf.device(f"/device:GPU:{a}"):
                x = tf.exp(placeholder(SIZE, SIZE))
            with tf.device(f"/device:GPU:{b}"):
                done.append(tf.exp(x).op)
        return tf.group(done)

    _, apart = both(metagraph(build))
    _, shared = both(metagraph(build), channels=("switch",))
    assert shared - apart == pytest.approx(SENT_S, rel=0.01)


def test_a_control_edge_costs_the_latency_alone():
    def build():
        with tf.control_dependencies([tf.exp(placeholder(SIZE, SIZE))]), tf.device("/device:GPU:1"):
            return tf.exp(placeholder(2, 2))

    own, with_transfers = both(metagraph(build))
    assert with_transfers - own == pytest.approx(LATENCY_S, rel=1e-3)


def test_overheads_keep_the_ends_from_computing():
    meta = chain(PLACEMENTS["two halves"])
    _, plain = both(meta)
    _, slower = both(meta, send_overhead_s=1e-4, receive_overhead_s=2e-4, receive_overhead_s_per_byte=1e-10)
    assert slower - plain == pytest.approx(3e-4 + MATRIX_BYTES * 1e-10, rel=1e-3)


def test_what_runs_several_times_is_sent_several_times():
    meta = chain([0, 1])
    node(meta, "layer0").attr[EXECUTIONS].i = 7
    own, with_transfers = both(meta)
    assert own == pytest.approx(8 * PRODUCT_S, rel=1e-3)
    assert with_transfers - own == pytest.approx(7 * SENT_S, rel=1e-3)


def test_transfers_of_many_seconds_are_right():
    _, with_transfers = both(chain([0, 1]), bandwidth=1e6)
    assert MATRIX_BYTES / 1e6 > 2**31 * 1e-9
    assert with_transfers == pytest.approx(MATRIX_BYTES / 1e6 + LATENCY_S + 2 * PRODUCT_S, rel=1e-6)


def test_free_links_add_nothing():
    own, with_transfers = both(chain(PLACEMENTS["alternating"]), bandwidth=float("inf"), latency_s=0.0)
    assert with_transfers == pytest.approx(own, rel=1e-5)


def test_a_loop_across_devices():
    def build():
        tf.compat.v1.disable_control_flow_v2()
        try:
            _, x = tf.while_loop(
                lambda i, x: i < 3, lambda i, x: (i + 1, tf.matmul(x, x)), [0, placeholder(SIZE, SIZE)]
            )
        finally:
            tf.compat.v1.enable_control_flow_v2()
        return tf.exp(x)

    meta = metagraph(build)
    for op in meta.graph_def.node:
        op.device = f"/device:GPU:{int(op.op in ('MatMul', 'Merge'))}"
    own, with_transfers = both(meta)
    # from Enter to Merge, to Switch, to the product, to NextIteration; its way back to the Merge is no precedence
    assert 4 * SENT_S <= with_transfers - own <= 4 * SENT_S + 3 * LATENCY_S


def test_constants_are_copied_instead_of_sent():
    def build():
        c = tf.constant([[1.0, 2.0]], name="constant")
        done = []
        for i in (0, 1, 1, 2):
            with tf.device(f"/device:GPU:{i}"):
                done.append(tf.matmul(placeholder(2, 1), c).op)
        return tf.group(done)

    meta = metagraph(build)
    before = meta.SerializeToString(deterministic=True)
    copied = copy_constants(meta, ["constant"])
    assert before == meta.SerializeToString(deterministic=True)
    places = sorted(n.device for n in copied.graph_def.node if n.op == "Const")
    assert places == [f"/device:GPU:{i}" for i in range(3)]
    assert add_transfers(copied, gpus(3), links(gpus(3))).moved_bytes == 0
    assert add_transfers(meta, gpus(3), links(gpus(3))).moved_bytes == 2 * 8


def test_tensors_may_be_described_and_must_be():
    meta, devices = chain([0, 1]), gpus(2)
    assert infer_tensors(meta)["layer0:0"] == Tensor("float32", MATRIX_BYTES)
    assert add_transfers(meta, devices, links(devices), {"layer0:0": Tensor("float32", 5)}).moved_bytes == 5
    with pytest.raises(GrapplerInputError, match="'layer0:0', which is not described"):
        add_transfers(meta, devices, links(devices), {})


def test_a_way_without_a_link_is_refused():
    with pytest.raises(GrapplerInputError, match="expected a link between the two devices"):
        add_transfers(chain([0, 1]), gpus(2), [])


@pytest.mark.parametrize(
    "wrong", [{"bandwidth": 0.0}, {"latency_s": -1.0}, {"latency_s": float("inf")}, {"channels": ()}]
)
def test_impossible_links_are_refused(wrong):
    with pytest.raises(GrapplerInputError):
        Link(**({"src": "GPU:0", "dst": "GPU:1", "bandwidth": 1e9, "latency_s": 0.0, "channels": ("c",)} | wrong))


def test_a_copy_is_held_where_it_was_received_and_no_longer_where_it_came_from():
    def build():
        first = tf.exp(placeholder(SIZE, SIZE))
        with tf.device("/device:GPU:1"):
            x = first
            for _ in range(3):
                x = tf.exp(x)
            return tf.add(x, first)

    def at_peak(meta, devices):
        found = peak_memory(meta, devices)
        return [found[full_name(d)].size_bytes / MATRIX_BYTES for d in ("GPU:0", "GPU:1")]

    meta, devices = metagraph(build), gpus(2)
    sent = add_transfers(meta, devices, links(devices))
    # the placeholder and what is sent; the copy beside three of the chain (an input is let go a nanosecond late)
    assert at_peak(sent.meta, sent.devices) == pytest.approx([2, 4], abs=0.01)


def test_the_same_graph_costs_the_same_again():
    meta = chain(PLACEMENTS["alternating"])
    assert both(meta) == both(meta)
