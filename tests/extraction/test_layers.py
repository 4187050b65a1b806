"""The layers of real models: what their authors called them, with gradients, optimizer and slots."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfplace
from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import ConstraintError
from tfplace.group.problem import formulate

ROWS = 4
BATCH = (tf.TensorSpec((ROWS, 8)), tf.TensorSpec((ROWS, 1)))


def functional(kit):
    """A layer that is called twice, one without weights, one with state of its own, and a model within."""
    inputs = kit.Input((8,))
    x = kit.layers.Dense(8, activation="relu", name="block1")(inputs)
    x = kit.layers.BatchNormalization(name="norm")(x)
    shared = kit.layers.Dense(8, name="shared")
    x = kit.layers.ReLU(name="cut")(shared(shared(x)))
    encoder = kit.Sequential([kit.layers.Dense(8, name="dense"), kit.layers.Dense(4, name="narrow")], name="encoder")
    return kit.Model(inputs, kit.layers.Dense(1, name="head")(encoder(x)), name="net")


NAMES = ["block1", "norm", "shared", "cut", "encoder", "encoder/dense", "encoder/narrow", "head"]


def compiled(model, optimizer="adam", **settings):
    model.compile(optimizer, "mse", metrics=["mae"], **settings)
    return model


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def graph(request, logical_cpus):
    kit, settings = (keras, {"jit_compile": False}) if request.param == "keras" else (tf_keras, {})
    return tfplace.extract(compiled(functional(kit), **settings), BATCH)


def ops(graph, layer):
    return {graph.op_names[v] for v in graph.layers[layer]}


def test_names_are_those_of_the_model_in_the_order_of_its_forward_pass(graph):
    assert list(graph.layers) == NAMES


def test_an_outer_layer_has_the_ops_of_those_within(graph):
    within = {*graph.layers["encoder/dense"].tolist(), *graph.layers["encoder/narrow"].tolist()}
    assert within == {*graph.layers["encoder"].tolist()}


def test_every_variable_of_a_layer_and_its_slots_are_in_it(graph):
    """All names of Keras tell the layer: "block1/kernel", "adam/block1_kernel_momentum", "Adam/m/block1/kernel"."""
    words = {"block1": "block1", "norm": "norm", "shared": "shared", "encoder/dense": "dense", "head": "head"}
    for layer, word in words.items():
        mine = {v.op for v in graph.variables if word in v.name}
        assert len(mine) >= 6
        assert mine <= {*graph.layers[layer].tolist()}


def test_what_reads_or_writes_a_layers_variables_is_in_it(graph):
    layer_of = {v: name for name, members in graph.layers.items() for v in members.tolist()}
    for variable in graph.variables:
        if variable.op in layer_of:
            bound = np.flatnonzero(graph.resource == graph.resource[variable.op])
            assert {layer_of[v] for v in bound.tolist()} == {layer_of[variable.op]}


def test_optimizer_ops_are_in_the_layer_whose_weights_they_update(graph):
    """Only what all weights share is in none: the step's number and the learning rate."""
    inside = {v for members in graph.layers.values() for v in members.tolist()}
    updates = {v for v, name in enumerate(graph.op_names) if re.match(r"adam(_\d+)?/", name.lower())}
    shared = {"iteration", "learning_rate"}
    bonds = {int(graph.resource[v.op]) for v in graph.variables if v.name.rpartition("/")[2] in shared}
    left = {v for v in updates - inside if int(graph.resource[v]) not in bonds and not graph.replicable[v]}
    assert not left
    assert len(updates & inside) > 100


def test_loss_metrics_and_batch_are_in_no_layer(graph):
    inside = {graph.op_names[v] for members in graph.layers.values() for v in members.tolist()}
    assert not {"data", "data_1"} & inside
    assert not [name for name in inside if "mse" in name or "mean_squared_error" in name]
    metrics = {v.op for v in graph.variables if v.name.rpartition("/")[2] in ("total", "count")}
    assert metrics
    assert not metrics & {graph.index[name] for name in inside}


def test_calls_of_a_shared_layer_are_one_layer(graph):
    kinds = [graph.op_types[v] for v in graph.layers["shared"]]
    assert kinds.count("BiasAdd") == 2
    assert kinds.count("BiasAddGrad") == 2


