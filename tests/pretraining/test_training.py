"""Training on many small graphs: what it does, that it goes on after any end, and that the seed decides."""

import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tfplace.comparison.cells import Case
from tfplace.engines.dask_workers import DaskEngine
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import InputError
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.learned.training.pretrained import Pretrained
from tfplace.pretraining.card import card_text
from tfplace.pretraining.corpus import Entry
from tfplace.pretraining.examination import examined_anew
from tfplace.pretraining.student import Teaching
from tfplace.pretraining.trainable_placeto import TrainablePlaceto
from tfplace.pretraining.training import Course, Training
from tfplace.testing.graphs import random_graph
from tfplace.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
COURSE = Course(imitate=4, reinforce=4, examine=4)


@pytest.fixture
def entries(tmp_path):
    """Four graphs to learn from and one that is held out, each on two topologies."""
    found = []
    for index in range(5):
        path = tmp_path / f"small_{index}.npz"
        graph = random_graph(np.random.default_rng(index), 40)
        dataclasses.replace(graph, name=f"small_{index}").save(path)
        cases = [Case(f"small_{index}", topology) for topology in ("2xP100", "4xP100")]
        found += [Entry(path, case, "small", index == 4) for case in cases]
    return found


class Told:
    """What a training says."""

    def __init__(self):
        self.stages, self.exams = [], []

    def progress(self, stage, done, total):
        self.stages.append((stage, done, total))

    def examined(self, update, exams):
        self.exams.append((update, exams))


class CutError(Exception):
    """Raised in the middle of a training."""


class CutAfter(Told):
    def __init__(self, updates):
        super().__init__()
        self.updates = updates

    def progress(self, stage, done, total):
        if stage in {"imitate", "reinforce"} and done == self.updates:
            raise CutError


SETTINGS = PlacetoSettings(groups=16, hidden=6, rounds=2, draws=4)


def training(entries, folder, told=None, course=COURSE, engine=None):
    return Training(
        entries,
        functools.partial(TrainablePlaceto, seed=0, settings=SETTINGS),
        "placeto",
        course=course,
        teaching=Teaching(folder.parent / "known", groups=16, evaluations=300),
        folder=folder,
        engine=engine or InProcessEngine(),
        shown=told or Told(),
    )


def examined(trained, entries, known, *, evaluations=300, settings=SETTINGS):
    return examined_anew(
        trained,
        entries,
        functools.partial(TrainablePlaceto, seed=0, settings=settings),
        teaching=Teaching(known, groups=16, evaluations=evaluations),
        engine=InProcessEngine(),
        shown=Told(),
    )


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.values, other.values, strict=True))


@pytest.mark.slow
def test_a_training_ends_with_weights_and_a_card_however_often_it_is_begun(entries, tmp_path):
    told = Told()
    learned = training(entries, tmp_path / "run", told).go()
    assert [update for update, _ in told.exams] == [4, 8]
    assert set(learned.card["exams"]) == {"small on 2xP100", "small on 4xP100"}
    assert all(value > 0 for row in learned.card["exams"].values() for value in row.values())
    assert learned.card["graphs"]["small on 4xP100"] == {"learned": 4, "held_out": 1}
    assert learned.settings == {"groups": 16, "hidden": 6, "rounds": 2}
    row = learned.card["held_out"]["small_4 on 4xP100"]
    assert row["best_known_s"] > 0
    assert row["once"] == pytest.approx(learned.card["exams"]["small on 4xP100"]["once"])
    assert set(learned.card["fingerprints"]) == {f"small_{i}" for i in range(5)}
    page = card_text(dataclasses.replace(learned, card={"command": "x", "tfplace": "1", "python": "3", **learned.card}))
    assert f"{row['once']:.3f}" in page and "| small on 2xP100 | 4" in page
    learned.save(tmp_path / "w.npz")
    again = Pretrained.load(tmp_path / "w.npz", "placeto")
    assert same(learned, again)
    assert again.card == learned.card
    stages = [stage for stage, _, _ in told.stages]
    assert stages.index("imitate") < stages.index("reinforce")
    assert len(list((tmp_path / "known").iterdir())) == len(entries)

    cut = CutAfter(6)  # the last checkpoint is that of the examination after 4
    with pytest.raises(CutError):
        training(entries, tmp_path / "cut", cut).go()
    once_more = [training(entries, tmp_path / folder).go() for folder in ("cut", "run")]
    for other in once_more:  # one that was cut short, and one that was over
        assert same(learned, other)
        assert other.card == learned.card
    with pytest.raises(InputError, match="course"):
        training(entries, tmp_path / "run", course=dataclasses.replace(COURSE, seed=1)).go()


def test_nothing_need_be_held_out(entries, tmp_path):
    course = dataclasses.replace(COURSE, imitate=1, reinforce=0)
    learned = training([e for e in entries if not e.held_out], tmp_path / "run", course=course).go()
    page = card_text(dataclasses.replace(learned, card={"command": "x", "tfplace": "1", "python": "3", **learned.card}))
    assert "None were held out." in page


@pytest.mark.slow  # each loads TensorFlow; `test_move_training` has workers, too
def test_workers_change_nothing(entries, tmp_path):
    course = dataclasses.replace(COURSE, imitate=2, reinforce=0)
    alone = training(entries, tmp_path / "alone", course=course).go()
    apart = training(entries, tmp_path / "apart", course=course, engine=ProcessEngine(2)).go()
    for one, other in zip(alone.values, apart.values, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)  # a process computes with one thread


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_of_dask_learn_what_processes_learn(entries, tmp_path):
    course = dataclasses.replace(COURSE, imitate=2, reinforce=1)
    apart = training(entries, tmp_path / "apart", course=course, engine=ProcessEngine(2)).go()
    assert same(training(entries, tmp_path / "dask", course=course, engine=DaskEngine(count=1)).go(), apart)


