"""Plans: which ways there are, which is taken, and that each costs what its row says."""

from __future__ import annotations

import json
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.core.compilation import NONE, XLA
from tfplace.core.fidelity import BANDS, CALIBRATED
from tfplace.core.plan import ALONE, AS_GOOD, SEARCHED, STRATEGY, Plan
from tfplace.errors import InputError, PlacementError
from tfplace.execution import step_times
from tfplace.report.plan_table import verdict
from tfplace.search import planning
from tfplace.search.what_if import BATCH
from tfplace.testing.problems import make_topology


def model_of(*layers):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((256,)), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, jit_compile=False)
    return model


def planned(*layers, devices=2, examples=4096, **options):
    batch = np.zeros((examples, 256), np.float32), np.zeros(examples, np.int32)
    layers = layers or [keras.layers.Dense(256, "relu") for _ in range(3)]
    box = options.pop("topology", make_topology(devices))
    return tfplace.plan(model_of(*layers), box, batch=batch, budget="60 evaluations", progress=False, **options)


@pytest.fixture(scope="module")
def plan(logical_cpus):
    return planned()


def test_all_ways_are_priced_op_by_op_and_compiled(plan):
    ways = {(row.way, len(row.slices), row.compile) for row in plan.rows}
    assert all(bool(row.obstacle) == (row.way == STRATEGY and row.compile == XLA) for row in plan.rows)
    assert {(ALONE, 0, NONE), (ALONE, 0, XLA), (STRATEGY, 2, NONE), (STRATEGY, 2, XLA)} <= ways
    assert {("data_parallel", 2, NONE), ("one_f_one_b", 4, NONE), ("gpipe", 2, NONE), ("placed", 0, NONE)} <= ways
    assert {("placed", 2, NONE), ("placed", 2, XLA), ("placed", 4, XLA)} <= ways
    assert plan.examples == 4096


def test_the_fastest_row_is_taken_or_a_simpler_one_that_is_as_good(plan):
    fastest = min(row.cost.step_s for row in plan.rows if row.cost.feasible and not row.obstacle)
    assert plan.chosen.cost.step_s <= AS_GOOD * fastest
    assert plan.chosen.name in verdict(plan)
    alone = next(row for row in plan.rows if row.way == ALONE)
    near = replace(plan.chosen, cost=replace(alone.cost, step_s=alone.cost.step_s / AS_GOOD * 1.0001))
    stays = replace(plan, rows=(near, alone))
    assert stays.chosen is alone and verdict(stays).startswith("stay on GPU:")


def test_a_row_costs_what_its_placement_is_simulated_to_take(plan):
    rows = [row for row in plan.rows if row.placement is not None]
    assert len(rows) > 10
    for row in rows:
        again = tfplace.simulate(row.placement.problem, row.placement)
        assert row.placement.compile == row.compile == row.placement.problem.compile
        assert again.step_s == pytest.approx(row.cost.step_s, rel=1e-9), row.name


def test_rows_say_what_their_step_waits_for_and_how_long_they_took_to_find(plan):
    for row in plan.rows:
        if row.placement is not None:
            assert sum(one.seconds for one in row.waits) == pytest.approx(row.cost.step_s), row.name
        assert row.found_s > 0 and row.bottleneck and row.error is None
    measured = replace(make_topology(1), source="measured on a Monday")
    one = planned(keras.layers.Dense(8), topology=measured, examples=64, compile=NONE).chosen
    assert one.error == BANDS[CALIBRATED, NONE]


def test_a_larger_batch_is_read_again_and_compared_by_the_example():
    one, twice = (planned(devices=1, examples=examples, compile=NONE) for examples in (512, 1024))
    (change,) = [change for change in one.explain().changes if change.change == BATCH]
    step_s = next(row.cost.step_s for row in twice.rows if row.name == one.chosen.name)
    assert change.step_s == pytest.approx(step_s, rel=1e-9)
    assert change.gain == pytest.approx(1 - step_s / 2 / one.chosen.cost.step_s)


def test_a_graph_has_one_batch(plan):
    graph = plan.row("one device (GPU:0)").placement.problem.graph
    (why,) = tfplace.plan(graph, make_topology(1), budget="5 evaluations", progress=False).explain().left_out
    assert "cannot be traced for batches of another size" in why


def test_more_devices_make_no_plan_slower_than_one(plan):
    one_s = planned(devices=1).chosen.cost.step_s
    for more in (plan, planned(devices=3)):
        assert more.chosen.cost.step_s <= AS_GOOD * one_s


def test_fewer_examples_than_devices_are_a_slice_each():
    ways = {(row.way, len(row.slices)) for row in planned(devices=3, examples=2, compile=NONE).rows}
    assert ("data_parallel", 2) in ways and max(slices for _, slices in ways) == 2


