"""From a Keras model to a placed `fit` and its report, as a user would write it."""

import numpy as np

import tfplace
from tfplace.keras import PlacementCallback


def _model():
    import keras
    from keras import layers

    keras.utils.set_random_seed(3)
    x = inputs = keras.Input((10, 10, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 3, use_bias=False)(x)))
    x = layers.Concatenate()([layers.Conv2D(4, k, padding="same", activation="relu")(x) for k in (1, 3)])
    outputs = layers.Dense(3)(layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x)))
    model = keras.Model(inputs, outputs, name="small")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def _data():
    rng = np.random.default_rng(0)
    return rng.random((30, 10, 10, 3), np.float32), rng.integers(3, size=30)


def test_fit_on_four_devices_equals_fit_on_one(logical_cpus, capsys):
    x, y = _data()
    histories = []
    call = PlacementCallback(placer="round_robin", budget=20)
    for callbacks in ([], [call]):
        history = _model().fit(x, y, batch_size=8, epochs=3, validation_split=0.2, callbacks=callbacks, verbose=0)
        histories.append(history.history)
    for name in histories[0]:
        np.testing.assert_allclose(histories[1][name], histories[0][name], rtol=5e-3, atol=5e-3, err_msg=name)
    assert len(call.actual.counts) == 4
    assert call.actual.moved == ()
    text = capsys.readouterr().out
    assert "CPU:2" in text and "0 ops ran elsewhere" in text


def test_default_placer_trains_and_is_never_worse_than_one_device(logical_cpus):
    x, y = _data()
    call = PlacementCallback(budget="1s", verbose=0)
    history = _model().fit(x, y, batch_size=8, epochs=2, callbacks=[call], verbose=0).history
    assert history["loss"][1] < history["loss"][0] * 1.05
    op_by_op = [f"single {cpu}" for cpu in logical_cpus]
    single_s = min(call.placement.baselines[name].step_s for name in op_by_op)
    assert call.placement.cost.step_s <= single_s * (1 + 1e-9)


def test_extract_place_apply_by_hand(logical_cpus):
    x, y = (part[:8] for part in _data())
    model = _model()
    graph = tfplace.extract(model, (x, y))
    placement = tfplace.place(graph, placer="round_robin", budget=10)
    placed = tfplace.apply(graph, placement)
    losses = [float(placed((x, y))["loss"]) for _ in range(8)]
    assert losses[-1] < losses[0]
    assert len(tfplace.actual_placement(placed).counts) == 4
    placed.restore()
    assert int(model.optimizer.iterations) == 8
