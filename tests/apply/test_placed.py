"""tfplace.apply in one process: calls, re-placing, restoring, reading back, and what is refused."""

import dataclasses
import gc
import json
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.placing import placement_on, random_placement
from tfplace.apply import variables
from tfplace.apply.graph import FunctionGraph
from tfplace.apply.variables import backend_variable, device_of
from tfplace.errors import ApplyError, PlacementError
from tfplace.extract import tf_internals
from tfplace.group.colocation import colocate

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.reshape(tf.range(6, dtype=tf.float32), (3, 2)) / 10, name="w")
        self.b = tf.Variable([0.5, -0.5], name="b")
        self.calls = tf.Variable(0, dtype=tf.int64, name="calls")
        self.train = tf.function(self._train)
        self.predict = tf.function(lambda x: x @ self.w + self.b)

    def _train(self, x, rate=0.1):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ self.w + self.b - 1.0))
        for variable, gradient in zip((self.w, self.b), tape.gradient(loss, (self.w, self.b)), strict=True):
            variable.assign_sub(rate * gradient)
        self.calls.assign_add(1)
        return {"loss": loss, "calls": self.calls.read_value()}


X = np.random.default_rng(0).random((4, 3), np.float32)


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def graph(net):
    return tfplace.extract(net.train, (X,))


def test_takes_and_returns_what_the_function_does(net, graph):
    other = Net()
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    for _ in range(3):
        mine, theirs = placed(X), other.train(X)
        assert set(mine) == {"loss", "calls"}
        np.testing.assert_allclose(mine["loss"], theirs["loss"], rtol=1e-6)
    assert int(net.calls) == 3
    np.testing.assert_allclose(net.w.numpy(), other.w.numpy(), rtol=1e-6)


def test_ops_and_variables_are_where_asked(net, graph):
    placement = random_placement(graph, DEVICES, seed=4)
    placed = tfplace.apply(graph, placement)
    placed(X)
    actual = tfplace.actual_placement(placed)
    assert actual.moved == ()
    assert len(actual.counts) >= 3
    asked = placement.devices
    assert all(asked[op] == device for op, device in actual.devices.items())
    captured = placed.graph.origin.flat
    for variable in (net.w, net.b, net.calls):
        inputs = dict(zip(map(id, captured.concrete.captured_inputs), captured.input_names[1:], strict=True))
        assert device_of(variable).endswith(asked[inputs[id(variable.handle)]])
    assert "0 ops ran elsewhere" in actual.summary()


def test_placing_again_traces_and_imports_nothing(net, graph, monkeypatch):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    placed(X)
    imports = []
    monkeypatch.setattr(tf_internals, "import_function_graph", lambda *a: imports.append(a))
    traces = net.train.experimental_get_tracing_count()
    before = dict(placed.actual().devices)
    for seed in range(1, 4):
        placed.replace(random_placement(graph, DEVICES, seed=seed))
        with pytest.raises(ApplyError, match="has not run yet"):
            placed.actual()
        placed(X)
        assert placed.actual().moved == ()
    assert placed.actual().devices != before
    assert net.train.experimental_get_tracing_count() == traces
    assert imports == []
    assert int(net.calls) == 4


def test_constants_are_copied_to_their_readers_and_found_again(graph):
    first, second = random_placement(graph, DEVICES, seed=0), random_placement(graph, DEVICES, seed=1)
    placed = tfplace.apply(graph, first)
    placed(X)
    copies = placed.actual().copies
    assert copies
    assert all(graph.replicable[graph.index[op]] for op in copies)
    nodes = len(placed._program._graph.devices.graph.get_operations())
    for placement in (second, first, second):
        placed.replace(placement)
    assert len(placed._program._graph.devices.graph.get_operations()) >= nodes
    placed.replace(first)
    placed(X)
    assert placed.actual().copies == copies


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("again", [False, True])
def test_variables_go_back_when_placing_does_not_come_to_an_end(graph, net, again, error, monkeypatch):
    """Placed for the first time, or once more."""
    home = {v.name: device_of(v) for v in (net.w, net.b)}
    first, second = random_placement(graph, DEVICES, seed=0), random_placement(graph, DEVICES, seed=1)
    placed = tfplace.apply(graph, first) if again else None

    def fails(self, devices):
        assert {v.name: device_of(v) for v in (net.w, net.b)} != home
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(FunctionGraph, "function", fails)
        with pytest.raises(error):
            placed.replace(second) if placed is not None else tfplace.apply(graph, first)
    assert {v.name: device_of(v) for v in (net.w, net.b)} == home
    if placed is not None:
        assert not placed.stands and "restored" in repr(placed)
        with pytest.raises(ApplyError, match="after restore"):
            placed(X)
        placed.replace(second)
        placed(X)
        placed.restore()


