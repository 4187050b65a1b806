"""What a split graph is made of, and what cannot be split."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.transforms.splitting import SLICES, copies, difference, split_outputs
from tfplace.errors import InputError, SourceError, SplitError
from tfplace.transforms.split import split_source
from tfplace.transforms.whole_step import WholeStep

X = np.arange(18.0).reshape(6, 3)
W = np.ones((3, 2))
AXES = {0: 0, 1: None}


@tf.function
def step(x, w):
    return tf.reduce_sum(tf.tanh(x @ w)) + tf.reduce_sum(w)


def refused(function, batch, slices, **options):
    with pytest.raises(SplitError) as caught:
        split_source(function, batch, slices, **options)
    assert isinstance(caught.value, SourceError)
    return caught.value


def test_per_example_ops_stand_once_a_slice_and_others_once():
    unsplit = tfplace.extract(step, (X, W))
    graph = split_source(step, (X, W), [3, 1, 2], batch_axis=AXES)
    kinds = dict(zip(unsplit.op_names, unsplit.op_types, strict=True))
    copies = Counter(o for k, o in zip(graph.slices.slice_of, graph.slices.original, strict=True) if k >= 0)
    assert {kinds[name]: count for name, count in copies.items() if kinds[name] != "Const"} == {
        "MatMul": 3,
        "Tanh": 3,
        "Sum": 3,
    }
    once = Counter(n for n, o in zip(graph.op_names, graph.slices.original, strict=True) if n == o)
    assert {name for name in kinds if name not in copies} == {*once}
    assert set(once.values()) == {1}


def test_a_step_that_was_read_before_is_not_traced_for_its_batch_again():
    traced = []

    def counted(x, w):
        traced.append(x.shape[0])
        return tf.reduce_sum(tf.tanh(x @ w)) + tf.reduce_sum(w)

    one, other = tf.function(counted), tf.function(counted)
    unsplit = tfplace.extract(one, (X, W))
    before = unsplit.origin.flat.graph_def.SerializeToString(deterministic=True)
    whole = WholeStep(unsplit)
    graph, packed = (
        split_source(one, (X, W), [3, 3], batch_axis=AXES, pack=pack, unsplit=whole) for pack in (False, True)
    )
    assert traced == [6, 3]
    for read, pack in ((graph, False), (packed, True)):
        assert read.fingerprint == split_source(other, (X, W), [3, 3], batch_axis=AXES, pack=pack).fingerprint
    assert unsplit.origin.flat.graph_def.SerializeToString(deterministic=True) == before


def test_a_constant_mask_has_the_rows_of_each_slice():
    masked = tf.function(
        lambda x: tf.where(tf.constant(np.arange(3 * x.shape[0]).reshape(-1, 3) % 4 == 0), x + 1.0, 0.0)
    )
    graph, found = split_outputs(masked, [X], [3, 1, 2], {0: 0})
    masks = [
        node for node in graph.origin.flat.graph_def.node if node.op == "Const" and node.attr["dtype"].type == tf.bool
    ]
    assert sorted(tf.make_ndarray(node.attr["value"].tensor).shape for node in masks) == [(1, 3), (2, 3), (3, 3)]
    assert difference(masked(X).numpy(), found[0]) == ""


@pytest.mark.parametrize("number", [True, False])
@pytest.mark.parametrize(
    "masked",
    [lambda x, ones: tf.where(ones, x, 0.0), lambda x, ones: x * tf.cast(ones, x.dtype)],
    ids=["bool", "float"],
)
def test_a_constant_of_one_number_is_one_number_in_each_slice(masked, number):
    """A mask of ones may be a gigabyte at length."""
    step = tf.function(lambda x: masked(x[:, :1], tf.constant(number, shape=[x.shape[0], 300])))
    graph, found = split_outputs(step, [X], [3, 1, 2], {0: 0})
    constants = [node for node in graph.origin.flat.graph_def.node if node.op == "Const"]
    shapes = [tuple(dim.size for dim in node.attr["value"].tensor.tensor_shape.dim) for node in constants]
    assert {(1, 300), (2, 300), (3, 300)} <= {*shapes}
    assert max(node.ByteSize() for node in constants) < 200
    assert difference(step(X).numpy(), found[0]) == ""


def test_the_pieces_of_an_input_together_are_the_batch():
    graph, pieces = split_outputs(tf.function(lambda x: x + 0.0), [X], [3, 1, 2], {0: 0})
    cut = [node for node in graph.origin.flat.graph_def.node if node.op == "SplitV"]
    assert len(cut) == 1
    assert graph.slices.sizes == (3, 1, 2)
    assert difference(X, pieces[0]) == ""


def gathered_gradient(x, positions, *, batch_dims=1):
    """Of a lookup, with regard to what is looked up."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.tanh(tf.gather(x, positions, batch_dims=batch_dims)))
    return tape.gradient(loss, x)