def test_weights_are_examined_anew_as_their_training_did(entries, tmp_path):
    course = dataclasses.replace(COURSE, imitate=2, reinforce=0)
    learned = training(entries, tmp_path / "run", course=course).go()
    made = {"command": "x", "tfplace": "0.0.1", "python": "3"}
    stale = {name: {**row, "best_known_s": 0.0, "once": 0.0} for name, row in learned.card["held_out"].items()}
    old = dataclasses.replace(learned, card={**made, **learned.card, "exams": {}, "held_out": stale})
    for entry in entries:
        if not entry.held_out:
            entry.path.unlink(missing_ok=True)  # of which no exam needs any
    again = examined(old, entries, tmp_path / "known")
    assert [value.tobytes() for value in again.values] == [value.tobytes() for value in learned.values]
    anew = again.card["examined"]
    assert anew["tfplace"] == VERSION and anew["teaching"] == learned.card["config"]["teaching"]
    assert again.card == {**made, **learned.card, "examined": anew}
    versions = {made["tfplace"], VERSION}
    assert {found for found in versions if found in card_text(again)} == versions
    fewer = examined(old, entries, tmp_path / "fewer", evaluations=100)
    assert fewer.card["examined"]["teaching"]["evaluations"] == 100
    assert len(re.findall(r"\b100 evaluations", card_text(fewer))) > len(
        re.findall(r"\b100 evaluations", card_text(again))
    )


def test_weights_are_examined_only_on_what_they_were_trained_with(entries, tmp_path):
    course = dataclasses.replace(COURSE, imitate=1, reinforce=0)
    learned = training(entries, tmp_path / "run", course=course).go()
    with pytest.raises(
        InputError, match=r"graphs that differ from those of training \(small on 4xP100\); expected the same"
    ):
        examined(learned, [e for e in entries if e.case.topology == "2xP100"], tmp_path / "known")
    wider = dataclasses.replace(SETTINGS, hidden=7)
    with pytest.raises(InputError, match=r"'hidden': 7.*the weights' own, .*'hidden': 6"):
        examined(learned, entries, tmp_path / "known", settings=wider)
    kept = [dataclasses.replace(e, held_out=False) for e in entries]
    none = training(kept, tmp_path / "none", course=course).go()
    with pytest.raises(InputError, match="10 graphs, none held out; expected some"):
        examined(none, kept, tmp_path / "known")


def test_topologies_come_one_after_the_other(entries, tmp_path):
    one = training(entries, tmp_path / "run")
    where = [{one.entries[n].case.topology for n in one._available(done)} for done in (0.0, 0.2, 0.3, 1.0)]
    assert where == [{"2xP100"}, {"2xP100"}, {"2xP100", "4xP100"}, {"2xP100", "4xP100"}]
    assert not any(one.entries[n].held_out for n in one._available(1.0))


def test_rates_fall_in_each_stage():
    course = Course(imitate=1000, reinforce=1000)
    assert course.rate(0) < course.rate(60)
    assert course.rate(60) > course.rate(999) > 0.1 * course.imitate_rate
    assert course.rate(1000) < course.rate(1060) <= course.reinforce_rate
    assert course.stage(999)[0] == "imitate"
    assert course.stage(1000) == ("reinforce", 0.0)


@pytest.mark.parametrize(
    "wrong", [{"imitate": -1}, {"imitate": 0, "reinforce": 0}, {"batch": 0}, {"reinforce_rate": 0}]
)
def test_courses_are_checked(wrong):
    with pytest.raises(InputError):
        Course(**wrong)


def test_a_training_with_other_constants_is_another_one(entries, tmp_path):
    folder = tmp_path / "run"
    once = dataclasses.replace(COURSE, imitate=1, reinforce=0, examine=1)
    training(entries, folder, course=once).go()
    other = training(entries, folder, course=once)
    other._config["settings"] = {**other._config["settings"], "draws": 99}
    with pytest.raises(InputError, match="draws"):
        other.go()
    assert training(entries, folder, course=once)._config["settings"]["draws"] == SETTINGS.draws


def test_nothing_to_learn_from_is_refused(entries, tmp_path):
    with pytest.raises(InputError, match="all held out"):
        training([entry for entry in entries if entry.held_out], tmp_path / "run")


@pytest.mark.slow
def test_a_killed_script_goes_on(tmp_path):
    """kill -9 in the midst; the weights are those of a training that nothing happened to."""
    from tfplace_zoo import families

    graphs = tmp_path / "graphs"
    graphs.mkdir()
    for index in range(families.SIZE):
        graph = random_graph(np.random.default_rng(index), 40)
        dataclasses.replace(graph, name=f"ptb_{index}").save(graphs / f"ptb_{index}.npz")

    def command(out):
        flags = [
            "--families=ptb",
            "--topologies=2xP100",
            "--imitate=30",
            "--reinforce=30",
            "--examine=10",
            "--teacher=200",
        ]
        script = [sys.executable, str(ROOT / "scripts/train_policy.py"), f"--graphs={graphs}", "--engine=processes:2"]
        return [*script, *flags, f"--out={out}", f"--known={tmp_path / 'known'}"]

    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    process = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed/checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed/weights.npz").exists()
    subprocess.run(command(tmp_path / "killed"), check=True, capture_output=True)
    whole, again = (Pretrained.load(tmp_path / name / "weights.npz", "placeto") for name in ("whole", "killed"))
    assert same(whole, again)