def test_functions_traced_before_see_the_moved_variables(net, graph):
    before = net.predict(X)
    net.train(X)
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    placed(X)
    for step in range(2, 5):
        np.testing.assert_allclose(net.predict(X), tf.matmul(X, net.w) + net.b, rtol=1e-6)
        assert not np.allclose(net.predict(X), before)
        net.train(X)  # the plain function, traced before: it trains the same variables
        assert int(net.calls) == step + 1
    placed.restore()
    np.testing.assert_allclose(net.predict(X), tf.matmul(X, net.w) + net.b, rtol=1e-6)
    assert net.train.experimental_get_tracing_count() == 1


def test_functions_frozen_for_the_collector_are_found_too(net, graph):
    net.predict(X)
    gc.freeze()
    try:
        tfplace.apply(graph, random_placement(graph, DEVICES[1:]))(X)
        np.testing.assert_allclose(net.predict(X), tf.matmul(X, net.w) + net.b, rtol=1e-6)
    finally:
        gc.unfreeze()


def test_old_storage_is_freed(net, graph):
    handle = weakref.ref(net.w.handle)
    everything_on = lambda d: placement_on(graph, DEVICES, np.full(colocate(graph).num_units, d))  # noqa: E731
    placed = tfplace.apply(graph, everything_on(2))
    gc.collect()
    assert handle() is None
    assert device_of(net.w).endswith("CPU:2")
    placed(X)
    placed.replace(everything_on(3))
    assert device_of(net.w).endswith("CPU:3")


def test_restore_brings_back_and_refuses_calls(net, graph):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES[1:]))
    placed(X)
    identity = net.w
    placed.restore()
    placed.restore()
    assert net.w is identity
    assert {device_of(v) for v in (net.w, net.b, net.calls)} == {device_of(tf.Variable(0.0))}
    with pytest.raises(ApplyError, match=r"after restore\(\).*replace"):
        placed(X)
    assert "restored" in repr(placed)
    placed.replace(random_placement(graph, DEVICES))
    assert int(placed(X)["calls"]) == 2


def on_device(graph, number):
    return placement_on(graph, DEVICES, np.full(colocate(graph).num_units, number))


def test_restore_brings_back_from_whatever_was_applied_before(net, graph):
    first = tfplace.apply(graph, on_device(graph, 2))
    second = tfplace.apply(graph, on_device(graph, 3))
    del first
    gc.collect()
    second(X)
    second.restore()
    assert {device_of(v)[-5:] for v in (net.w, net.b, net.calls)} == {"CPU:0"}


def test_a_program_whose_variables_another_has_moved_is_refused(net, graph):
    first = tfplace.apply(graph, on_device(graph, 2))
    same = tfplace.apply(graph, on_device(graph, 2))
    first(X), same(X)
    second = tfplace.apply(graph, on_device(graph, 3))
    for program in (first, same):
        with pytest.raises(ApplyError, match=r"to CPU:3.*on CPU:2.*replace\(placed.placement\)"):
            program(X)
    assert int(second(X)["calls"]) == 3
    second.restore()
    with pytest.raises(ApplyError, match="to CPU:0"):
        first(X)
    first.replace(first.placement)
    assert int(first(X)["calls"]) == int(same(X)["calls"]) - 1 == 4


def test_homes_are_forgotten_with_their_variables():
    gc.collect()
    before = len(variables._homes)
    variable = tf.Variable(1.0)
    mover = variables.Variables({"w": variable})
    mover.move({"w": "CPU:1"})
    assert variables.home_of(variable).endswith("CPU:0") and len(variables._homes) == before + 1
    del variable, mover
    gc.collect()
    assert len(variables._homes) == before