def scatter(x, positions):
    """Adds rows at positions in all of the batch, which may be of any example."""
    return tf.math.unsorted_segment_sum(tf.reshape(x[:, :2], [-1]), tf.reshape(positions, [-1]), 4 * len(x))


def scatter_ahead(x, positions):
    """Adds rows in the example, or in the next one where the position is the last of those that are looked up."""
    rows, ids = tf.gather(x[0], positions), positions + 4 * tf.range(len(x), dtype=tf.int64)[:, None]
    return tf.math.unsorted_segment_sum(tf.reshape(rows * x[:, :2], [-1]), tf.reshape(ids, [-1]), 4 * len(x))


@pytest.mark.parametrize("slices", SLICES, ids=str)
@pytest.mark.parametrize(
    ("function", "x", "positions", "per_slice"),
    [
        (gathered_gradient, (6, 5), (6, 3), True),
        (gathered_gradient, (6, 5, 2), (6, 3, 2), True),
        (functools.partial(gathered_gradient, batch_dims=2), (6, 4, 5), (6, 4, 3), False),
        (lambda x, at: gathered_gradient(x, at + 1), (6, 6), (6, 3), True),
        (scatter, (6, 5), (6, 2), False),
        (scatter_ahead, (6, 5), (6, 2), False),
    ],
)
def test_rows_are_added_by_slices_where_each_example_has_segments_of_its_own(function, x, positions, per_slice, slices):
    rng = np.random.default_rng(0)
    given = [rng.normal(size=x), rng.integers(0, 5, positions)]
    given[1][-1] = 0
    graph, (out,) = split_outputs(tf.function(function), given, slices, {0: 0, 1: 0})
    assert difference(function(*map(tf.constant, given)), out) == ""
    (op,) = {o for o in graph.slices.original if o.endswith("UnsortedSegmentSum")}
    assert (copies(graph, op) > 0) == per_slice
    assert (op not in graph.slices.gathered) == per_slice


def test_one_slice_is_the_whole_batch():
    graph, (out,) = split_outputs(step, [X, W], 1, AXES)
    assert graph.slices.sizes == (6,)
    assert graph.slices.slice_of.max() <= 0
    assert difference(step(X, W), out) == ""


def test_slices_draw_the_numbers_of_the_whole_where_they_begin_at_a_count():
    """Philox makes two doubles of a count: slices that begin at even elements draw what the whole draws."""
    draw = tf.function(lambda x, seed: x + tf.random.stateless_uniform(x.shape, seed, dtype=tf.float64))
    seed = np.array([1, 2])
    for slices, same in (([2, 4], True), ([3, 3], False)):
        graph, (out,) = split_outputs(draw, [X, seed], slices, AXES)
        assert (graph.slices.differences == ()) == same
        assert (difference(draw(X, seed), out) == "") == same