def test_only_rows_with_the_same_numbers_are_taken_where_that_is_asked():
    layers = [keras.layers.Dense(256), keras.layers.BatchNormalization(), keras.layers.ReLU()]
    plain = planned(*layers)
    differing = [row for row in plain.rows if not row.same_numbers]
    assert {row.way for row in differing} >= {STRATEGY, "data_parallel"}
    assert all("BatchNorm" in row.differs for row in differing)
    kept = replace(plain, exact=True)
    assert kept.chosen.same_numbers and not kept.chosen.slices and not kept.placement.problem.graph.slices
    best = next(row for row in plain.rows if row.way == ALONE and row.cost.feasible)
    assert kept.chosen is best or kept.explain().against.name == best.name
    none = replace(plain, exact=True, rows=tuple(differing))
    assert none.chosen is None and "BatchNorm" in verdict(none)


@pytest.mark.slow
def test_fit_fails_with_jit_compile_under_a_strategy():
    """As plans say; where it no longer does, the compiled strategy can be taken."""
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = model_of()
        model.compile("sgd", model.loss, jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="located in device"):
        model.fit(np.zeros((8, 256)), np.zeros(8), verbose=0)


@pytest.mark.parametrize("compile", [NONE, XLA])
def test_rows_are_run_one_way_where_that_is_asked(compile):
    assert {row.compile for row in planned(compile=compile).rows} == {compile}


def test_what_does_not_fit_is_taken_slice_by_slice_or_told(plan):
    whole = min(int(row.cost.peak_bytes.max()) for row in plan.rows if row.way == ALONE)
    tight = planned(devices=1, max_memory={"GPU:0": int(0.8 * whole)})
    assert tight.chosen is not None and (len(tight.chosen.slices) > 1 or tight.chosen.recomputes)
    nothing = planned(devices=1, max_memory={"GPU:0": 2**18})
    assert nothing.chosen is None and nothing.placement is None
    assert verdict(nothing).startswith("nothing fits")


def test_a_way_that_does_not_fit_is_made_to_by_computing_results_again():
    layers = [layer for _ in range(8) for layer in (keras.layers.Dense(256), keras.layers.Activation("gelu"))]
    whole = min(int(row.cost.peak_bytes.max()) for row in planned(*layers, devices=1).rows if row.way == ALONE)
    limit = int(0.6 * whole)
    tight = planned(*layers, devices=1, max_memory={"GPU:0": limit})
    (row,) = [row for row in tight.rows if row.way == ALONE and row.recomputes]
    assert row.cost.peak_bytes.max() <= limit and row.same_numbers
    assert tfplace.simulate(row.placement.problem, row.placement).step_s == pytest.approx(row.cost.step_s)


def test_a_plan_is_saved_and_loaded(plan, tmp_path):
    plan.save(tmp_path / "plan")
    loaded = Plan.load(tmp_path / "plan")
    assert loaded.summary() == plan.summary()
    graph = plan.placement.problem.graph
    assert tfplace.Placement.load(loaded.placement, graph=graph).devices == plan.placement.devices


def test_the_chosen_placement_runs():
    batch = np.zeros((32, 256), np.float32), np.zeros(32, np.int32)
    model = model_of(keras.layers.Dense(256))
    found = tfplace.plan(model, batch=batch, budget="10 evaluations", progress=False)
    loss = model.evaluate(*batch, verbose=0)
    measured = found.measure(batch, top=2, steps=3)
    took = [row.measured_s for row in measured.rows if row.measured_s is not None]
    assert len(took) == 2 and measured.chosen.measured_s == min(took) and "measured" in verdict(measured)
    assert model.evaluate(*batch, verbose=0) == pytest.approx(loss)  # its steps left no trace
    step = found.apply()
    assert float(step(batch)["loss"]) == pytest.approx(loss, rel=1e-5)
    step.restore()


def test_what_is_measured_corrects_what_is_not(plan, monkeypatch):
    """Simulated: compiled 10, 11 and op by op 12, 14, 20 ms. Measured: compiled ones take three times as long."""
    placed = next(row for row in plan.rows if row.placement is not None)
    simulated = [(10, XLA), (11, XLA), (12, NONE), (14, NONE), (20, NONE)]
    rows = [replace(placed, compile=c, cost=replace(placed.cost, step_s=ms), recomputes=ms) for ms, c in simulated]
    rows = [replace(row, placement=replace(row.placement, seed=row.recomputes)) for row in rows]
    seconds = {10: 30.0, 11: 33.0, 12: 12.0, 14: 9.0, 20: 20.0}
    monkeypatch.setattr(step_times, "median_step_s", lambda placement, *_: seconds[placement.seed])
    few = replace(plan, rows=tuple(rows)).measure(None, top=1)
    assert [row.measured_s for row in few.rows] == [30.0, None, None, None, None]  # all others look slower, too
    more = replace(plan, rows=tuple(rows)).measure(None, top=3)
    assert [row.measured_s for row in more.rows] == [30.0, 33.0, 12.0, None, None]
    seconds[12] = 8.0
    near = replace(rows[3], cost=replace(placed.cost, step_s=11.5))
    more = replace(plan, rows=(*rows[:3], near)).measure(None)
    assert more.chosen.measured_s == 8.0 and more.rows[3].measured_s == 9.0  # 11.5 / 12 * 8 s was expected of it


