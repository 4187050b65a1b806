"""What a run directory has on disk, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import numpy as np
import pytest

from tests.search.runs import Counting, facts, problem_of, run
from tfplace.core.search_context import BudgetSpentError
from tfplace.core.stepcost import MEASURED
from tfplace.errors import InputError, UnknownNameError
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.records import RECORD, Lines, Records
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options


def test_a_torn_record_and_a_torn_line_are_cut_off(tmp_path):
    whole, _ = run(tmp_path / "whole", "local_search", 300)
    run(tmp_path / "cut", "local_search", 300, last=150)
    with (tmp_path / "cut" / "evaluations.bin").open("ab") as file:
        file.write(b"\x01" * (RECORD.itemsize - 1))
    with (tmp_path / "cut" / "improvements.jsonl").open("ab") as file:
        file.write(b'{"evaluations": 151, "sec')
    assert run(tmp_path / "cut", "local_search", 300)[0].best_key == whole.best_key
    assert facts(tmp_path / "cut" / "improvements.jsonl") == facts(tmp_path / "whole" / "improvements.jsonl")


def test_other_placements_than_recorded_are_refused(tmp_path):
    run(tmp_path, "random_search", 100, last=50)
    with pytest.raises(InputError, match=r"evaluation \d+ with another placement .* not deterministic"):
        run(tmp_path, "random_search", 100, seed=1)


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    (tmp_path / "best.npz.123.part").write_bytes(b"half")
    (tmp_path / "theirs.part").write_bytes(b"half")
    with RunDirectory(tmp_path, {}):
        assert [p.name for p in tmp_path.glob("*.part")] == ["theirs.part"]


def test_nothing_is_removed_from_a_directory_that_is_refused(tmp_path):
    for name in ("theirs.txt", "best.npz.123.part"):
        (tmp_path / name).write_bytes(b"half")
    with pytest.raises(InputError, match="no config"):
        RunDirectory(tmp_path, {})
    assert (tmp_path / "best.npz.123.part").exists()


def test_a_second_process_is_refused(tmp_path):
    with RunDirectory(tmp_path, {}):
        code = f"from tfplace.search.rundir import RunDirectory; RunDirectory({str(tmp_path)!r}, {{}})"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "which another process is using" in second.stderr
    RunDirectory(tmp_path, {}).close()


def test_a_run_of_something_else_is_refused(tmp_path):
    RunDirectory(tmp_path, {"placer": "auto", "versions": {"tfplace": "1"}}).close()
    RunDirectory(tmp_path, {"placer": "auto", "versions": {"tfplace": "2"}}).close()
    with pytest.raises(InputError, match=r"a run with placer 'heft' .* 'auto', as when the run began"):
        RunDirectory(tmp_path, {"placer": "heft"})
    with pytest.raises(InputError, match=r"a run with other weights in .* the weights, as when the run began"):
        RunDirectory(tmp_path, {"placer": "auto", "weights": "0123456789abcdef"})
    with pytest.raises(InputError, match="which has a run already"):
        RunDirectory(tmp_path, {"placer": "auto"}, resume=False)
    RunDirectory(tmp_path, {"placer": "auto"}).close()  # what was refused holds no lock


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"'thesis.tex' but no config.json"):
        RunDirectory(tmp_path, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a directory that can be made"):
        RunDirectory(tmp_path / "file", {})


@pytest.mark.parametrize("name", ["config.json", "improvements.jsonl", "metrics.jsonl", "scale.json", "best.npz"])
@pytest.mark.parametrize("content", [b"nonsense\n", b"[" * 100_000 + b"\n", b'["evaluations"]\n', b'"x"\n'])
def test_damage_is_said(tmp_path, name, content):
    run(tmp_path, "local_search", 50)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}, which is damaged"):
        RunDirectory(tmp_path, {"placer": "local_search"})


def test_a_line_of_endless_evaluations_is_said_to_be_damaged(tmp_path):
    run(tmp_path, "local_search", 50)
    (tmp_path / "improvements.jsonl").write_text('{"evaluations": 1e400}\n')
    with pytest.raises(InputError, match=r"improvements\.jsonl, which is damaged"):
        RunDirectory(tmp_path, {"placer": "local_search"})


@pytest.mark.parametrize("size", [0, 4, 200])
def test_arrays_that_are_cut_off_are_said_to_be_damaged(tmp_path, size):
    with RunDirectory(tmp_path, {}) as directory:
        directory.improved(np.zeros(100, np.int32), (0, 1.0), 1, 0.0, "x")
        directory.save_checkpoint({"mean": np.zeros(100)})
        for name in ("best.npz", "checkpoint.npz"):
            (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:size])
        with pytest.raises(InputError, match=r"checkpoint.npz, which is damaged.*Delete it"):
            directory.load_checkpoint()
    with pytest.raises(InputError, match=r"best.npz, which is damaged"):
        RunDirectory(tmp_path, {})


class Called(Counting):
    """Counts what is evaluated outside of the search, too."""

    def __init__(self, problem):
        super().__init__(problem, source=MEASURED)
        self.called = 0

    def __call__(self, unit_device):
        self.called += 1
        return super().__call__(unit_device)


def test_a_directory_of_another_search_is_refused_before_anything_is_evaluated(tmp_path):
    def place(evaluator, **settings):
        given = {"placer": "random_search", "budget": 5, "evaluator": evaluator, "run_dir": tmp_path, **settings}
        search_placement(evaluator.problem, **given)

    first, again, other = (Called(problem_of()) for _ in range(3))
    place(first)
    place(again)
    every = 3 + 3 + 1  # single devices, baselines and the answer: these are evaluated again, and nothing else
    assert (first.called, again.called) == (every, every)
    assert first.asked == 5 and again.asked == 0
    for change in ({"seed": 1}, {"resume": False}):
        with pytest.raises(InputError, match=r"as when the run began|which has a run already"):
            place(other, **change)
    assert other.called == 0


def test_unknown_baselines_begin_no_run(tmp_path):
    with pytest.raises(UnknownNameError, match="no_such"):
        search_placement(problem_of(), placer="random", budget=5, baselines=("no_such",), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_simulator_with_other_options_is_another_run(tmp_path):
    wanted = {"placer": "heft", "budget": 10, "baselines": (), "run_dir": tmp_path}
    problem = problem_of()
    search_placement(problem, **wanted)
    search_placement(problem, evaluator=Simulator(problem, Options()), **wanted)
    with pytest.raises(InputError, match=r"a run with options .*parallel=2"):
        search_placement(problem, evaluator=Simulator(problem, Options(parallel=2)), **wanted)


def test_records_are_on_disk_without_being_closed(tmp_path):
    with contextlib.closing(Records(tmp_path / "r")) as records:
        records.add(np.zeros((3, 4), np.int32), np.zeros(3, np.int64), np.arange(3.0), 1.5)
        records.flush()
        with contextlib.closing(Records(tmp_path / "r")) as others:
            assert others.known["step_s"].tolist() == [0.0, 1.0, 2.0]
            assert others.seconds == 1.5


def test_lines_are_in_order_and_said_once(tmp_path):
    with contextlib.closing(Lines(tmp_path / "l")) as lines:
        for evaluations in (1, 3, 2, 3, 4):
            lines.add(evaluations, {"x": evaluations})
    with contextlib.closing(Lines(tmp_path / "l")) as lines:
        assert lines.last == 4
    assert [json.loads(line)["x"] for line in (tmp_path / "l").read_text().splitlines()] == [1, 3, 4]


def test_a_spent_budget_is_told_as_such(tmp_path):
    search, _ = run(tmp_path, "random_search", 20)
    with RunDirectory(tmp_path, {"placer": "random_search"}) as directory:
        again = Search(problem_of(), Budget(evaluations=20), 0, run=directory)
        again.run(PLACERS["random_search"](), "x")
        with pytest.raises(BudgetSpentError):
            again.context("more").key(again.best)
    assert again.best_key == search.best_key
