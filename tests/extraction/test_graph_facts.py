"""What the OpGraph says about loops, sizes, bonds, kernels and host memory."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.extraction import models
from tfplace.extraction.kernels import kernel_support


def test_while_loop_ops_are_counted_per_iteration_forward_and_backward():
    graph = tfplace.extract(models.keras_lstm(7), (tf.TensorSpec([3, 7], tf.int32), tf.TensorSpec([3, 7], tf.int32)))
    trips = dict(zip(graph.op_names, graph.trips, strict=True))
    matmuls = [trips[n] for n, t in zip(graph.op_names, graph.op_types, strict=True) if t == "MatMul" and "while" in n]
    assert len(matmuls) == 6 and set(matmuls) == {7.0}
    assert graph.edge_back.sum() > 0
    forward = ~graph.edge_back
    assert np.all(graph.edge_src[forward] < graph.edge_dst[forward])
    assert graph.unknown == ()


LOOPS = {
    "from 0 by 1": (lambda i: i < 10, lambda i: i + 1, 0, 10),
    "by 100": (lambda i: i < 1000, lambda i: i + 100, 0, 10),
    "with a rest": (lambda i: i < 10, lambda i: i + 3, 2, 3),
    "limit included": (lambda i: i <= 10, lambda i: 1 + i + 1, 0, 6),
    "limit first": (lambda i: tf.greater(10, i), lambda i: i - (-5), -3, 3),
    "downwards": (lambda i: i > 0, lambda i: i - 2, 9, 5),
    "downwards, limit first": (lambda i: tf.less_equal(0, i), lambda i: i - 1, 4, 5),
    "never": (lambda i: i < 3, lambda i: i + 1, 3, 0),
    "two conditions": (lambda i: tf.logical_and(i < 12, i < 20), lambda i: i + 2, 0, 6),
}


def _loop(condition, body, start):
    """A loop of products, of which trips tell how often they run; (graph, trips of the product)."""

    @tf.function
    def f(x):
        return tf.while_loop(lambda i, y: condition(i), lambda i, y: (body(i), y @ y), [start, x])[1]

    graph = tfplace.extract(f, tf.TensorSpec([3, 3]))
    return graph, graph.trips[graph.op_types.index("MatMul")]


@pytest.mark.parametrize("name", LOOPS)
def test_trips_follow_from_start_limit_and_step(name):
    condition, body, start, trips = LOOPS[name]
    graph, counted = _loop(condition, body, start)
    assert counted == trips
    assert graph.unknown == ()


@pytest.mark.parametrize("body", [lambda i: i * 2, lambda i: i + i, lambda i: i - 1])
def test_loops_of_another_progress_are_unknown_and_counted_once(body):
    graph, trips = _loop(lambda i: i < 100, body, 1)
    assert trips == 1
    assert [u.rule for u in graph.unknown if "LoopCond" in graph.op_types[graph.index[u.op]]]


def test_a_loop_that_ends_with_the_counter_of_another():
    @tf.function
    def f(x):
        n = tf.while_loop(lambda i: i < 20, lambda i: (i + 5,), [tf.constant(3)])[0]
        return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y @ y), [0, x])[1]

    graph = tfplace.extract(f, tf.TensorSpec([3, 3]))
    assert graph.trips[graph.op_types.index("MatMul")] == 23


def test_a_range_is_counted_by_its_length_forward_and_backward():
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for i in tf.range(5, 50, 10):
                y = tf.tanh(y @ x) * tf.cast(i, tf.float32)
        return tape.gradient(y, x)

    graph = tfplace.extract(f, tf.TensorSpec([3, 3]))
    assert {t for t, op in zip(graph.trips, graph.op_types, strict=True) if op == "MatMul"} == {5}
    assert graph.unknown == ()


def test_unrolled_lstm_has_no_loop_and_the_same_number_of_cell_matmuls():
    steps = 7
    specs = (tf.TensorSpec([3, steps], tf.int32), tf.TensorSpec([3, steps], tf.int32))
    unrolled = tfplace.extract(models.keras_lstm(steps, unroll=True), specs)
    looped = tfplace.extract(models.keras_lstm(steps), specs)
    assert unrolled.edge_back.sum() == 0 and unrolled.trips.max() == 1
    count = [
        sum(t for t, op, n in zip(g.trips, g.op_types, g.op_names, strict=True) if op == "MatMul" and "dense" not in n)
        for g in (unrolled, looped)
    ]
    # the loop also computes the gradients of the first, constant state
    assert abs(count[0] - count[1]) <= 2


def test_lists_of_a_loop_hold_what_each_iteration_makes_once():
    """The hidden state is pushed three times: as a result, and as what two products are computed from."""
    graph = tfplace.extract(models.keras_lstm(7), (tf.TensorSpec([3, 7], tf.int32), tf.TensorSpec([3, 7], tf.int32)))
    pushed = [v for v, op in enumerate(graph.op_types) if op == "TensorListPushBack"]
    arrays = [v for v in pushed if graph.op_attrs[v]["element_dtype"] != "variant"]
    held = {v: int(graph.tensor_bytes[graph.op_tensors[v]]) for v in arrays}
    element = {v: int(graph.tensor_bytes[graph.inputs[v][1]]) for v in arrays}
    assert {held[v] for v in arrays} >= {0}
    assert all(held[v] in (0, element[v], 7 * element[v]) for v in arrays)
    assert 5 < sum(held[v] == 7 * element[v] for v in arrays) < len(arrays)


def test_a_list_of_a_slice_holds_its_part_of_what_the_unsplit_steps_holds():
    batch = tf.TensorSpec([4, 7], tf.int32)
    whole, split = (tfplace.extract(models.keras_lstm(7), (batch, batch), slices=k) for k in (None, 2))
    assert max(lists_of(split)) == max(lists_of(whole)) // 2


def lists_of(graph):
    """Bytes of each TensorList, by the op that makes it."""
    makers = [v for v, op in enumerate(graph.op_types) if op in ("EmptyTensorList", "TensorListReserve")]
    return sorted(int(graph.tensor_bytes[graph.op_tensors[v]]) for v in makers)


def test_a_list_of_the_same_tensor_in_every_iteration_holds_it_once():
    w = tf.Variable(tf.ones((8, 8)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, z, _ = tf.while_loop(  # the gradient needs tanh, z, w, and y in each turn
                lambda i, z, y: i < 5, lambda i, z, y: (i + 1, tf.tanh(z @ w) * y, y), (0, x, y)
            )
        return tape.gradient(z, (x, w))

    graph = tfplace.extract(step, (tf.TensorSpec((2, 8)), tf.TensorSpec((2, 8))))
    row, turns = 2 * 8 * 4, 5
    # w is in a list that takes nothing, y in one that takes as much as y, x and tanh in one each
    assert [size for size in lists_of(graph) if size] == [row, turns * row, turns * row]


def test_a_list_of_reads_of_a_variable_whose_rows_are_written_holds_copies():
    w = tf.Variable(tf.ones((8, 8)))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for _ in tf.range(5):
                x = x @ w
        gradient = tape.gradient(x, w)
        w.scatter_sub(tf.IndexedSlices(gradient[:1], tf.constant([0])))

    graph = tfplace.extract(step, (tf.TensorSpec((2, 8)),))
    assert 8 * 8 * 4 in lists_of(graph) or 5 * 8 * 8 * 4 in lists_of(graph)


def test_partitions_are_counted_as_if_of_one_size():
    @tf.function
    def step(x, expert):
        parts = tf.dynamic_partition(x, expert, 4)
        return [tf.reduce_sum(tf.nn.relu(part)) for part in parts]

    graph = tfplace.extract(step, (tf.TensorSpec((100, 3)), tf.TensorSpec((100,), tf.int32)))
    (parts,) = (v for v, op in enumerate(graph.op_types) if op == "DynamicPartition")
    assert graph.tensor_bytes[graph.op_tensors[parts] : graph.op_tensors[parts + 1]].tolist() == [25 * 3 * 4] * 4
    assert [graph.tensor_shape[graph.op_tensors[v]] for v, op in enumerate(graph.op_types) if op == "Relu"] == [
        (25, 3)
    ] * 4
    assert all("25" in unknown.rule for unknown in graph.unknown)


def test_lists_that_are_made_anew_in_each_turn_hold_one_turns_elements():
    @tf.function
    def step(x):
        for _ in tf.range(10):
            array = tf.TensorArray(tf.float32, 20, element_shape=[3])
            for i in tf.range(20):
                array = array.write(i, x * tf.cast(i, tf.float32))
            x = tf.reduce_sum(array.stack(), axis=0)
        return x

    graph = tfplace.extract(step, tf.TensorSpec([3]))
    (write,) = (v for v, op in enumerate(graph.op_types) if op == "TensorListSetItem")
    assert graph.trips[write] == 200
    assert graph.tensor_bytes[graph.op_tensors[write]] == 20 * 3 * 4


def test_a_variable_with_an_open_dimension_is_as_large_as_it_is():
    variable = tf.Variable(tf.zeros([100, 8]), shape=[None, 8])

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(variable, ids))
        gradient = tape.gradient(loss, variable)
        variable.scatter_sub(gradient)
        return loss

    graph = tfplace.extract(step, tf.TensorSpec([4], tf.int32))
    assert [v.size_bytes for v in graph.variables] == [100 * 8 * 4]


@pytest.mark.parametrize("as_function", [True, False])
def test_ops_that_the_program_wants_together_are_a_group(as_function):
    """One that names two others is beside both; a constant that is copied is beside nothing."""
    v1 = tf.compat.v1

    def step(a, b):
        with v1.colocate_with(a), v1.colocate_with(b):
            c = tf.exp(a, name="c")
        with v1.colocate_with(a):
            k = tf.constant([1.0, 2.0, 3.0], name="k")
        return tf.add(c, b * k, name="d")

    if as_function:
        extracted = tfplace.extract(tf.function(step), (tf.TensorSpec([3]), tf.TensorSpec([3])))
    else:
        with tf.Graph().as_default() as graph:
            step(v1.placeholder(tf.float32, [3], name="a"), v1.placeholder(tf.float32, [3], name="b"))
        extracted = tfplace.extract(graph.as_graph_def())
    bonds = {name: extracted.colocation[v] for name, v in extracted.index.items()}
    assert bonds["a"] == bonds["b"] == bonds["c"] >= 0
    assert bonds["k"] == bonds["d"] == -1
    assert extracted.replicable[extracted.index["k"]]


def test_known_batch_leaves_nothing_unknown_and_open_batch_is_reported_with_its_rule():
    model = models.keras_cnn()
    assert tfplace.extract(model, models.cnn_batch(4)).unknown == ()
    open_batch = (tf.TensorSpec([None, 8, 8, 3]), tf.TensorSpec([None], tf.int32))
    graph = tfplace.extract(model, open_batch)
    assert graph.unknown
    for u in graph.unknown:
        assert u.op in graph.index and u.rule
        assert graph.tensor_bytes[u.tensor] > 0


def test_sizes_are_those_of_the_arrays():
    x, y = models.cnn_batch(4)
    graph = tfplace.extract(models.keras_cnn(), (x, y))
    conv = graph.op_types.index("Conv2D")
    assert graph.tensor_shape[graph.op_tensors[conv]] == (4, 6, 6, 4)
    assert graph.tensor_bytes[graph.op_tensors[conv]] == 4 * 6 * 6 * 4 * 4
    assert graph.op_attrs[conv]["strides"] == (1, 1, 1, 1)
    assert graph.op_attrs[conv]["padding"] == "VALID"


def test_ops_on_one_variable_are_bonded_and_ops_on_two_are_not():
    graph = tfplace.extract(models.keras_cnn(), models.cnn_batch())
    by_bond: dict[int, set[int]] = {}
    for v, bond in enumerate(graph.resource):
        if bond >= 0:
            by_bond.setdefault(int(bond), set()).add(v)
    handles = [v.op for v in graph.variables]
    for ops in by_bond.values():
        assert len(ops) > 1
        assert len(ops & set(handles)) >= 1
    trainable = next(v for v in graph.variables if v.trainable)
    ops = by_bond[int(graph.resource[trainable.op])]
    assert {"ReadVariableOp", "AssignSubVariableOp"} <= {graph.op_types[v] for v in ops}


def test_kernels_and_host_memory_of_known_ops():
    def node(op, **types):
        n = tf.compat.v1.NodeDef(name="n", op=op)
        for key, dtype in types.items():
            n.attr[key].type = dtype.as_datatype_enum
        return n

    assert kernel_support(node("MatMul", T=tf.float32)).types == {"CPU", "GPU"}
    assert kernel_support(node("StringJoin")).types == {"CPU"}
    assert kernel_support(node("Shape", T=tf.float32, out_type=tf.int32)).host_memory
    assert not kernel_support(node("MatMul", T=tf.float32)).host_memory


def test_small_constants_are_replicable_and_large_ones_are_not():
    @tf.function
    def f(x):
        return x @ tf.constant(np.ones((200, 200), np.float32)) + tf.constant(np.arange(200, dtype=np.float32))

    graph = tfplace.extract(f, tf.TensorSpec([3, 200]))
    sizes = {
        bool(r): graph.tensor_bytes[graph.op_tensors[v]]
        for v, (op, r) in enumerate(zip(graph.op_types, graph.replicable, strict=True))
        if op == "Const"
    }
    assert sizes == {True: 800, False: 160000}


@pytest.mark.parametrize(("side", "folded"), [(16, True), (1024, False)])
def test_a_mask_as_large_as_attention_scores_is_no_constant(side, folded):
    """Grappler would write all its values into the graph, and a graph of 2 GiB is none."""

    @tf.function
    def f(scores):
        past = tf.linalg.band_part(tf.ones((side, side), tf.int32), -1, 0) > 0
        return tf.where(tf.logical_and(tf.ones_like(scores, tf.bool), past), scores, -1e9)

    spec = tf.TensorSpec([2, 3, side, side])
    graph = tfplace.extract(f, spec)
    assert ("LogicalAnd" not in graph.op_types) is folded
    assert graph.metagraph().graph_def.ByteSize() < 2 << 20
    scores = tf.random.stateless_normal(spec.shape, (1, 2))
    step = tfplace.apply(graph, tfplace.place(graph, placer="single", budget=5, progress=False))
    np.testing.assert_array_equal(step(scores), f(scores))


@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_scalars_and_matrices(shape):
    graph = tfplace.extract(tf.function(tf.exp), tf.TensorSpec(shape))
    exp = graph.op_types.index("Exp")
    assert graph.tensor_bytes[graph.op_tensors[exp]] == 4 * int(np.prod(shape))


def test_a_variable_is_only_where_one_of_its_type_can_be_made():
    """TensorFlow has no int32 variables on GPUs, though ops there read and write them in host memory."""
    count, scale = tf.Variable(0, name="count"), tf.Variable(1.0, name="scale")

    @tf.function
    def step(x):
        return count.assign_add(1), scale.assign_add(x)

    graph = tfplace.extract(step, (np.float32(1),))
    gpu = graph.kernel_types.index("GPU")
    able = {v.name.partition(":")[0]: graph.has_kernel[v.op, gpu] for v in graph.variables}
    assert able == {"count": False, "scale": True}
