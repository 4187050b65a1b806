"""Everything that would crash or mislead Grappler is refused first, and says what it was."""

from __future__ import annotations

import pytest
import tensorflow as tf

from grappler_bridge.check import EXECUTIONS
from grappler_bridge.cluster import VirtualDevice, virtual_cluster
from grappler_bridge.costs import measure_costs, peak_memory, supported_devices
from grappler_bridge.errors import GrapplerError, GrapplerInputError
from tests.grappler_bridge.graphs import gpus, metagraph, node, placeholder


def simple():
    x = placeholder(8, 8)
    return tf.exp(tf.matmul(x, x, name="product"), name="result")


def no_fetches(meta):
    del meta.collection_def["train_op"]


def empty_fetches(meta):
    del meta.collection_def["train_op"].node_list.value[:]


def absent_fetch(meta):
    meta.collection_def["train_op"].node_list.value.append("absent")


def no_ops(meta):
    del meta.graph_def.node[:]


def unknown_op(meta):
    node(meta, "product").op = "Frobnicate"


def missing_input(meta):
    node(meta, "result").input[0] = "nowhere"


def missing_control_input(meta):
    node(meta, "result").input.append("^nowhere")


def one_name_twice(meta):
    meta.graph_def.node.add().CopyFrom(node(meta, "product"))


def no_such_output(meta):
    node(meta, "result").input[0] = "product:5"


def negative_executions(meta):
    node(meta, "product").attr[EXECUTIONS].i = -1


def too_many_executions(meta):
    node(meta, "product").attr[EXECUTIONS].i = 2**31


def unknown_device(meta):
    node(meta, "product").device = "/device:GPU:7"


def device_of_another_job(meta):
    node(meta, "product").device = "/job:worker/task:3/device:GPU:0"


def malformed_device(meta):
    node(meta, "product").device = "the first gpu"


def no_device(meta):
    node(meta, "product").device = ""


REFUSED = [
    (no_fetches, "fetches"),
    (empty_fetches, "fetches"),
    (absent_fetch, "absent"),
    (no_ops, "fetches"),
    (unknown_op, "Frobnicate"),
    (missing_input, "nowhere"),
    (missing_control_input, "nowhere"),
    (one_name_twice, "two ops named 'product'"),
    (negative_executions, "_execution_count -1"),
    (too_many_executions, "_execution_count 2147483648"),
    (unknown_device, "GPU:7"),
    (device_of_another_job, "worker"),
    (malformed_device, "the first gpu"),
    (no_device, "op 'product' on device ''"),
]


@pytest.mark.parametrize(("spoil", "said"), REFUSED, ids=[spoil.__name__ for spoil, _ in REFUSED])
def test_spoilt_graphs_are_refused(spoil, said):
    meta = metagraph(simple)
    for ask in (measure_costs, peak_memory):
        ask(meta, gpus(1))
    spoil(meta)
    for ask in (measure_costs, peak_memory):
        with pytest.raises(GrapplerInputError) as error:
            ask(meta, gpus(1))
        assert said in error.value.received + error.value.expected


def calling_graph(kind):
    @tf.function
    def body(x):
        return tf.exp(x)

    def build():
        if kind == "While":
            return tf.identity(tf.raw_ops.StatelessWhile(input=[placeholder(4)], cond=truth(), body=step())[0])
        return tf.identity(body(placeholder(4)))

    return metagraph(build)


def truth():
    return tf.function(lambda x: tf.reduce_any(x > 1)).get_concrete_function(tf.TensorSpec([4]))


def step():
    return tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec([4]))


@pytest.mark.parametrize("kind", ["PartitionedCall", "While"])
@pytest.mark.parametrize("there", [True, False])
def test_called_functions_are_refused_since_their_ops_would_not_count(kind, there):
    meta = calling_graph(kind)
    if not there:
        meta.graph_def.library.Clear()
    with pytest.raises(GrapplerInputError, match=r"calls a function.*Inline it first"):
        measure_costs(meta, gpus(1))


def test_functions_that_an_op_only_names_must_be_there():
    def reduce():
        data = tf.compat.v1.data.make_one_shot_iterator(tf.data.Dataset.range(4).map(lambda x: x + 1))
        return tf.identity(data.get_next())

    meta = metagraph(reduce)
    measure_costs(meta, gpus(1))
    meta.graph_def.library.Clear()
    with pytest.raises(GrapplerInputError, match="functions that are in the graph's library"):
        measure_costs(meta, gpus(1))


def test_what_grappler_itself_cannot_read_becomes_an_error_of_its_own():
    meta = metagraph(simple)
    no_such_output(meta)
    with pytest.raises(GrapplerError, match="Grappler failed to"):
        measure_costs(meta, gpus(1))
    with pytest.raises(GrapplerError, match=r"Graph requires \d+ bytes"):
        measure_costs(metagraph(simple), gpus(1, memory_bytes=100))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "my gpu"},
        {"name": "GPU"},
        {"type": "TPU"},
        {"flops": 0.0},
        {"flops": 1e6},
        {"flops": float("nan")},
        {"memory_bandwidth": 0.0},
        {"memory_bandwidth": -5e9},
        {"memory_bytes": -1},
    ],
)
def test_devices_that_would_get_made_up_rates_are_refused(wrong):
    with pytest.raises(GrapplerInputError, match=r"received .*; expected"):
        VirtualDevice(**({"name": "GPU:0", "type": "GPU", "flops": 1e12, "memory_bandwidth": 1e11} | wrong))


@pytest.mark.parametrize("devices", [[], [*gpus(1), *gpus(1)]])
def test_clusters_without_devices_or_with_one_twice_are_refused(devices):
    with pytest.raises(GrapplerInputError), virtual_cluster(devices):
        pass
    with pytest.raises(GrapplerInputError):
        supported_devices(metagraph(simple), devices)
