"""PlacementCallback() without a placer: a plan decides how `fit` runs."""

from dataclasses import replace

import numpy as np
import pytest

from tests.keras.fitting import assert_same, assert_same_weights, fit, keras_of, make_model
from tfplace.core.compilation import NONE, XLA
from tfplace.core.plan import AS_GOOD
from tfplace.errors import InfeasibleError
from tfplace.keras import PlacementCallback
from tfplace.search import planning as planning_module
from tfplace.testing.problems import make_topology
from tfplace.transforms.packing import is_packed


def planning(**options):
    return PlacementCallback(**{"budget": "30 evaluations", "verbose": 0, **options})


def test_fit_runs_the_fastest_way_that_keeps_the_numbers(capsys):
    plain, placed, call = make_model("keras"), make_model("keras"), planning(verbose=1)
    assert_same(fit(plain), fit(placed, call))
    assert_same_weights(plain, placed)
    chosen = call.plan.chosen
    assert call.placement is chosen.placement and chosen.same_numbers and chosen.compile == NONE
    allowed = [row for row in call.plan.rows if row.same_numbers and not row.obstacle]
    assert chosen.cost.step_s <= AS_GOOD * min(row.cost.step_s for row in allowed)
    assert chosen.name in capsys.readouterr().out


def test_ways_with_other_numbers_are_taken_where_that_is_allowed():
    call = planning(exact=False)
    fit(make_model("keras"), call)
    assert any(not row.same_numbers and not row.obstacle for row in call.plan.rows)
    assert call.plan.chosen.cost.step_s <= min(
        AS_GOOD * row.cost.step_s for row in call.plan.rows if row.compile == NONE and row.placement is not None
    )


@pytest.mark.parametrize("options", [{"compile": XLA}, {}])
def test_only_a_model_that_asks_for_it_is_compiled_unless_the_user_does(options):
    call = planning(**options)
    fit(make_model("keras", jit_compile=not options), call, epochs=1)
    takable = {row.compile for row in call.plan.rows if not row.obstacle}
    assert takable == ({XLA} if options else {NONE, XLA})


@pytest.mark.parametrize("options", [{"slices": 1}, {"slices": 2}, {"placer": "heft"}, {"baselines": ()}])
def test_what_only_a_search_has_makes_no_plan(options):
    call = planning(**options)
    fit(make_model("keras"), call, epochs=1)
    assert call.plan is None and call.placement is not None
    assert (call.graph.slices is None) == (options.get("slices") != 2)


def test_results_computed_again_train_to_the_same_numbers_also_on_a_smaller_last_batch():
    layers, rng = keras_of("keras").layers, np.random.default_rng(0)
    box = {"topology": make_topology(2, types=["CPU", "CPU"]), "compile": NONE}
    x, y = rng.random((6, 256, 6), np.float32), rng.integers(3, size=6)  # no more slices than examples

    def deep():
        keras = keras_of("keras")
        keras.utils.set_random_seed(0)
        hidden = [layer for _ in range(6) for layer in (layers.Dense(8), layers.Activation("gelu"))]
        model = keras.Sequential([layers.Input((256, 6)), *hidden, layers.GlobalAveragePooling1D(), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        return model

    given = {"x": x, "y": y, "batch_size": 4, "epochs": 1}
    plain, placed, call = deep(), deep(), planning(**box)
    history = fit(plain, **given)
    fit(deep(), call, **given)
    limit = int(0.9 * min(int(row.cost.peak_bytes.max()) for row in call.plan.rows if row.same_numbers))
    tight = planning(**box, max_memory={"CPU:*": limit})
    assert_same(history, fit(placed, tight, **given))
    assert_same_weights(plain, placed)
    assert tight.plan.chosen.recomputes and tight.plan.chosen.cost.peak_bytes.max() <= limit
    with pytest.raises(InfeasibleError):
        fit(deep(), planning(**box, max_memory={"CPU:*": "4KiB"}), **given)


def test_a_packed_way_trains_also_on_a_smaller_last_batch_and_the_next_plan_has_all_ways(monkeypatch):
    plan_of_fit = planning_module.plan_of_fit

    def packed_only(plan, compile):
        rows = [row for row in plan_of_fit(plan, compile).rows if row.placement is not None]
        return replace(plan, rows=tuple(row for row in rows if is_packed(row.placement.problem.graph)))

    monkeypatch.setattr(planning_module, "_NEARLY", np.inf)  # however slow it is for so small a model
    monkeypatch.setattr(planning_module, "plan_of_fit", packed_only)
    plain, placed, call = make_model("keras"), make_model("keras"), planning(batch_norm="synchronized", compile=NONE)
    assert_same(fit(plain), fit(placed, call))  # 22 examples in batches of 4
    assert_same_weights(plain, placed)
    assert call._others and all(is_packed(other.graph) for other in call._others.values())
    monkeypatch.setattr(planning_module, "plan_of_fit", plan_of_fit)
    fit(placed, call, batch_size=8)
    assert not all(is_packed(row.placement.problem.graph) for row in call.plan.rows if row.placement is not None)


def test_slots_on_the_host_train_to_the_same_numbers():
    def wide():
        keras = keras_of("keras")
        keras.utils.set_random_seed(0)
        layers = keras.layers
        model = keras.Sequential([layers.Input((6,)), layers.Dense(512), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, jit_compile=False)
        return model

    box = make_topology(2, types=["CPU", "GPU"], memory=[2**30, 80_000], speed=[1e-4, 1.0])
    plain, placed, call = wide(), wide(), planning(topology=box, devices={"GPU:0": "CPU:1"}, compile=NONE)
    assert_same(fit(plain, epochs=1), fit(placed, call, epochs=1))
    assert_same_weights(plain, placed)
    chosen = call.plan.chosen
    assert chosen.host == "slots" and chosen.cost.peak_bytes[1] <= 80_000