def measured(source, traced, batch):
    return tfplace.plan(source, batch=traced, budget="5 evaluations", progress=False).measure(batch, top=1, steps=1)


def test_a_step_is_measured_with_what_it_was_traced_with():
    floats, ids, none = np.zeros((8, 256), np.float64), np.zeros(8, np.int64), None
    of_model = measured(model_of(), (floats, ids, none), (floats, ids, none))
    weights = tf.Variable(tf.ones((256, 4)))
    of_function = measured(tf.function(lambda x, y: tf.tanh(x @ weights) + y), *2 * [(tf.zeros((8, 256)), tf.ones(4))])
    short = measured(tf.function(tf.tanh), *2 * [tf.zeros(8)])  # too few ops to compile
    assert all(one.chosen.measured_s > 0 for one in (of_model, of_function, short))


def test_what_has_no_values_and_no_shape_is_not_measured():
    assert measured(tf.function(tf.tanh), tf.zeros(8), tf.TensorSpec(8)).chosen.measured_s > 0
    with pytest.raises(InputError, match="the spec"):
        measured(tf.function(tf.tanh), tf.zeros(8), tf.TensorSpec([None]))
    with pytest.raises(InputError, match="a dict such as"):
        tfplace.plan(tf.function(tf.tanh), batch=tf.zeros(8), budget=5, progress=False).measure(tf.zeros(8), devices=5)


@pytest.mark.parametrize(
    "wrong", [{"slices": 4}, {"placer": "heft"}, {"budget": "soon"}, {"exacte": True}, {"exact": "no"}]
)
def test_options_that_a_plan_has_not_are_refused(wrong):
    with pytest.raises(InputError):
        tfplace.plan(None, "2xP100", **wrong)


@pytest.mark.parametrize("wrong", [{"top": 0}, {"steps": 0}])
def test_measuring_nothing_is_refused(plan, wrong):
    with pytest.raises(InputError):
        plan.measure(None, **wrong)


def test_a_loaded_plan_is_not_measured(plan, tmp_path):
    plan.save(tmp_path)
    with pytest.raises(InputError):
        Plan.load(tmp_path).measure(None)


def test_a_row_that_lacks_its_placement_is_refused(plan, tmp_path):
    plan.save(tmp_path)
    written = json.loads((tmp_path / "plan.json").read_text())
    written["rows"][0]["placement"] = None
    (tmp_path / "plan.json").write_text(json.dumps(written))
    with pytest.raises(PlacementError, match="has no placement"):
        Plan.load(tmp_path)


def test_what_is_no_plan_is_refused(tmp_path):
    with pytest.raises(PlacementError):
        Plan.load(tmp_path)
    (tmp_path / "plan.json").write_text('{"format": "another"}')
    with pytest.raises(PlacementError):
        Plan.load(tmp_path)


def test_the_strategy_is_not_taken_where_there_are_rules_that_it_does_not_know():
    ruled = planned(constraints=tfplace.Constraints(forbid={"*": ["GPU:1"]}), compile=NONE)
    rows = [row for row in ruled.rows if row.way == STRATEGY]
    assert rows and all("rules" in row.obstacle for row in rows)
    assert ruled.chosen.way != STRATEGY


def test_a_step_that_computes_results_again_already_is_planned_as_it_is():
    batch = np.zeros((512, 256), np.float32), np.zeros(512, np.int32)
    layers = [layer for _ in range(6) for layer in (keras.layers.Dense(256), keras.layers.Activation("gelu"))]
    less = tfplace.rematerialize(model_of(*layers), batch, segments="sqrt", topology="2xP100")
    assert less.recomputes is not None
    nothing = tfplace.plan(less, make_topology(1), max_memory={"GPU:0": 2**18}, budget="5 evaluations", progress=False)
    assert nothing.chosen is None


def test_a_compiled_row_is_named_in_the_verdict(plan):
    compiled = next(row for row in plan.rows if row.way == ALONE and row.compile == XLA)
    assert verdict(replace(plan, rows=(compiled,))).startswith("stay on GPU:0, compiled: ")


@pytest.mark.parametrize("part", ["_alone", "_usual", "remedied"])
def test_what_a_search_found_is_kept_if_the_user_stops_what_comes_after(part, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, part, stop)
    stopped = planned(keras.layers.Dense(64), examples=64)
    assert stopped.chosen is not None and "interrupted" in stopped.notes[-1]
    assert len({row.name for row in stopped.rows}) == len(stopped.rows)
    assert any(row.way == SEARCHED for row in stopped.rows)


def test_data_parallelism_is_also_packed_where_it_is_near_the_best():
    layers = [layer for _ in range(3) for layer in (keras.layers.Dense(64, "relu"), keras.layers.LayerNormalization())]
    found = planned(*layers, devices=2, examples=4096)
    packed = [row for row in found.rows if row.way == planning.PACKED_PARALLEL]
    assert {row.compile for row in packed} == {NONE, XLA} and all(len(row.slices) == 2 for row in packed)
    for row in packed:
        assert tfplace.simulate(row.placement.problem, row.placement).step_s == pytest.approx(row.cost.step_s, rel=1e-9)
