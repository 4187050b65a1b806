"""Learning which moves are worth a try: on lessons with a known answer, and from searches on small graphs."""

import contextlib
import dataclasses
import functools

import numpy as np
import pytest

from tfplace.comparison.cells import Case
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import InputError
from tfplace.learned.training.learned_move_selector import AMONG, LearnedMoveSelector
from tfplace.local_search.move_features_kernel import Feature
from tfplace.pretraining.card import moves_card_text
from tfplace.pretraining.corpus import Entry
from tfplace.pretraining.move_lessons import Lessons, MoveSchool, _Recorder
from tfplace.pretraining.move_training import MoveCourse, fit, train
from tfplace.search.search import Search
from tfplace.testing.graphs import random_graph

COURSE = MoveCourse(evaluations=60, rounds=2, epochs=3)


@pytest.fixture
def entries(tmp_path):
    """Three graphs to learn from and one that is held out."""
    found = []
    for index in range(4):
        path = tmp_path / f"small_{index}.npz"
        graph = random_graph(np.random.default_rng(index), 40)
        dataclasses.replace(graph, name=f"small_{index}").save(path)
        found.append(Entry(path, Case(f"small_{index}", "2xP100"), "small", index == 3))
    return found


def trained(entries, folder, engine=None):
    told = []
    make = functools.partial(MoveSchool, entries, COURSE.evaluations, folder)
    with contextlib.closing((engine or InProcessEngine()).start(make)) as workers:
        return train(entries, COURSE, workers, lambda *what: told.append(what)), told


def test_what_is_planted_is_learned():
    """A move gains what transfers shrink by, less what comes late; nothing else tells."""
    rng = np.random.default_rng(0)
    move_features = rng.normal(scale=0.05, size=(12_000, len(Feature))).astype(np.float32)
    shrunk, late = Feature.TRANSFER_GROWTH, Feature.LATE
    gains = 0.1 * (-move_features[:, shrunk] - np.maximum(move_features[:, late], 0))
    values = fit([Lessons(move_features[:8000], gains[:8000], "x")], dataclasses.replace(COURSE, epochs=60))
    tried = LearnedMoveSelector(values).pick(move_features[8000:].astype(np.float64), 1000)
    best = np.sort(gains[8000:])[::-1][:1000]
    assert gains[8000:][tried].mean() > 0.95 * best.mean()


def test_searches_on_graphs_make_weights_and_a_card(entries, tmp_path):
    known, told = trained(entries, tmp_path / "searches")
    LearnedMoveSelector(known.values)
    card = known.card
    assert [stage for stage, done, _ in told if not done] == [
        "searches 1 of 2", "network", "searches 2 of 2", "held-out graphs"
    ]  # fmt: skip
    assert ("network", 1, 2) in told
    assert {*card["fingerprints"]} == {f"small_{i}" for i in range(4)}
    assert card["fingerprints"]["small_3"] == entries[3].problem().graph.fingerprint
    assert card["graphs"] == {"small on 2xP100": {"learned": 3, "held_out": 1}}
    assert 200 < card["moves"] < 2 * 6 * 60
    row = card["exams"]["small"]
    assert 0 < row["better"] < 1 and 0 <= row["quarter_better"] <= 1
    text = moves_card_text(dataclasses.replace(known, card={"command": "none", "tfplace": "1", "python": "3"} | card))
    assert f"{card['moves']:,} moves" in text and f"| {100 * row['better']:.0f} %" in text


def test_workers_change_nothing(entries, tmp_path):
    (one, _), (other, _) = trained(entries, tmp_path / "one"), trained(entries, tmp_path / "other", ProcessEngine(2))
    assert one == other and one.card == other.card


def test_a_training_that_was_stopped_goes_on(entries, tmp_path, monkeypatch):
    """Searches that are over are not made again, and the outcome is that of a training that nothing happened to."""
    made, at, find = [], [0], MoveSchool.search

    def search(school, *asked):
        at[0] += 1
        if at[0] == 9:  # in the second round
            raise KeyboardInterrupt
        return find(school, *asked)

    whole, _ = trained(entries, tmp_path / "whole")
    monkeypatch.setattr(MoveSchool, "search", search)
    with pytest.raises(KeyboardInterrupt):
        trained(entries, tmp_path / "stopped")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").iterdir()}
    assert len(before) == 8
    monkeypatch.setattr(Search, "run", lambda *run, run_it=Search.run: made.append(run) or run_it(*run))
    again, _ = trained(entries, tmp_path / "stopped")
    assert again == whole and again.card == whole.card
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sum(run[2] == "moves" for run in made) == 2 * (3 + 3 + 1) - 8


def test_what_searches_wrote_down_is_told_apart(entries, tmp_path):
    trained(entries, tmp_path)
    path = next(tmp_path.glob("small_3@2xP100-alone-*.npz"))
    school = MoveSchool(entries, COURSE.evaluations + 1, tmp_path)
    with pytest.raises(InputError, match=r"for .* 60 all drawn; expected a file made for .* 61 all drawn"):
        school.search(3, True, None, int(path.stem.split("-")[-1]))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="which is damaged"):
        school.search(3, True, None, int(path.stem.split("-")[-1]))


def test_a_part_of_the_moves_is_left_to_chance():
    rng = np.random.default_rng(0)
    values = fit([Lessons(rng.normal(size=(500, len(Feature))), rng.normal(size=500), "x")], COURSE)
    recorder, selector = _Recorder(LearnedMoveSelector(values), np.random.default_rng(1)), LearnedMoveSelector(values)
    assert recorder.among == AMONG
    same = 0
    for count in [1] * 300:
        move_features = rng.normal(size=(AMONG, len(Feature)))
        picked = recorder.pick(move_features, count)
        assert len(picked) == count
        recorder.tell(np.full(count, -np.inf))
        same += picked[0] == selector.pick(move_features, 1)[0]
    assert 200 < same < 245  # 70 % of them, and an eighth of the others
    move_features, gains = recorder.written()
    assert move_features.shape == (300, len(Feature)) and {*gains.tolist()} == {-1.0}
    assert len({*recorder.pick(rng.normal(size=(40, len(Feature))), 40).tolist()}) == 40


@pytest.mark.parametrize("name", ["evaluations", "rounds", "hidden", "epochs"])
def test_courses_that_are_none_are_refused(name):
    with pytest.raises(InputError, match=f"{name}=0"):
        dataclasses.replace(COURSE, **{name: 0})


def test_something_is_to_learn_from(entries, tmp_path):
    held = [dataclasses.replace(entry, held_out=True) for entry in entries]
    with pytest.raises(InputError, match="4 graphs, all held out"):
        trained(held, tmp_path)