def test_a_graph_from_a_file_has_the_same_layers(graph, tmp_path):
    graph.save(tmp_path / "graph.npz")
    again = OpGraph.load(tmp_path / "graph.npz")
    assert {name: v.tolist() for name, v in again.layers.items()} == {n: v.tolist() for n, v in graph.layers.items()}


def test_numbers_that_keras_gives_to_layers_stay():
    keras.utils.clear_session()
    inputs = x = keras.Input((8,))
    for _ in range(3):
        x = keras.layers.ReLU()(keras.layers.Dense(8)(x))
    model = compiled(keras.Model(inputs, keras.layers.Dense(1)(x)), jit_compile=False)
    names = ["dense", "re_lu", "dense_1", "re_lu_1", "dense_2", "re_lu_2", "dense_3"]
    assert list(tfplace.extract(model, BATCH).layers) == names
    assert list(tfplace.extract(model, BATCH[:1], training=False).layers) == names


class Block(keras.layers.Layer):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.up = keras.layers.Dense(16, name="up")
        self.down = keras.layers.Dense(8, name="down")

    def call(self, x):
        with tf.name_scope("inner"):
            return x + self.down(tf.nn.relu(self.up(x)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="sub")
        self.blocks = [Block(name=f"block_{i}") for i in range(2)]
        self.head = keras.layers.Dense(1, name="head")

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_layers_of_subclassed_models():
    model = Subclassed()
    model(tf.zeros((ROWS, 8)))
    layers = tfplace.extract(compiled(model, "sgd", jit_compile=False), BATCH).layers
    within = [f"block_{i}{part}" for i in range(2) for part in ("", "/up", "/down")]
    assert list(layers) == [*within, "head"]
    assert len(layers["block_0"]) > len(layers["block_0/up"]) + len(layers["block_0/down"])


def test_loops_are_in_the_layer_that_runs_them():
    inputs = keras.Input((5, 8))
    x = keras.layers.LSTM(4, return_sequences=True, name="first")(inputs)
    x = keras.layers.LSTM(4, name="second")(x)
    model = compiled(keras.Model(inputs, keras.layers.Dense(1, name="head")(x)), jit_compile=False)
    graph = tfplace.extract(model, (tf.TensorSpec((ROWS, 5, 8)), BATCH[1]))
    assert list(graph.layers) == ["first", "first/lstm_cell", "second", "second/lstm_cell", "head"]
    inside = {v for name in ("first", "second") for v in graph.layers[name].tolist()}
    assert {*np.flatnonzero(graph.trips > 1).tolist()} <= inside


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Adafactor,
        lambda: keras.optimizers.Adam(global_clipnorm=1.0, use_ema=True),
        lambda: keras.optimizers.SGD(momentum=0.9, gradient_accumulation_steps=2),
    ],
    ids=["factored moments", "averages of weights", "accumulated gradients"],
)
def test_all_of_an_optimizers_state_is_in_the_layer_of_the_weight(optimizer):
    """But its step, its learning rate, and constants of a matrix's factored moments that nothing writes."""
    net = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, name="wide"), keras.layers.Dense(1, name="head")])
    graph = tfplace.extract(compiled(net, optimizer(), jit_compile=False), BATCH)
    for layer in ("wide", "head"):
        mine = {v.op for v in graph.variables if layer in v.name}
        assert len(mine) >= 4
        assert mine <= {*graph.layers[layer].tolist()}


def test_recurrent_layers_of_tf_keras_whose_gradients_are_functions_without_their_name():
    layers = [tf_keras.layers.LSTM(4, name="first", return_sequences=True), tf_keras.layers.GRU(4, name="second")]
    model = tf_keras.Sequential([*layers, tf_keras.layers.Dense(1, name="head")])
    model.build((ROWS, 5, 8))
    graph = tfplace.extract(compiled(model), (tf.TensorSpec((ROWS, 5, 8)), BATCH[1]))
    assert list(graph.layers) == ["first", "second", "head"]
    inside = {v for members in graph.layers.values() for v in members.tolist()}
    assert {*np.flatnonzero(graph.trips > 1).tolist()} <= inside
    for layer in ("first", "second"):
        assert sum("gradients/while" in name for name in ops(graph, layer)) > 50


