import time

import pytest

from tfplace.report.progress import Stages
from tfplace.search.progress import Progress


@pytest.mark.parametrize("text", ["lost [/job:worker/task:1]", "x [best] y", "host:100: is away :smile:"])
def test_notes_and_stages_are_shown_as_they_are(text, capsys, monkeypatch):
    monkeypatch.setattr("tfplace.report.progress.LONG_S", -1.0)
    with Stages(quiet=False) as stages:
        stages.note(text)
        stages.stage(f"building {text}")
    note, stage = capsys.readouterr().err.splitlines()
    assert note == text
    assert stage.startswith(f"building {text}: ")


def test_the_bar_shows_stages_as_they_are(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with Stages(quiet=False) as stages:
        stages.stage("building [/job:worker] [best]")
        stages.part(1, 2)
        stages._bar.refresh()
    assert "[/job:worker] [best], 1 of 2" in capsys.readouterr().err


def test_a_stage_begins_when_it_is_another(capsys, monkeypatch):
    monkeypatch.setattr("tfplace.report.progress.LONG_S", -1.0)
    with Stages(quiet=False) as stages:
        for stage, done in (("first", 0), ("first", 1), ("second", 0)):
            stages.progress(stage, done, 2)
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["first", "second"]


def test_where_no_bar_moves_a_long_stage_is_told_while_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr("tfplace.report.progress.FIRST_S", 0.01)
    monkeypatch.setattr("tfplace.report.progress.AGAIN_S", 0.01)
    with Stages(quiet=False) as stages:
        stages.stage("searching")
        stages.search(Progress(5, 1.0, 0.5, 0.002, True, "auto"))
        time.sleep(0.2)
        said = capsys.readouterr().err.splitlines()
        stages.stage("writing")
    assert len(said) > 1 and said[-1] == "searching, best so far 2.00 ms (simulated), by auto ..."
    monkeypatch.setattr("tfplace.report.progress.FIRST_S", 60.0)
    with Stages(quiet=False) as stages:
        stages.stage("short")
    assert "short" not in capsys.readouterr().err