def test_a_file_of_a_placement_is_applied(graph, tmp_path):
    placement = random_placement(graph, DEVICES)
    path = tmp_path / "placement.json"
    placement.save(path)
    assert tfplace.apply(graph, str(path)).placement.devices == placement.devices
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "ops": dict(reversed(data["ops"].items()))}))
    assert tfplace.apply(graph, path).placement.devices == placement.devices
    with pytest.raises(PlacementError, match=r"nowhere\.json"):
        tfplace.apply(Net().train, "nowhere.json", (X,))


def test_checkpoints_hold_the_placed_values(net, graph, tmp_path):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    placed(X)
    path = tf.train.Checkpoint(net=net).save(str(tmp_path / "c"))
    saved = net.w.numpy()
    placed(X)
    tf.train.Checkpoint(net=net).restore(path).assert_consumed()
    np.testing.assert_array_equal(net.w.numpy(), saved)
    assert int(placed(X)["calls"]) == 2


def test_devices_can_be_renamed_and_shared(net, graph):
    names = ["GPU:0", "GPU:1"]
    placed = tfplace.apply(graph, random_placement(graph, names), devices={"GPU:0": "CPU:3", "GPU:1": "/device:CPU:1"})
    placed(X)
    assert set(placed.actual().counts) == set(names)
    assert placed.actual().moved == ()
    assert {d[-5:] for d in placed.devices.values()} == {"CPU:3", "CPU:1"}


def test_missing_device_is_refused_with_what_there_is(graph):
    with pytest.raises(ApplyError, match=r"'GPU:0'.*CPU:0, CPU:1, CPU:2, CPU:3.*devices=\{"):
        tfplace.apply(graph, random_placement(graph, ["GPU:0", "CPU:0"]))
    with pytest.raises(ApplyError, match="'nonsense/7'"):
        tfplace.apply(graph, random_placement(graph, DEVICES), devices={"CPU:1": "nonsense/7"})


def test_unused_devices_need_not_exist(graph):
    placement = placement_on(graph, ["CPU:1", "GPU:7"], np.zeros(colocate(graph).num_units, int))
    tfplace.apply(graph, placement)(X)


def test_placement_of_another_graph_is_refused(graph):
    other = tfplace.extract(tf.function(lambda x: tf.reduce_sum(tf.sin(x))), (X,))
    with pytest.raises(PlacementError, match="ops only in the"):
        tfplace.apply(graph, random_placement(other, DEVICES))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    with pytest.raises(PlacementError, match="ops only in the"):
        placed.replace(random_placement(other, DEVICES))


def test_parting_a_resource_is_refused(graph):
    placement = placement_on(graph, DEVICES, np.zeros(colocate(graph).num_units, int))
    bonded = np.flatnonzero(graph.resource == graph.resource.max())
    devices = placement.op_device.copy()
    devices[bonded[-1]] = 1
    with pytest.raises(PlacementError, match="same resource"):
        tfplace.apply(graph, dataclasses.replace(placement, op_device=devices))


def test_a_graph_without_a_program_is_refused(graph):
    with pytest.raises(ApplyError, match="without a TensorFlow program"):
        tfplace.apply(dataclasses.replace(graph, origin=None), random_placement(graph, DEVICES))


def test_xla_is_refused():
    step = tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True)
    graph = tfplace.extract(step, (X,))
    with pytest.raises(ApplyError, match="jit_compile=False"):
        tfplace.apply(graph, random_placement(graph, DEVICES))


def test_a_table_stays_where_it_is_and_the_report_says_so():
    keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
    graph = tfplace.extract(tf.function(lambda words: tf.cast(table.lookup(words), tf.float32) * 2.0), (keys,))
    placement = placement_on(graph, DEVICES, np.full(colocate(graph).num_units, 2))
    placed = tfplace.apply(graph, placement)
    np.testing.assert_array_equal(placed(tf.constant(["b", "c"])), [4.0, -2.0])
    moved = {m.op: m for m in placed.actual().moved}
    assert len(moved) == 1 and all("no variable" in m.reason and m.ran == "CPU:0" for m in moved.values())
    assert placed.actual().counts["CPU:2"] >= 2
    assert "no variable" in placed.actual().summary()


