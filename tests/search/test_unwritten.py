"""A disk that takes no more ends a search with what it has, and the same call goes on once there is room."""

import contextlib
import resource
import signal

import pytest

from tests.search.test_rundir import problem_of, run
from tfplace.errors import InputError, UnwrittenError
from tfplace.search.place import search_placement
from tfplace.search.rundir import RunDirectory


@contextlib.contextmanager
def no_file_longer_than(length):
    """What the operating system does when there is no room, but without filling a disk."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, ignored)


def place(path, budget="900 evaluations"):
    return search_placement(problem_of(), placer="annealing", budget=budget, baselines=(), run_dir=path)


@pytest.mark.parametrize("length", [8_000, 20_000])
def test_what_was_found_is_given_and_said_and_gone_on_with(tmp_path, length):
    with no_file_longer_than(length):
        found = place(tmp_path / "run")
    assert any("the run directory stopped" in note and "File too large" in note for note in found.notes)
    assert not [path for path in (tmp_path / "run").iterdir() if path.suffix == ".part"]
    whole, again = place(tmp_path / "whole"), place(tmp_path / "run")
    assert not again.notes and again.cost.step_s == whole.cost.step_s <= found.cost.step_s
    assert again.devices == whole.devices


def test_no_room_from_the_beginning(tmp_path):
    with no_file_longer_than(100), pytest.raises(UnwrittenError, match="could not be written"):
        place(tmp_path)


def test_a_directory_is_not_written_to_after_it_refused(tmp_path):
    run(tmp_path, "annealing", "50 evaluations")
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with RunDirectory(tmp_path, {"placer": "annealing"}) as directory, no_file_longer_than(10):  # noqa: SIM117
        with pytest.raises(UnwrittenError):
            directory.save_checkpoint({"weights": problem_of().costs.compute_s})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("name", ["evaluations.bin", "improvements.jsonl", "metrics.jsonl", "best.npz", "lock"])
def test_a_directory_where_a_file_is_meant(tmp_path, name):
    run(tmp_path, "annealing", "50 evaluations")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="directory"):
        run(tmp_path, "annealing", "50 evaluations")