def test_a_file_without_names_of_variables_still_tells_layers(tmp_path):
    model = compiled(functional(keras), jit_compile=False)
    tfplace.extract(model, BATCH).save(tmp_path / "graph.meta")
    layers = tfplace.extract(tmp_path / "graph.meta").layers
    assert list(layers) == NAMES
    assert len(layers["head"]) > 50


def test_layers_of_a_function_over_a_model():
    net = functional(keras)
    optimizer = keras.optimizers.Adam()
    optimizer.build(net.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return loss

    graph = tfplace.extract(step, BATCH)
    assert list(graph.layers) == NAMES
    slots = {v.op for v in graph.variables if "head_kernel" in v.name}
    assert len(slots) == 2
    assert slots <= {*graph.layers["head"].tolist()}


class Linear(tf.Module):
    def __init__(self, name):
        super().__init__(name=name)
        with self.name_scope:
            self.weight = tf.Variable(tf.ones((8, 8)), name="weight")

    @tf.Module.with_name_scope
    def __call__(self, x):
        return x @ self.weight


def test_modules_and_scopes_of_a_function_without_keras():
    first, last = Linear("first"), Linear("last")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            h = first(x)
            with tf.name_scope("middle"):
                h = tf.nn.relu(h)
            with tf.name_scope("loss"):
                loss = tf.reduce_sum(last(h) ** 2)
        weights = [first.weight, last.weight]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)

    graph = tfplace.extract(step, BATCH[:1])
    assert list(graph.layers) == ["first", "middle", "last"]
    kinds = [graph.op_types[v] for v in graph.layers["last"]]
    assert {"MatMul", "ReadVariableOp", "AssignSubVariableOp", "Mul"} <= {*kinds}
    assert "gradient_tape/middle/ReluGrad" in ops(graph, "middle")


TOPOLOGY = Topology.preset("2xP100")


def formulated(graph, rules):
    return formulate(graph, TOPOLOGY, analytic_costs(graph, TOPOLOGY), rules)


def test_a_pinned_layer_is_there_with_all_its_ops(graph):
    problem = formulated(graph, Constraints(pin={"layer:encoder": "GPU:0", "layer:s*": "GPU:1"}))
    for layer, device in (("encoder", "GPU:0"), ("shared", "GPU:1")):
        members = [v for v in graph.layers[layer].tolist() if not graph.replicable[v]]
        where = problem.allowed[problem.grouping.unit_of[members]]
        assert (where == (np.array(TOPOLOGY.device_names) == device)).all()


def test_layers_may_be_forbidden_and_colocated(graph):
    problem = formulated(graph, Constraints(forbid={"layer:head": "CPU:0"}, colocate=[["layer:dense", "layer:norm"]]))
    unit_of = problem.grouping.unit_of
    head = [v for v in graph.layers["head"].tolist() if not graph.replicable[v]]
    assert not problem.allowed[unit_of[head]][:, TOPOLOGY.index("CPU:0")].any()
    both = [v for name in ("encoder/dense", "norm") for v in graph.layers[name].tolist() if not graph.replicable[v]]
    assert len({*unit_of[both].tolist()}) == 1


def test_a_layer_that_is_not_there_lists_near_ones(graph):
    with pytest.raises(ConstraintError) as error:
        formulated(graph, Constraints(pin={"layer:blok1": "GPU:0"}))
    assert "'layer:blok1', which matches no layer" in error.value.received
    assert "block1" in error.value.hint


def test_layers_that_share_a_weight_cannot_be_apart():
    inputs = keras.Input((8,))
    first = keras.layers.Dense(8, name="first")
    first.build((ROWS, 8))

    class Tied(keras.layers.Layer):
        def call(self, x):
            return x @ tf.transpose(first.kernel.value)

    x = keras.layers.ReLU(name="cut")(first(inputs))
    model = compiled(keras.Model(inputs, keras.layers.Dense(1, name="head")(Tied(name="tied")(x))), jit_compile=False)
    with pytest.raises(ConstraintError) as error:
        formulated(tfplace.extract(model, BATCH), Constraints(pin={"layer:first": "GPU:0", "layer:tied": "GPU:1"}))
    assert "pin 'layer:first' to 'GPU:0'" in error.value.received
    assert "pin 'layer:tied' to 'GPU:1'" in error.value.received
    assert "which variable 'first/kernel' binds" in error.value.received
