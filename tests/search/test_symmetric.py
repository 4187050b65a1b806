"""Plans for many devices: one replica stands for all, and is checked against the simulation of all."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.core.plan import ALONE, MULTI_WORKER, SEARCHED, Plan
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.io.hosts import Between, equal_hosts
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.placers.data_parallel import by_slice, slice_devices
from tfplace.report.plan_table import verdict
from tfplace.search.mirrored import mirrored_cost
from tfplace.search.ordered import best_order
from tfplace.search.place import placement_of
from tfplace.search.planning import was_interrupted
from tfplace.search.slice_starts import DATA_PARALLEL
from tfplace.search.symmetric import cut_ways, large_box, limits_of
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.mirrored_replicas import simulate_mirrored
from tfplace.simulation.options import DEFAULT
from tfplace.simulation.replica import Kind, cut_replica
from tfplace.simulation.replicas import FLAT, Hosts, simulate_replicas
from tfplace.testing.problems import make_topology


def dense():
    keras.utils.set_random_seed(0)
    layers = [layer for _ in range(4) for layer in (keras.layers.Dense(1024), keras.layers.ReLU())]
    model = keras.Sequential([keras.Input((1024,)), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, jit_compile=False)
    return model


def convolutional():
    keras.utils.set_random_seed(0)
    layers = [
        layer
        for channels in (32, 64, 128, 256)
        for layer in (
            keras.layers.Conv2D(channels, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPool2D(),
        )
    ]
    model = keras.Sequential([keras.Input((64, 64, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, jit_compile=False)
    return model


def batch_of(model, examples):
    return tf.TensorSpec((examples, *model.input_shape[1:])), tf.TensorSpec((examples,), tf.int32)


def hosts_of(topology):
    """The hosts of a topology of any size."""
    numbers = np.arange(len(topology.devices), dtype=np.int32).reshape(-1, 9)
    return Hosts(topology, numbers[:, 1:], numbers[:, 0])


@pytest.mark.parametrize("build", [dense, pytest.param(convolutional, marks=pytest.mark.slow)])
@pytest.mark.parametrize("box", ["8xV100-NVLink", "2x8xV100"])
def test_replicas_take_what_all_of_data_parallelism_are_simulated_to(build, box):
    """Within 3 %, and MirroredStrategy within 10 %, of which averages of BatchNorm are left out."""
    model, hosts = build(), hosts_of(Topology.load(box))
    count = hosts.count * hosts.size
    full = tfplace.formulate(tfplace.extract(model, batch_of(model, 64 * count), slices=count), hosts.topology)
    slices = full.graph.slices
    placed = min(by_slice(full, slices, slice_devices(full, slices)), key=Simulator(full).key)
    whole = best_order(full, full.spread(placed), DEFAULT).cost
    one = tfplace.formulate(tfplace.extract(model, batch_of(model, 64), slices=[64]), hosts.part(1))
    units = single_device(one, 1)
    alone = placement_of(one, units, Simulator(one)(units), bound_s=0.0, placer="", seed=0, baselines={})
    replicas = list(cut_ways(alone))
    found = min((simulate_replicas(one, hosts, count, FLAT) for one in replicas), key=lambda cost: cost.step_s)
    assert found.step_s == pytest.approx(whole.step_s, rel=0.03)
    assert found.moved_bytes == pytest.approx(whole.moved_bytes, rel=0.01)
    mirrored = simulate_mirrored(replicas[0], hosts, count, inputs_on_first=True)
    assert mirrored.step_s == pytest.approx(mirrored_cost(full).step_s, rel=0.1)


@pytest.mark.parametrize("slices", [1, 4])
def test_gradients_of_slices_are_added_up_before_replicas_send_them(slices):
    """Large ones too, which are added one by one; else each replica would send them once for each slice."""
    model, hosts = dense(), hosts_of(Topology.load("2x8xV100"))
    graph = tfplace.extract(model, batch_of(model, 64), slices=[64 // slices] * slices)
    problem = tfplace.formulate(graph, hosts.part(1))
    replica = cut_replica(problem, problem.expand(single_device(problem, 1)), None)
    sent = [m for m in replica.messages if replica.kind[m.maker] == Kind.OWN and replica.kind[m.reader] != Kind.OWN]
    assert sum(m.size_bytes for m in sent) == pytest.approx(4 * 1024 * 1024 * 4, rel=0.01)


def box(hosts=2, size=8, **host):
    inside = make_topology(size + 1, types=["CPU"] + ["GPU"] * size, **host)
    return equal_hosts("box", inside, hosts, Between((0,) * (size + 1), 5e9, 40e-6))


def planned(topology=None, examples=512, **options):
    model = dense()
    options = {"budget": "20 evaluations", "progress": False} | options
    return tfplace.plan(model, topology or box(), batch=batch_of(model, examples), **options)


@pytest.fixture(scope="module")
def plan(logical_cpus):
    return planned()


def test_rows_are_equal_replicas_on_one_device_or_several(plan):
    names = {row.name for row in plan.rows}
    assert {"data_parallel, 16 replicas", "data_parallel, 8 replicas, compiled"} <= names
    assert {f"{MULTI_WORKER}, 16 replicas", "MirroredStrategy, 8 replicas"} <= names
    assert {"one_f_one_b, 16 slices, 2 replicas", "gpipe, 8 slices, 4 replicas"} <= names
    assert any(row.way == ALONE and row.replicas == 1 for row in plan.rows)
    assert plan.examples == 512
    assert all(len(row.cost.peak_bytes) == 18 and row.cost.peak_bytes.max() > 0 for row in plan.rows)
    assert verdict(plan).startswith(("take ", "stay on "))


def test_a_row_of_one_replica_costs_what_its_placement_is_simulated_to_take(plan):
    for row in plan.rows:
        if row.way == ALONE:
            again = tfplace.simulate(row.placement.problem, row.placement)
            assert again.step_s == pytest.approx(row.cost.step_s)


def test_no_search_is_slower_than_the_pipelines_that_it_begins_with(plan):
    for row in plan.rows:
        if row.way == SEARCHED:
            alike = [one for one in plan.rows if (one.slices, one.replicas, one.compile) == key(row) and one is not row]
            assert row.cost.step_s < min(one.cost.step_s for one in alike)
    assert any(row.way == SEARCHED for row in plan.rows) or any("nothing faster" in note for note in plan.notes)


def key(row):
    return row.slices, row.replicas, row.compile


def test_every_row_can_be_shown(plan):
    for row in plan.rows:
        alone = replace(plan, rows=(row,))
        assert row.bottleneck and row.name in alone.summary()


def test_replicas_are_not_run_here(plan):
    with pytest.raises(InputError, match="runs replicas"):
        plan.take("data_parallel, 16 replicas")
    several = replace(plan, rows=tuple(row for row in plan.rows if row.replicas > 1))
    assert several.placement is None
    with pytest.raises(InputError, match=r"replicas.*MultiWorkerMirroredStrategy"):
        several.apply()
    with pytest.raises(InputError, match="no row can be run"):
        several.measure(None)


def test_a_plan_of_replicas_is_saved_and_loaded(plan, tmp_path):
    plan.save(tmp_path)
    loaded = Plan.load(tmp_path)
    assert loaded.summary() == plan.summary()
    assert [row.replicas for row in loaded.rows] == [row.replicas for row in plan.rows]


def test_there_are_no_more_replicas_than_examples():
    few = planned(examples=8, compile="none")
    assert max(row.replicas for row in few.rows) == 8
    assert any("16 replicas: not tried, as a batch has 8 examples" in note for note in few.notes)


def test_half_as_many_replicas_are_tried_where_there_are_none_of_all():
    some = planned(box(hosts=4), examples=20, compile="none")
    assert {row.replicas for row in some.rows if row.way == DATA_PARALLEL} >= {16, 8}


def test_what_does_not_fit_one_device_is_told():
    tight = planned(max_memory={"*GPU:*": "8MiB"}, compile="none")
    assert tight.chosen is None or tight.chosen.cost.feasible
    assert not any(row.cost.feasible for row in tight.rows if row.way == ALONE)


def test_a_whole_batch_that_does_not_fit_is_not_read():
    large = planned(examples=64 * 1024, max_memory={"*GPU:*": "512MiB"}, compile="none")
    whole = next(row for row in large.rows if row.way == ALONE and len(row.slices) == 1)
    assert any("does not fit, judged by the sizes" in note for note in large.notes)
    assert not whole.cost.feasible and whole.slices == (64 * 1024,)
    assert whole.placement.problem.graph.origin is None
    assert large.chosen.placement.problem.graph.origin is not None


def test_wider_replicas_are_tried_up_to_clearly_slower_ones_and_fewer_while_they_are_faster():
    slow = planned(box(latency=0.1), compile="none")
    assert {row.replicas for row in slow.rows if row.way == "gpipe"} == {8}
    assert any(note.startswith("replicas on over 2 devices: not tried") for note in slow.notes)
    assert {row.replicas for row in slow.rows if row.way in (DATA_PARALLEL, ALONE)} == {16, 8, 4, 2, 1}


def test_rules_are_refused():
    with pytest.raises(InputError, match="rules that pin"):
        planned(constraints=tfplace.Constraints(forbid={"*": ["*GPU:1"]}))


def test_few_or_unlike_devices_are_planned_as_ever():
    assert large_box(Topology.load("8xP100")) is None
    assert large_box(box(speed=[1.0] * 8 + [2.0])) is None
    assert large_box(box()).size == 8 and large_box(box()).count == 2


def test_limits_are_those_of_every_host():
    hosts = large_box(box())
    limits = limits_of(hosts.part(4), hosts, {"*GPU:*": "8GiB", "*GPU:3": "4GiB"})
    assert limits["/job:worker/task:0/device:GPU:3"] == "4GiB" and len(limits) == 4
    with pytest.raises(InputError, match="and its counterparts"):
        limits_of(hosts.part(1), hosts, {"/job:worker/task:1/device:GPU:3": "4GiB"})


def test_devices_of_a_replica_are_its_hosts():
    hosts = large_box(box())
    assert hosts.part(2).device_names == tuple(f"/job:worker/task:0/device:{d}" for d in ("CPU:0", "GPU:0", "GPU:1"))
    assert len(compute_devices(tfplace.formulate(tfplace.extract(dense(), batch_of(dense(), 4)), hosts.part(2)))) == 2


def test_a_plan_that_the_user_stops_tells_what_was_found_by_then(plan):
    def stop(progress):
        raise KeyboardInterrupt

    stopped = planned(progress=stop)
    assert was_interrupted(stopped) and not was_interrupted(plan)
    assert stopped.chosen is not None and len(stopped.rows) < len(plan.rows)
    assert stopped.topology_fingerprint == plan.topology_fingerprint == box().fingerprint
