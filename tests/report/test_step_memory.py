"""What a step needs of one device, and for what."""

import json

import keras
import pytest
import tensorflow as tf

import tfplace
from tests.cli.refusing import assert_refused
from tfplace.cli import PLACED, main
from tfplace.errors import UnknownNameError
from tfplace.group.slots import slots_of
from tfplace.report.step_memory import KINDS


def model(optimizer):
    inputs = keras.Input((64,))
    x = keras.layers.Dense(128, activation="relu", name="first")(inputs)
    x = keras.layers.BatchNormalization()(x)
    built = keras.Model(inputs, keras.layers.Dense(1, name="last")(x))
    built.compile(optimizer, "mse", jit_compile=False)
    built.optimizer.build(built.trainable_variables)
    return built, (tf.TensorSpec((32, 64)), tf.TensorSpec((32, 1)))


WEIGHTS = 4 * (64 * 128 + 128 + 2 * 128 + 128 + 1)
BATCH = 4 * (32 * 64 + 32)


@pytest.mark.parametrize(
    ("optimizer", "slots"), [("sgd", 0), ("adam", 2), ("adagrad", 1), ("rmsprop", 1), ("adamw", 2)]
)
def test_memory_is_told_by_what_it_is_for(optimizer, slots):
    graph = tfplace.extract(*model(optimizer))
    found = tfplace.memory(graph, "2xP100")
    assert tuple(found.by_kind) == KINDS
    assert sum(found.by_kind.values()) == found.peak_bytes
    assert found.by_kind["weights"] == WEIGHTS
    assert found.by_kind["optimizer slots"] == slots * WEIGHTS
    assert found.by_kind["other state"] >= 2 * 4 * 128  # moving means and variances, counters, metrics
    assert found.by_kind["batch"] == BATCH
    assert found.device == "GPU:0" and found.fits
    assert len(found.largest) == 10
    assert found.largest[0].size_bytes == 4 * 64 * 128
    assert all(held.kind in KINDS for held in found.largest)


def test_a_slot_belongs_to_the_weight_it_is_kept_for():
    graph = tfplace.extract(*model("adam"))
    name = {v.op: v.name for v in graph.variables}
    for slot, weight in slots_of(graph).items():
        assert "adam" in name[slot]
        assert name[weight].replace("/", "_") in name[slot].replace("/", "_")
    assert len(slots_of(graph)) == 12


def test_slots_of_an_op_that_updates_all_at_once():
    w, m = tf.Variable(tf.ones((4, 4))), tf.Variable(tf.zeros((4, 4)), trainable=False)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ w)
        tf.raw_ops.ResourceApplyMomentum(
            var=w.handle, accum=m.handle, lr=0.1, momentum=0.9, grad=tape.gradient(loss, w)
        )

    graph = tfplace.extract(step, (tf.TensorSpec((2, 4)),))
    assert len(slots_of(graph)) == 1


def test_what_cannot_be_on_the_device_is_elsewhere():
    found = tfplace.memory(tfplace.extract(*model("adam")), "2xP100", device="CPU:0")
    assert found.elsewhere_bytes == 0
    with pytest.raises(UnknownNameError):
        tfplace.memory(tfplace.extract(*model("adam")), "2xP100", device="GPU:7")


def test_the_command(tmp_path, capsys):
    path = tmp_path / "graph.npz"
    graph = tfplace.extract(*model("adam"))
    graph.save(path)
    assert main(["memory", str(path), "--topology=2xP100", "--json", "--quiet"]) == PLACED
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(tfplace.memory(graph, "2xP100").to_json()))
    assert main(["memory", str(path), "--topology=2xP100", "--device=CPU:0", "--quiet"]) == PLACED
    assert "weights" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ([], {"received": "0 models"}),
        (["gpt", "--topology=2xP100", "--device=GPU:9"], {"received": "GPU:9"}),
        (["no_such_model"], {"received": "no_such_model"}),
    ],
)
def test_bad_input(argv, fields):
    assert_refused(["memory", *argv], **fields)
