"""tfplace.apply in one process: calls, re-placing, restoring, reading back, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution.net import DEVICES, Net, X
from tests.placing import placement_on, random_placement
from tfplace.errors import ApplyError, PlacementError
from tfplace.execution.variables import device_of
from tfplace.extraction import tf_internals
from tfplace.group.colocation import colocate


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


def test_a_table_stays_where_it_is_and_the_report_says_so():
    keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
    graph = tfplace.extract(tf.function(lambda words: tf.cast(table.lookup(words), tf.float32) * 2.0), (keys,))
    placement = placement_on(graph, DEVICES, np.full(colocate(graph).num_units, 2))
    placed = tfplace.apply(graph, placement)
    np.testing.assert_array_equal(placed(tf.constant(["b", "c"])), [4.0, -2.0])
    moved = {m.op: m for m in placed.actual().moved}
    assert len(moved) == 1 and all("not a variable" in m.reason and m.ran == "CPU:0" for m in moved.values())
    assert placed.actual().counts["CPU:2"] >= 2
    assert "not a variable" in placed.actual().summary()


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


def test_a_first_call_that_fails_does_not_hide_where_ops_run(net):
    graph = tfplace.extract(tf.function(lambda x: tf.debugging.check_numerics(x @ net.w, "here")), (X,))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError):
            placed(X * np.float32("nan"))
    placed(X)
    assert placed.actual().devices
    assert not any(moved.reason == "optimized away" for moved in placed.actual().moved)


@pytest.mark.parametrize("name", ["scatter_nd_add", "scatter_nd_sub", "scatter_nd_update", "scatter_nd_max"])
def test_a_variable_that_is_read_and_written_by_index(name):
    start = np.arange(24, dtype=np.float32).reshape(6, 4)
    table, rows = tf.Variable(start), tf.constant([[0], [1]])

    @tf.function
    def step(x):
        getattr(table, name)(rows, x)
        return table.gather_nd(rows)

    x = tf.fill((2, 4), 3.0)
    expected = step(x).numpy(), table.numpy()
    table.assign(start)
    graph = tfplace.extract(step, (x,))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    np.testing.assert_array_equal(placed(x), expected[0])
    np.testing.assert_array_equal(table, expected[1])
