"""Variables of placed programs: moved in place, seen by everybody, and brought back."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution.net import DEVICES, X
from tests.placing import placement_on, random_placement
from tfplace.errors import ApplyError
from tfplace.execution import variables
from tfplace.execution.graph import FunctionGraph
from tfplace.execution.variables import backend_variable, device_of
from tfplace.extraction import tf_internals
from tfplace.group.colocation import colocate


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("again", [False, True])
def test_variables_go_back_when_placing_does_not_come_to_an_end(graph, net, again, error, monkeypatch):
    """Placed for the first time, or once more."""
    home = {v.name: device_of(v) for v in (net.w, net.b)}
    first, second = random_placement(graph, DEVICES, seed=0), random_placement(graph, DEVICES, seed=1)
    placed = tfplace.apply(graph, first) if again else None

    def fails(self, devices, waits):
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


def test_checkpoints_hold_the_placed_values(net, graph, tmp_path):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    placed(X)
    path = tf.train.Checkpoint(net=net).save(str(tmp_path / "c"))
    saved = net.w.numpy()
    placed(X)
    tf.train.Checkpoint(net=net).restore(path).assert_consumed()
    np.testing.assert_array_equal(net.w.numpy(), saved)
    assert int(placed(X)["calls"]) == 2


def test_variable_without_a_value_is_refused():
    with pytest.raises(ApplyError, match="a variable of TensorFlow"):
        backend_variable(object())


def test_a_move_that_fails_changes_nothing(net, graph, monkeypatch):
    net.train(X)
    copy, copies = variables.copied, []

    def full(variable, device):
        if copies:
            raise tf.errors.ResourceExhaustedError(None, None, "the device is full")
        copies.append(copy(variable, device))
        return copies[0]

    monkeypatch.setattr(variables, "copied", full)
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


@pytest.mark.parametrize("package", ["keras", "tf_keras", "sonnet"])
def test_variables_of_every_library_move(package):
    from tfplace.execution.variables import Variables

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


def test_pipelines_that_failed_while_they_were_made_are_no_readers(logical_cpus):
    variable = tf.Variable(1.0)

    def fails(_):
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing") as kept:
        tf.data.Dataset.range(3).map(fails)
    moved = variables.Variables({"v": variable})
    assert moved.move({"v": "CPU:1"}) == 1
    assert moved.restore() == 1
    assert kept.value  # its traceback keeps what is half made alive


@pytest.mark.usefixtures("real_gc")
def test_functions_frozen_for_the_collector_are_found_too(net, graph):
    net.predict(X)
    gc.freeze()
    try:
        tfplace.apply(graph, random_placement(graph, DEVICES[1:]))(X)
        np.testing.assert_allclose(net.predict(X), tf.matmul(X, net.w) + net.b, rtol=1e-6)
    finally:
        gc.unfreeze()
