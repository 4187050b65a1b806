"""Phases of a placement: on each device one after the other, with the numbers of a step without them."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution.pipelines import DEVICES, pipeline
from tfplace.errors import ApplyError
from tfplace.execution.devices import canonical
from tfplace.execution.phases import phase_waits
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running
from tfplace.measurement.backends.stepstats import read_stats
from tfplace.testing import make_graph

ORDERS = ["gpipe", "1f1b"]
BY_PATH = "critical_path"
RNG = np.random.default_rng(0)
BATCH = RNG.random((16, 6), np.float32), RNG.integers(3, size=16).astype(np.int32)


def model_of(*layers):
    import keras

    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(3, name="last")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.optimizer.build(model.trainable_variables)
    return model


def dense():
    import keras

    layers = keras.layers
    norm = layers.LayerNormalization(name="second")  # has constants that wait for all slices
    return model_of(layers.Dense(8, "tanh", name="first"), norm, layers.Dense(8, "tanh", name="third"))


def looping():
    import keras

    class Looping(keras.layers.Layer):
        def call(self, x):
            return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h)), (0, x))[1]

    return model_of(Looping(name="first"), keras.layers.Dense(8, name="second"))


def branching():
    import keras

    class Branching(keras.layers.Layer):
        def build(self, shape):
            self.gate = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x):
            return tf.cond(self.gate < 1, lambda: x * 2.0, lambda: x * 3.0)

    return model_of(keras.layers.Dense(8, name="first"), Branching(name="second"))


KINDS = {"dense": dense, "loops": looping, "branches": branching}
"""What is in the first stage -> builder of the model."""

FIRST_STAGE = ("first", "second")


def built(kind):
    """The model of a kind with the weights that it always begins with."""
    import keras

    keras.utils.set_random_seed(0)
    return KINDS[kind]()


def training(model, placement=None, steps=3):
    """Losses of some steps, and the weights after them: placed, or of the plain step without a placement."""
    placed = tfplace.apply(tfplace.extract(model, BATCH, slices=4), placement) if placement else None
    step = placed or tf.function(model.train_step)
    losses = [float(step(tuple(map(tf.constant, BATCH)))["loss"]) for _ in range(steps)]
    if placed:
        assert placed.actual().moved == () or all("control flow" in m.reason for m in placed.actual().moved)
        placed.restore()
    return losses, model.get_weights()


def traced(graph, placement, waits):
    """Op -> when it began and when it ended in a step, in seconds."""
    backend = LocalDevices(inter_op=4)
    program = StepGraph(graph)
    program.place({op: canonical(device) for op, device in placement.devices.items()}, waits)
    running = Running(program, backend, None)
    try:
        running()
        stats = read_stats(running.traced())
    finally:
        running.close()
    out = {}
    for name, began, ended in zip(stats.names, stats.start_s.tolist(), stats.finish_s.tolist(), strict=True):
        start, finish = out.get(name, (began, ended))
        out[name] = min(start, began), max(finish, ended)
    return out


def waits_of(graph, placement):
    return phase_waits(graph, placement.op_device, placement.phases, [canonical(device) for device in DEVICES])


# ---- what waits for what ---------------------------------------------------------------------------------------------


def test_a_border_waits_for_the_ends_of_a_phase_and_holds_back_the_beginnings_of_the_next():
    graph = make_graph(dict.fromkeys("abcdef", 4), ["a -> b", "c -> d", "e -> f"])
    on, phase = np.zeros(6, np.int32), np.array([0, 0, 3, 3, 5, -1])
    waits = phase_waits(graph, on, phase, ["CPU:0"])
    first, second = waits.joints
    assert waits.after == {first: ("b",), "c": (first,), second: (first, "d"), "e": (second,)}


def test_devices_do_not_wait_for_one_another():
    graph = make_graph(dict.fromkeys("abcd", 4))
    waits = phase_waits(graph, np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), ["CPU:0", "CPU:1"])
    here, there = waits.joints
    assert waits.joints == {here: "CPU:0", there: "CPU:1"}
    assert waits.after == {here: ("a",), "b": (here,), there: ("c",), "d": (there,)}


def test_what_would_wait_for_itself_is_refused():
    graph = make_graph({"a": 4, "b": 4}, ["a -> b"])
    with pytest.raises(ApplyError, match=r"'a' .*phase 1 on CPU:0.* 'b'"):
        phase_waits(graph, np.zeros(2, np.int32), np.array([1, 0]), ["CPU:0"])


def test_a_circle_through_another_device_is_refused():
    graph = make_graph(dict.fromkeys("abcd", 4), ["a -> b", "c -> d"])
    with pytest.raises(ApplyError, match="needs it"):  # a after d, c after b
        phase_waits(graph, np.array([0, 1, 1, 0]), np.array([1, 0, 1, 0]), DEVICES)


def test_a_circle_by_a_later_turn_of_a_loop_is_refused():
    types = {"enter": "Enter", "merge": "Merge", "exit": "Exit", "later": "Enter", "turn": "NextIteration"}
    edges = ["enter -> merge", "merge -> exit", "a -> later", "later -> turn", "turn => merge"]
    graph = make_graph(dict.fromkeys(["enter", "merge", "exit", "a", "later", "turn"], 4), edges, types=types)
    with pytest.raises(ApplyError, match=r"'a' .* 'exit'"):
        phase_waits(graph, np.zeros(6, np.int32), np.array([0, 0, 0, 1, -1, -1]), ["CPU:0"])


def test_a_loop_is_as_one_op():
    types = {"enter": "Enter", "merge": "Merge", "switch": "Switch", "turn": "NextIteration", "exit": "Exit"}
    edges = ["a -> enter", "enter -> merge", "merge -> switch", "switch -> turn", "switch -> exit", "exit -> b"]
    edges.append("turn => merge")
    graph = make_graph(dict.fromkeys(["a", *types, "b"], 4), edges, types=types)
    waits = phase_waits(graph, np.zeros(7, np.int32), np.array([0, 1, 1, 1, 1, 1, 2]), ["CPU:0"])
    first, second = waits.joints
    assert waits.after == {first: ("a",), "enter": (first,), second: (first, "exit"), "b": (second,)}


def test_a_loop_of_several_phases_begins_with_its_first_and_ends_with_its_last():
    types = {"enter": "Enter", "merge": "Merge", "exit": "Exit", "later": "Enter", "turn": "NextIteration"}
    edges = ["a -> enter", "enter -> merge", "merge -> exit", "b -> later", "later -> turn", "turn => merge"]
    graph = make_graph(dict.fromkeys(["a", "enter", "merge", "exit", "b", "later", "turn", "c"], 4), edges, types=types)
    waits = phase_waits(graph, np.zeros(8, np.int32), np.array([0, 1, 1, 1, 0, 2, 2, 3]), ["CPU:0"])
    first, second, third = waits.joints
    assert waits.after == {
        **{first: ("a", "b"), "enter": (first,), "later": (first,)},
        **{second: (first,), third: (second, "exit"), "c": (third,)},
    }


def test_nothing_waits_for_a_branch_but_by_its_merge():
    types = {"switch": "Switch", "merge": "Merge"}
    edges = ["a -> switch", "switch -> then", "switch -> else", "then -> merge", "else -> merge"]
    graph = make_graph(dict.fromkeys(["a", "switch", "then", "else", "merge", "b"], 4), edges, types=types)
    waits = phase_waits(graph, np.zeros(6, np.int32), np.array([0, 0, 1, 1, 1, 2]), ["CPU:0"])
    first, second = waits.joints
    assert waits.after == {
        **{first: ("a",), second: (first, "merge")},
        **{"then": (first,), "else": (first,), "b": (second,)},
    }


def test_arguments_variables_and_copied_constants_do_not_wait():
    types = {"x": "Placeholder", "w": "VarHandleOp", "c": "Const"}
    graph = make_graph(
        dict.fromkeys(["a", *types, "b"], 4), ["x -> b", "w -> b", "c -> b"], types=types, replicable=["c"]
    )
    waits = phase_waits(graph, np.zeros(5, np.int32), np.array([0, 1, 1, 1, 1]), ["CPU:0"])
    (border,) = waits.joints
    assert waits.after == {border: ("a",), "b": (border,)}


# ---- what runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_training_has_the_numbers_of_the_whole_batch(kind):
    losses, weights = training(built(kind))
    for order in (*ORDERS, BY_PATH) if kind == "dense" else (ORDERS[1], BY_PATH):
        model = built(kind)
        graph = tfplace.extract(model, BATCH, slices=4)
        found, after = training(model, pipeline(graph, FIRST_STAGE, order))
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        for a, b in zip(after, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "order"),
    [*((kind, "1f1b") for kind in KINDS), ("dense", "gpipe"), ("dense", BY_PATH)],
)
def test_ops_start_after_the_phases_before_them(kind, order):
    graph = tfplace.extract(built(kind), BATCH, slices=4)
    placement = pipeline(graph, FIRST_STAGE, order)
    ran = traced(graph, placement, waits_of(graph, placement))
    for d in range(2):
        numbers = [
            v for v in np.flatnonzero((placement.op_device == d) & (placement.phases >= 0)) if not graph.replicable[v]
        ]
        times = {}
        for v in numbers:
            if graph.op_names[v] in ran:
                times.setdefault(int(placement.phases[v]), []).append(ran[graph.op_names[v]])
        numbers = sorted(times)
        assert len(numbers) > 8 if order == BY_PATH else numbers == list(range(8))
        for before, phase in pairwise(numbers):
            ended = max(finish for _, finish in times[before])
            assert ended <= min(start for start, _ in times[phase])


def test_the_critical_path_is_in_the_program_as_control_edges():
    graph = tfplace.extract(built("dense"), BATCH, slices=4)
    placement = pipeline(graph, FIRST_STAGE, BY_PATH)
    waits, program = waits_of(graph, placement), StepGraph(graph)
    program.place({op: canonical(device) for op, device in placement.devices.items()}, waits)
    inputs = inputs_of(program)
    assert len(waits.joints) > 16 and waits.joints.keys() <= inputs.keys()
    for op, after in waits.after.items():
        assert {f"^{name}" for name in after} <= {*inputs[op]}


def test_placing_again_leaves_nothing_of_other_phases():
    graph = tfplace.extract(built("dense"), BATCH, slices=4)
    program, fresh = StepGraph(graph), StepGraph(graph)
    free, first, second = (pipeline(graph, ("first",), order) for order in ("free", *ORDERS))
    devices = {op: canonical(device) for op, device in free.devices.items()}
    for placement in (first, second):
        program.place(devices, waits_of(graph, placement))
    fresh.place(devices, waits_of(graph, second))
    assert inputs_of(program) == inputs_of(fresh)
    program.place(devices)
    fresh.place(devices)
    assert inputs_of(program) == inputs_of(fresh)


def inputs_of(program):
    """Op -> its inputs, of ops that a step runs."""
    nodes = tf.compat.v1.graph_util.extract_sub_graph(program.tf_graph.as_graph_def(), list(program.graph.fetches)).node
    return {node.name: sorted(node.input) for node in nodes}


def test_a_placed_model_goes_from_one_order_to_another():
    model = built("dense")
    graph = tfplace.extract(model, BATCH, slices=4)
    placed = tfplace.apply(graph, pipeline(graph, ("first",), "gpipe"))
    batch = tuple(map(tf.constant, BATCH))
    orders = ["1f1b", "free", "gpipe"]
    losses = [float(placed(batch)["loss"])]
    for order in orders:
        placed.replace(pipeline(graph, ("first",), order))
        losses.append(float(placed(batch)["loss"]))
        assert placed.actual().moved == ()
    np.testing.assert_allclose(losses, training(built("dense"), steps=4)[0], rtol=1e-5)


def test_phases_against_the_graph_are_refused_before_anything_moves():
    graph = tfplace.extract(built("dense"), BATCH, slices=4)
    placement = pipeline(graph, ("first",), "1f1b")
    backwards = dataclasses.replace(placement, phases=np.where(placement.phases < 0, -1, 7 - placement.phases))
    placed = tfplace.apply(graph, placement)
    with pytest.raises(ApplyError, match="needs it"):
        placed.replace(backwards)
    assert placed.placement is placement
    placed(tuple(map(tf.constant, BATCH)))
