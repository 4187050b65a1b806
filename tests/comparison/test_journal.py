"""Results on disk: what a journal keeps, refuses, and says of what made them."""

import json
import sys

import pytest

from tests.comparison.results import CASE, HEADER, run
from tfplace.comparison import journal as journal_module
from tfplace.comparison.cells import (
    Facts,
)
from tfplace.comparison.journal import Journal
from tfplace.errors import InputError
from tfplace.version import versions


def test_a_journal_goes_on_where_it_was(tmp_path):
    path = tmp_path / "deep" / "runs.jsonl"
    first = Journal(path, HEADER)
    first.add(Facts(CASE, 8, 8, 3, 1.0, "f"))
    first.add(run("auto", 2.0))
    with path.open("a") as file:
        file.write('{"run": {"case"')  # killed while it wrote
    again = Journal(path, HEADER)
    assert (again.facts, again.runs) == (first.facts, first.runs)
    again.add(run("auto", 3.0, seed=1))
    assert len(Journal(path, HEADER).runs) == 2
    with pytest.raises(InputError, match="settings with which"):
        Journal(path, {"budget": "60 s"})
    path.write_text("")  # killed before its first line was whole
    Journal(path, HEADER).add(run("auto", 3.0))
    assert len(Journal(path, HEADER).runs) == 1
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match="lines of JSON"):
        Journal(path, HEADER)
    for foreign in ('{"a": 1}', "[1]\n", '{"a": 1}\n'):
        path.write_text(foreign)
        with pytest.raises(InputError, match=r"runs\.jsonl"):
            Journal(path, HEADER)


def made_by(path):
    """What made the results of a file, and which lines say so."""
    lines = map(json.loads, path.read_text().splitlines())
    return {n: line["made_by"] for n, line in enumerate(lines) if "made_by" in line}


def test_a_journal_says_what_made_its_results_wherever_that_changes(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    flags = ["--jobs=2", f"--graphs={tmp_path}/graphs", "--out", str(path), "--budget=60 s"]
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/research/compare_placers.py", *flags])
    first = Journal(path, HEADER)
    first.add(run("auto", 2.0))
    first.add(run("auto", 2.0, seed=1))
    Journal(path, HEADER).add(run("auto", 2.0, seed=2))  # the same command goes on
    said = ["compare_placers.py", "--jobs=2", "--graphs=graphs", "--out", "runs.jsonl", "--budget=60 s"]
    assert made_by(path) == {1: {"command": said, "versions": versions()}}
    monkeypatch.setattr(sys, "argv", ["compare.py", "--seeds=4"])
    Journal(path, HEADER).add(run("auto", 2.0, seed=3))
    monkeypatch.setattr(journal_module, "versions", lambda: {"numba": "0.1"})
    with path.open("a") as file:
        file.write('{"made_by": {"comm')  # killed while it wrote
    Journal(path, HEADER).add(run("auto", 2.0, seed=4))
    assert [*made_by(path)] == [1, 5, 7]
    assert made_by(path)[7] == {"command": ["compare.py", "--seeds=4"], "versions": {"numba": "0.1"}}
    assert len(Journal(path, HEADER).runs) == 5


def test_older_results_have_versions_beside_their_header(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"header": HEADER, "versions": {"numba": "0.1"}}) + "\n")
    Journal(path, HEADER).add(run("auto", 2.0))
    assert json.loads(path.read_text().partition("\n")[0])["versions"] == {"numba": "0.1"}
    assert [*made_by(path)] == [1] and Journal(path, HEADER).runs


def test_a_journal_has_one_writer(tmp_path):
    path = tmp_path / "runs.jsonl"
    late, first = Journal(path, HEADER), Journal(path, HEADER)
    first.add(run("auto", 2.0))
    with pytest.raises(InputError, match="another process"):
        late.add(run("auto", 3.0))
    first.add(run("single", 3.0))
    assert Journal(path, HEADER).runs == first.runs


def test_a_trail_names_each_stage_once(tmp_path):
    path = tmp_path / "runs.jsonl"
    stages = ("heft", "heft", "metis", "heft", "heft")
    trail = tuple((i, 0.1, 9.0 - i, stage) for i, stage in enumerate(stages))
    Journal(path, HEADER).add(found := run("auto", 5.0, trail=trail))
    assert path.read_text().count('"heft"') == 2
    assert [*Journal(path, HEADER).runs.values()] == [found]


def test_values_of_other_types_are_told(tmp_path):
    path = tmp_path / "runs.jsonl"
    journal = Journal(path, HEADER)
    journal.add(Facts(CASE, 8, 8, 3, 1.0, "f"))
    journal.add(run("auto", 2.0, trail=((1, 0.1, 2.0, "x"),), ran_s=(1.0, 2.0)))
    text = path.read_text()
    for now, wrong in (
        ('"step_s": 2.0', '"step_s": "abc"'),
        ('"cpu_s": 0.1', '"cpu_s": null'),
        ('"seed": 0', '"seed": 0.5'),
        ('"ran_s": [1.0', '"ran_s": ["x"'),
        ('"ops": 8', '"ops": "8"'),
        ('"groups": 0', '"groups": []'),
    ):
        assert now in text
        path.write_text(text.replace(now, wrong))
        with pytest.raises(InputError, match=r'received \{"(run|facts)": .* in runs\.jsonl'):
            Journal(path, HEADER)
    path.write_text(text.replace('"step_s": 2.0', '"step_s": 2').replace('"bound_s": 1.0', '"bound_s": 1'))
    assert Journal(path, HEADER).runs == journal.runs  # a whole number is one of seconds too