@pytest.mark.parametrize("reads", ["row", "state"])
def test_loops_of_examples_and_loops_that_mix_them(reads):
    """A loop that carries rows is copied; one that adds the batch's mean at each turn stands once."""

    @tf.function
    def loop(x):
        def turn(i, value):
            return i + 1, tf.tanh(value + (x if reads == "row" else tf.reduce_mean(value, 0, keepdims=True)))

        return tf.while_loop(lambda i, _: i < 3, turn, (0, x))[1]

    graph, (out,) = split_outputs(loop, [X / 9], [3, 1, 2], {0: 0})
    kinds = Counter(kind for kind, k in zip(graph.op_types, graph.slices.slice_of, strict=True) if k >= 0)
    assert kinds["Tanh"] == (3 if reads == "row" else 0)
    assert difference(loop(X / 9), out) == ""


def test_the_gradient_of_a_loop_that_all_examples_end_keeps_rows_of_the_batch():
    @tf.function
    def loop(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            ends = lambda i, y: (i < 3) & (tf.reduce_max(y) < 9)  # noqa: E731
            y = tf.while_loop(ends, lambda i, y: (i + 1, tf.tanh(y) * 2), (0, x))[1]
        return tape.gradient(y, x)

    _, (out,) = split_outputs(loop, [X / 9], [3, 1, 2], {0: 0})
    assert difference(loop(X / 9), out) == ""


def test_a_loop_that_draws_at_each_turn_draws_as_the_whole_batch_does():
    @tf.function
    def loop(x, seed):
        def turn(i, value):
            return i + 1, tf.tanh(value + tf.random.stateless_uniform(x.shape, seed + i, dtype=tf.float64))

        return tf.while_loop(lambda i, _: i < 3, turn, (0, x))[1]

    given = [np.arange(24.0).reshape(6, 4), np.array([1, 2], np.int32)]
    graph, (out,) = split_outputs(loop, given, [3, 1, 2], AXES)
    assert graph.slices.differences == ()
    assert difference(loop(*given), out) == ""


def test_a_loop_reads_what_a_loop_before_it_has_written():
    scale = tf.Variable(0.0, dtype=tf.float64)

    @tf.function
    def loops(x):
        for _ in tf.range(3):
            scale.assign_add(1.0)
        for _ in tf.range(3):
            x = tf.tanh(x * scale)
        return x

    graph = split_source(loops, (X / 9,), [3, 1, 2])
    reads = [v for v, kind in enumerate(graph.op_types) if kind == "ReadVariableOp"]
    assert reads and all((graph.edge_dst == v).sum() > 1 for v in reads)  # for the variable and the loop before
    split = tfplace.apply(graph, tfplace.place(graph, placer="single", budget="1 evaluations", progress=False))
    out = split(tf.constant(X / 9))
    split.restore()
    scale.assign(0.0)
    assert difference(loops(X / 9), out) == ""


def test_a_loop_that_counts_its_turns_in_a_variable_stands_once():
    turns = tf.Variable(0)

    @tf.function
    def loop(x):
        def turn(i, value):
            turns.assign_add(1)
            return i + 1, tf.tanh(value + x)

        return tf.while_loop(lambda i, _: i < 3, turn, (0, x))[1]

    graph = split_source(loop, (X / 9,), [3, 1, 2])
    split = tfplace.apply(graph, tfplace.place(graph, placer="single", budget="1 evaluations", progress=False))
    out = split(tf.constant(X / 9))
    split.restore()
    assert int(turns) == 3
    assert difference(loop(X / 9), out) == ""


def test_a_branch_that_all_slices_take():
    @tf.function
    def choose(x, flag):
        return tf.cond(flag > 0, lambda: tf.tanh(x), lambda: tf.zeros_like(x) - 1.0)

    for flag in (1.0, -1.0):
        _, (out,) = split_outputs(choose, [X, np.array(flag)], 3, AXES)
        assert difference(choose(X, tf.constant(flag, tf.float64)), out) == ""


def test_sizes_that_no_slice_can_have_stay_those_of_the_batch():
    """Such as the number of pairs of examples."""
    pairs = tf.function(lambda x: tf.reduce_sum(tf.reshape(x @ tf.transpose(x), [x.shape[0] ** 2]) ** 2))
    _, (out,) = split_outputs(pairs, [X], [3, 1, 2], {0: 0})
    assert difference(pairs(X), out) == ""


@pytest.mark.parametrize("slices", [0, -1, True, 7, 2.0, "2", [], [3, 2], [6, 0], [3, True, 2], [7, -1]], ids=repr)
def test_slices_that_a_batch_does_not_have_are_refused(slices):
    with pytest.raises(InputError) as caught:
        split_source(step, (X, W), slices, batch_axis=AXES)
    given = str(slices) if not isinstance(slices, list) else str(sum(slices))
    assert given in caught.value.received or repr(slices) in caught.value.received


def test_an_input_without_the_batch_names_itself_and_the_way_out():
    error = refused(step, (X, W), 2)
    assert "input 1" in error.received
    assert "6 examples along axis 0" in error.expected
    assert "{1: None}" in error.hint


def test_a_step_that_takes_one_batch_size_says_so():
    state = tf.Variable(np.zeros((6, 3)))
    added = tf.function(lambda x: tf.reduce_sum(state + x))
    assert "6 examples and not" in refused(added, (X,), 2).received


def test_a_size_at_which_the_step_is_another_program_is_no_obstacle():
    def other_at_three(x):
        return tf.reduce_sum(tf.exp(x) if x.shape[0] == 3 else tf.square(x) * 2.0)

    _, (out,) = split_outputs(tf.function(other_at_three), [X], 2, {0: 0})
    assert difference(other_at_three(tf.constant(X)), out) == ""


def test_constants_too_large_to_fold_with_twice_the_batch_are_no_obstacle():
    import keras

    length, classes = 50, 4
    inputs = keras.Input((length,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Dense(classes)(keras.layers.Embedding(9, 4)(inputs)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    examples = 100 * 1024 // 4 // length  # whose weights, a float32 each, Grappler just folds (kMaxConstantSize)
    x = np.zeros((examples, length), np.int32)
    assert split_source(model, (x, x), [examples]).slices.sizes == (examples,)


def test_an_input_of_a_dictionary_is_called_by_its_key():
    named = tf.function(lambda given: tf.reduce_sum(given["x"]) * given["scale"])
    assert "input 0 ('scale')" in refused(named, ({"x": X, "scale": np.array(2.0)},), 2, batch_axis={1: 0}).received


def test_a_scalar_input_is_refused_unless_all_slices_get_it():
    scaled = tf.function(lambda x, a: tf.reduce_sum(x) * a)
    assert "input 1" in refused(scaled, (X, np.array(2.0)), 2).received
    _, (out,) = split_outputs(scaled, [X, np.array(2.0)], 2, AXES)
    assert difference(scaled(X, tf.constant(2.0, tf.float64)), out) == ""


def test_a_step_over_no_batch_is_refused():
    assert "unknown size" in refused(step, (X, W), 2, batch_axis={0: None, 1: None}).received


def test_a_batch_of_unknown_size_is_refused():
    error = refused(tf.function(tf.reduce_sum), (tf.TensorSpec((None, 3), tf.float64),), 2)
    assert "unknown size" in error.received


def test_a_function_of_one_batch_size_is_refused():
    fixed = tf.function(lambda x: tf.reduce_sum(x) + 1, input_signature=[tf.TensorSpec((6, 3), tf.float64)])
    with pytest.raises(SourceError):
        split_source(fixed, (X,), 2)


@pytest.mark.parametrize("axes", [-1, True, "0", {5: 0}, {0: -1}, {"x": 0}], ids=str)
def test_what_is_no_batch_axis_is_refused(axes):
    assert "batch_axis" in refused(step, (X, W), 2, batch_axis=axes).received