def test_nested_arguments_and_keywords():
    @tf.function
    def step(inputs, scale):
        return [inputs["a"] * scale, (inputs["b"], None)]

    spec = tf.TensorSpec((None,), tf.float32)
    concrete = step.get_concrete_function({"a": spec, "b": spec}, scale=tf.TensorSpec((), tf.float32))
    graph = tfplace.extract(concrete)
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    first, (second, nothing) = placed({"a": tf.ones(2), "b": tf.zeros(3)}, scale=tf.constant(3.0))
    assert nothing is None
    np.testing.assert_array_equal(first, [3.0, 3.0])
    np.testing.assert_array_equal(second, np.zeros(3))


def test_variable_without_a_value_is_refused():
    with pytest.raises(ApplyError, match="a variable of TensorFlow"):
        backend_variable(object())


def test_a_move_that_fails_changes_nothing(net, graph, monkeypatch):
    net.train(X)
    copy, copies = variables._copy, []

    def full(variable, device):
        if copies:
            raise tf.errors.ResourceExhaustedError(None, None, "the device is full")
        copies.append(copy(variable, device))
        return copies[0]

    monkeypatch.setattr(variables, "_copy", full)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        tfplace.apply(graph, placement_on(graph, DEVICES, np.full(colocate(graph).num_units, 2)))
    monkeypatch.undo()
    assert len(copies) == 1
    assert_trained_together(net)
    assert {device_of(v)[-5:] for v in (net.w, net.b, net.calls)} == {"CPU:0"}


def test_a_move_that_is_interrupted_leaves_functions_on_their_variables(net, graph, monkeypatch):
    net.train(X)
    swap, swapped = tf_internals.swap_handle, []

    def interrupted(variable, new):
        if swapped:
            raise KeyboardInterrupt
        swap(variable, new)
        swapped.append(variable)

    monkeypatch.setattr(tf_internals, "swap_handle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tfplace.apply(graph, placement_on(graph, DEVICES, np.full(colocate(graph).num_units, 2)))
    monkeypatch.undo()
    assert_trained_together(net)


def assert_trained_together(net):
    """What the function traced before writes is what Python reads."""
    before = [v.numpy() for v in (net.w, net.b)]
    net.train(X)
    assert int(net.calls) == 2
    assert not any(np.allclose(v, b) for v, b in zip((net.w, net.b), before, strict=True))
    assert net.train.experimental_get_tracing_count() == 1


def test_a_first_call_that_fails_does_not_hide_where_ops_run(net):
    graph = tfplace.extract(tf.function(lambda x: tf.debugging.check_numerics(x @ net.w, "here")), (X,))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError):
            placed(X * np.float32("nan"))
    placed(X)
    assert placed.actual().devices
    assert not any(moved.reason == "optimised away" for moved in placed.actual().moved)


@pytest.mark.parametrize("package", ["keras", "tf_keras", "sonnet"])
def test_variables_of_every_library_move(package):
    from tfplace.apply.variables import Variables

    if package == "sonnet":
        import sonnet as snt

        layer = snt.Linear(2)
        layer(X)
        held = [layer.w, layer.b]
    else:
        import importlib

        layer = importlib.import_module(package).layers.Dense(2)
        layer.build((None, 3))
        held = [layer.kernel, layer.bias]
    values = [np.asarray(v) for v in held]
    mover = Variables({str(i): v for i, v in enumerate(held)})
    assert mover.move({"0": "CPU:1", "1": "CPU:3"}) == 2
    assert mover.move({"0": "CPU:1", "1": "CPU:3"}) == 0
    assert [device_of(v)[-5:] for v in held] == ["CPU:1", "CPU:3"]
    for variable, value in zip(held, values, strict=True):
        np.testing.assert_array_equal(np.asarray(variable), value)
    held[0].assign(tf.ones((3, 2)))
    assert mover.restore() == 2
    np.testing.assert_array_equal(np.asarray(held[0]), np.ones((3, 2)))
    assert {device_of(v)[-5:] for v in held} == {"CPU:0"}
