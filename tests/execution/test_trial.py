"""A step that nobody insists on compiling: a few steps each way, and the faster from then on."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.execution.test_phases import BATCH, dense
from tfplace.core.compilation import AUTO, NONE, XLA
from tfplace.execution import trial as trial_module
from tfplace.execution.trial import STEPS, Trial
from tfplace.keras import PlacementCallback


@dataclasses.dataclass(frozen=True)
class Told:
    compile: str = AUTO


class Clocked:
    """Stands for a placed program whose steps take told seconds, the first of each way longer."""

    def __init__(self, took):
        self.took, self.now, self.way, self.placement = took, 0.0, XLA, Told()
        self.ways, self.clusters, self.graph = [], "some", SimpleNamespace(op_types=("MatMul",))

    def replace(self, placement, *, compile):
        self.placement, self.way = placement, compile

    def __call__(self):
        self.now += self.took[self.way] * (1 if self.way in self.ways else 100)
        self.ways.append(self.way)
        return []


@pytest.mark.parametrize(
    ("compiled_s", "plain_s", "chosen"),
    [(1.0, 2.0, XLA), (2.0, 1.0, NONE), (1.05, 1.0, XLA)],
    ids=["xla", "none", "near"],
)
def test_it_goes_on_the_faster_way(monkeypatch, compiled_s, plain_s, chosen):
    placed = Clocked({XLA: compiled_s, NONE: plain_s})
    monkeypatch.setattr(trial_module.time, "perf_counter", lambda: placed.now)
    trial = Trial.of(placed, AUTO)
    for _ in range(2 * STEPS + 4):
        step = placed if trial.told else trial
        step()
    assert placed.ways == [XLA] * (STEPS + 1) + [NONE] * (STEPS + 1) + [chosen] * 2
    assert placed.placement.compile == chosen


def test_nothing_is_tried_where_the_way_is_told_or_kernels_draw_numbers():
    placed = Clocked({XLA: 1.0, NONE: 1.0})
    assert Trial.of(placed, XLA) is None
    placed.graph.op_types = ("MatMul", "RandomUniform")
    assert Trial.of(placed, AUTO) is None


def test_fit_trains_as_without_a_trial(capsys):
    x, y = (np.concatenate([part] * 3 * STEPS) for part in BATCH)
    weights = {}
    for name, callbacks in {"plain": [], "placed": [PlacementCallback(budget=5)]}.items():
        keras.utils.set_random_seed(1)
        model = dense()
        model.compile(keras.optimizers.SGD(0.01), model.loss, jit_compile=True)
        model.fit(x, y, batch_size=len(BATCH[0]), shuffle=False, verbose=0, callbacks=callbacks)
        weights[name] = model.get_weights()
    assert callbacks[0].placement.compile in (NONE, XLA)
    assert "op by op: continues" in capsys.readouterr().out
    for placed, plain in zip(weights["placed"], weights["plain"], strict=True):
        np.testing.assert_allclose(placed, plain, rtol=1e-4, atol=1e-6)
