"""Policies that were trained beforehand: weights as files, placing at once, fine-tuning."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tfplace.api import place
from tfplace.errors import InputError
from tfplace.learned.features.graph_inputs import graph_inputs
from tfplace.learned.networks.at_once import AtOnce
from tfplace.learned.networks.sweeping import Sweeper
from tfplace.learned.policies import gdp
from tfplace.learned.policies.gdp import Gdp, GdpSettings
from tfplace.learned.policies.hierarchical import Hierarchical, HierarchicalSettings
from tfplace.learned.policies.placeto import Placeto, PlacetoScratch, network_of
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.learned.training.pretrained import Pretrained
from tfplace.learned.training.settings import TrainSettings
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem

SETTINGS = PlacetoSettings(groups=64, hidden=6, rounds=2)
DRAWS = SETTINGS.draws
AT_ONCE = 1 + SETTINGS.again * DRAWS


def problem(units=20, devices=3, seed=0):
    return random_problem(np.random.default_rng(seed), units, devices, unit=1e-3, ties=False)


def weights(path, seed=0, **settings):
    """A file of a network that has learned nothing."""
    network = network_of(SETTINGS, np.random.default_rng(seed))
    values = [variable.numpy() for variable in network.variables]
    said = {"groups": 64, "hidden": 6, "rounds": 2, **settings}
    Pretrained("placeto", said, values, {"command": "none"}).save(path)
    return path


def changed(path, how):
    """The file with other values."""
    known = Pretrained.load(path, "placeto")
    dataclasses.replace(known, values=how(known.values)).save(path)


@pytest.fixture
def file(tmp_path):
    return weights(tmp_path / "placeto.npz")


@pytest.fixture
def swept(monkeypatch):
    """What sweeps begin with, one after the other."""
    found, sweep = [], Sweeper.sweep

    def noted(self, layers, before, *more, **other):
        found.append(before)
        return sweep(self, layers, before, *more, **other)

    monkeypatch.setattr(Sweeper, "sweep", noted)
    return found


@pytest.fixture
def drawn(monkeypatch):
    """Of how many units GDP draws how many placements, one after the other."""
    found, draw = [], AtOnce.draw

    def noted(self, count, *more):
        drawn = draw(self, count, *more)
        found.append((drawn.devices.shape[1], count))
        return drawn

    monkeypatch.setattr(AtOnce, "draw", noted)
    return found


def run(file, here, evaluations=1000, seed=0, moves=0, **more):
    logged = []
    search = Search(here, Budget(evaluations=evaluations), seed, logged=lambda n, m: logged.append(m))
    devices = search.run(Placeto(weights=file, moves=moves, **more), "placeto")
    here.expand(devices)
    return devices, search, logged


def test_a_file_is_read_as_it_was_written(file):
    known = Pretrained.load(file, "placeto")
    assert (known.policy, known.settings["hidden"], known.card) == ("placeto", 6, {"command": "none"})
    network = network_of(SETTINGS, np.random.default_rng(1))
    known.give(network.variables)
    for variable, value in zip(network.variables, known.values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
def test_weights_place_any_problem_at_once(file, devices):
    _, search, logged = run(file, problem(40, devices, seed=1))
    assert search.evaluations <= AT_ONCE
    assert not logged


def test_placing_at_once_depends_on_the_seed_only_through_what_is_drawn(file):
    one, other = (run(file, problem(), seed=seed)[1].history for seed in (0, 0))
    assert [(f.evaluations, f.key) for f in one] == [(f.evaluations, f.key) for f in other]
    first = [run(file, problem(), evaluations=1, seed=seed)[0] for seed in (0, 1)]
    np.testing.assert_array_equal(*first)


@pytest.mark.parametrize("budget", ["5000 evaluations", "1h"])
def test_what_is_placed_is_moved_for_a_while(file, budget):
    """With as many placements as there are moves, whatever is left; the same as if no more were left."""
    here = problem(40)
    found = []
    for more in (budget, f"{AT_ONCE + 300} evaluations"):
        search = Search(here, Budget.parse(more), 0)
        search.run(Placeto(weights=file, moves=300), "placeto")
        assert {f.stage for f in search.history} == {"placeto", "moves"}
        found.append((search.evaluations, search.best_key))
    _, at_once, _ = run(file, here)
    assert found[0] == found[1] == (at_once.evaluations + 300, found[0][1])
    assert found[0][1] < at_once.best_key


def test_moves_are_no_more_of_a_large_graph(file, monkeypatch):
    here = problem(40)
    monkeypatch.setattr("tfplace.learned.policies.placeto._SIMULATED_OPS", 50 * here.graph.num_ops)
    evaluations = [run(file, here, moves=moves)[1].evaluations for moves in (0, 20, 300)]
    assert [n - evaluations[0] for n in evaluations] == [0, 20, 50]


def test_without_a_critical_path_nothing_is_moved(file):
    here = problem(40)

    class Measured(Simulator):
        def critical_path(self, unit_device):
            return None

    search = Search(here, Budget(evaluations=1000), 0, evaluator=Measured(here))
    search.run(Placeto(weights=file, moves=300), "placeto")
    assert search.evaluations <= AT_ONCE


def test_fine_tuning_makes_as_many_updates_as_told(file):
    _, search, logged = run(file, problem(), fine_tune=5)
    assert len(logged) == 5
    assert all(np.isfinite(m["gradient"]) and m["gradient"] > 0 for m in logged)
    assert search.best_key <= run(file, problem())[1].best_key


def test_fine_tuning_makes_what_is_drawn_better(file):
    tuned = PlacetoSettings(groups=64, last_rate=0.01)
    _, _, logged = run(file, problem(), evaluations=10_000, fine_tune=60, settings=tuned)
    first, last = (np.mean([m["reward"] for m in part]) for part in (logged[:5], logged[-5:]))
    assert last > first + 0.05


def test_a_start_is_swept_over(file, swept):
    here = problem()
    start = np.random.default_rng(0).integers(3, size=here.num_units).astype(np.int32)
    start = np.where(here.allowed[np.arange(len(start)), start], start, here.allowed.argmax(axis=1)).astype(np.int32)
    search = Search(here, Budget(evaluations=100), 0)
    search.run(Placeto([start], weights=file, moves=0), "placeto")
    inputs = graph_inputs(here)
    assert [len(before) for before in swept] == [1] + [DRAWS] * SETTINGS.again
    assert all((before == inputs.rows_of(start)).all() for before in swept[:2])
    assert (swept[-1] == swept[-1][0]).all() and (swept[-1][0] != swept[0][0]).any()


@pytest.mark.parametrize(
    ("coarse", "again", "expected"),
    [
        (8, 4, [8] * 3 + [None] * 3),
        (8, 3, [8] * 2 + [None] * 3),
        (8, 1, [None] * 2),  # too few to share out
        (None, 4, [None] * 5),  # no fewer groups than there are units
    ],
)
def test_half_of_the_sweeps_are_over_coarse_groups(file, swept, coarse, again, expected):
    here = problem(40)
    settings = PlacetoSettings(coarse=here.num_units if coarse is None else coarse, again=again)
    _, search, _ = run(file, here, settings=settings)
    assert [before.shape[1] for before in swept] == [groups or here.num_units for groups in expected]
    assert search.evaluations <= sum(len(before) for before in swept)


@pytest.mark.parametrize(
    ("coarse", "draws", "expected"),
    [
        (8, 6, [(8, 3), (None, 3)]),
        (8, 5, [(8, 2), (None, 3)]),
        (8, 1, [(None, 1)]),  # too few to share out
        (None, 6, [(None, 6)]),  # no fewer groups than there are units
    ],
)
def test_half_of_what_gdp_draws_is_in_coarse_groups(drawn, coarse, draws, expected):
    here = problem(40)
    settings = GdpSettings(coarse=here.num_units if coarse is None else coarse, draws=draws)
    search = Search(here, Budget(evaluations=1000), 0)
    here.expand(search.run(Gdp(settings=settings), "gdp"))
    expected = [(groups or here.num_units, count) for groups, count in expected]
    assert drawn == expected
    assert search.evaluations <= sum(1 + count for _, count in expected)


def test_gdp_is_no_worse_than_a_start_that_parts_its_groups():
    here = problem(40)
    best = search_for(here)
    search = Search(here, Budget(evaluations=1000), 0)
    search.run(Gdp([best], settings=GdpSettings(coarse=4, draws=2)), "gdp")
    assert search.best_key <= search.evaluator.key(best)


def test_what_gdp_keeps_is_not_what_fine_tuning_changes():
    settings = GdpSettings(coarse=4, draws=4, train=TrainSettings(batch=4))
    one, tuned, again = (Search(problem(40), Budget(evaluations=40), seed=1) for _ in range(3))
    one.run(Gdp(settings=settings), "gdp")
    tuned.run(Gdp(settings=settings, fine_tune=3), "gdp")
    again.run(Gdp(settings=settings), "gdp")
    assert tuned.evaluations > one.evaluations
    assert [(f.evaluations, f.key) for f in one.history] == [(f.evaluations, f.key) for f in again.history]


def test_gdp_reads_all_graphs_with_one_network(monkeypatch, tmp_path):
    made, build = [], gdp.network_of
    monkeypatch.setattr(gdp, "network_of", lambda *args: made.append(build(*args)) or made[-1])
    copy = tmp_path / "copy.npz"
    Pretrained.shipped("gdp").save(copy)
    settings = GdpSettings(coarse=4, draws=2, clip=0.4)  # such that its network is not kept yet
    for units, weights in ((40, copy), (30, "shipped"), (20, copy)):
        Search(problem(units), Budget(evaluations=40), 0).run(Gdp(settings=settings, weights=weights), "gdp")
    assert len(made) == 1


def test_what_gdp_places_does_not_depend_on_what_it_placed_before(monkeypatch):
    """Placements are the same but for chance if logits are the same to the last bit, and those tell more."""
    made, build = [], gdp.network_of
    monkeypatch.setattr(gdp, "network_of", lambda *args: made.append(build(*args)) or made[-1])
    graphs = [graph_inputs(problem(40, devices, seed=devices)) for devices in (3, 4, 5)]
    found = []
    for order in ((0, 1, 2), (2, 1, 0)):
        settings = GdpSettings(coarse=4, draws=2, clip=0.45 + len(found) / 100)  # such that its network is not kept
        for i in order:
            search = Search(problem(40, 3 + i, seed=3 + i), Budget(evaluations=40), 0)
            search.run(Gdp(settings=settings), "gdp")
        found.append([made[-1].logits(inputs).tobytes() for inputs in graphs])
    assert len(made) == 2
    assert found[0] == found[1]


def test_gdp_that_was_refused_within_a_graph_places_outside_of_it():
    settings = GdpSettings(coarse=4, draws=4, clip=0.3)  # such that its network is not kept yet
    with tf.Graph().as_default(), pytest.raises(InputError, match="eager execution"):
        Search(problem(40), Budget(evaluations=40), seed=1).run(Gdp(settings=settings), "gdp")
    search = Search(problem(40), Budget(evaluations=40), seed=1)
    search.run(Gdp(settings=settings), "gdp")
    assert search.evaluations == 2 * (1 + 2)


SLOWER = {
    "gdp_tuned": Gdp(settings=GdpSettings(coarse=4, draws=4, train=TrainSettings(batch=4)), fine_tune=1),
    "placeto_scratch": PlacetoScratch(settings=SETTINGS),
    "hierarchical": Hierarchical(settings=HierarchicalSettings(groups=4, hidden=8, embedding=3, groupings=2)),
}


@pytest.mark.parametrize(
    "placer",
    [
        # Such that its network is not kept yet.
        pytest.param(Gdp(settings=GdpSettings(coarse=4, draws=4, clip=0.35)), id="gdp"),
        pytest.param(Placeto(settings=PlacetoSettings(again=1), fine_tune=1), id="placeto_tuned"),
        *(pytest.param(placer, id=name, marks=pytest.mark.slow) for name, placer in SLOWER.items()),
    ],
)
def test_networks_are_the_hosts_whatever_else_there_is(placer, logical_cpus):
    where = []

    def creator(make, **arguments):
        made = make(**arguments)
        where.append(made.device)
        return made

    assert len(logical_cpus) > 1
    with tf.device("CPU:1"), tf.variable_creator_scope(creator):
        Search(problem(40), Budget(evaluations=120), seed=1).run(placer, "placer")
    assert where and all(device.endswith("/device:CPU:0") for device in where)


def test_weights_are_those_of_the_same_policy_settings_and_values(file, tmp_path):
    one, other = Pretrained.load(file, "placeto"), Pretrained.load(file, "placeto")
    assert one == other and hash(one) == hash(other) and one != "weights"
    changed(file, lambda values: [*values[:-1], values[-1] + 1])
    assert Pretrained.load(file, "placeto") != one
    assert Pretrained.load(weights(tmp_path / "more.npz", depth=3), "placeto") != one


def search_for(here):
    """A placement of single units that is hard to better."""
    return Search(here, Budget(evaluations=2000), 0).run(PLACERS["local_search"](), "local_search")


@pytest.mark.slow
def test_a_run_of_fine_tuning_goes_on_where_it_was(file, tmp_path):
    here = problem()
    asked = {"placer": "placeto", "weights": file, "fine_tune": 6, "baselines": (), "progress": False}
    whole = place(here, budget=200, **asked)
    assert whole.notes == ()
    part = place(here, budget=AT_ONCE + 3 * DRAWS, run_dir=tmp_path / "part", **asked)
    assert part.notes == ("fine-tuning made 3 of 6 updates before the budget was spent",)
    with pytest.raises(InputError, match="budget"):
        place(here, budget=200, run_dir=tmp_path / "part", **asked)
    other = weights(tmp_path / "other.npz", seed=1)
    with pytest.raises(InputError, match="weights"):
        place(here, budget=AT_ONCE + 3 * DRAWS, run_dir=tmp_path / "part", **asked | {"weights": other})
    again = [place(here, budget=200, run_dir=tmp_path / "run", **asked) for _ in range(2)]
    assert all(np.array_equal(whole.op_device, one.op_device) for one in again)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b"no such thing"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "cannot be read"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: weights(path, hidden=7), "another version"),
        (lambda path: weights(path, hidden="7"), "another version"),
        (lambda path: weights(path, hidden=6.0), "another version"),
        (lambda path: weights(path, depth=3), "another version"),
        (lambda path: changed(path, lambda values: [*values, values[0]]), "1 arrays of weights too many"),
        (lambda path: changed(path, lambda values: [values[0] * np.nan, *values[1:]]), "not finite float32 numbers"),
        (lambda path: Pretrained("gdp", {}, [], {}).save(path), "for 'gdp'"),
    ],
)
def test_other_files_are_refused(tmp_path, damage, said):
    path = weights(tmp_path / "w.npz")
    damage(path)
    with pytest.raises(InputError, match=said):
        run(path, problem())


def test_only_those_with_weights_have_weights(file):
    here = problem()
    with pytest.raises(InputError, match="These placers have pretrained weights: gdp, placeto, placeto_untrained"):
        place(here, placer="heft", fine_tune=3, budget=10)
    with pytest.raises(InputError, match="which is not a file"):
        place(here, placer="placeto", weights="no_such.npz", budget=10)
    with pytest.raises(InputError, match="fine_tune=-1"):
        place(here, placer="placeto", fine_tune=-1, budget=10)
    with pytest.raises(InputError, match="fine_tune -1"):
        Placeto(fine_tune=-1)
    with pytest.raises(InputError, match="moves -1"):
        Placeto(moves=-1)


def test_there_are_weights_only_of_what_was_trained():
    with pytest.raises(InputError, match="post without weights, which the package does not have"):
        Pretrained.shipped("post")


def test_a_head_that_is_none_is_refused(tmp_path):
    path = tmp_path / "w.npz"
    with path.open("wb") as opened:
        np.savez(opened, head=np.array(json.dumps({"format": "other", "policy": "placeto"})))
    with pytest.raises(InputError, match="of format 'other'"):
        Pretrained.load(path, "placeto")
    for head in ([], {"settings": 3}):
        with path.open("wb") as opened:
            np.savez(opened, head=np.array(json.dumps(head)))
        with pytest.raises(InputError, match="it has no header"):
            Pretrained.load(path, "placeto")


def test_a_policy_with_other_constants_is_another_run(tmp_path):
    def placed(groups):
        class Mine(PlacetoScratch):
            def __init__(self):
                super().__init__(settings=PlacetoSettings(groups=groups, hidden=2, rounds=0))

        PLACERS.add("mine", Mine)
        place(problem(), placer="mine", budget=30, run_dir=tmp_path, baselines=(), progress=False)

    placed(8)
    with pytest.raises(InputError, match=r"settings .PlacetoSettings\(groups=9"):
        placed(9)


def test_shipped_weights_are_the_default():
    assert PLACERS["placeto"]().weights == PLACERS["gdp"]().weights == "shipped"
