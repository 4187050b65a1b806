"""The study that runs split steps: what counts of its turns, and what its table says."""

import pytest

from research.benchmarks.slices_running.losses import check, difference
from research.benchmarks.slices_running.mirrored import Peer, PeerError
from research.benchmarks.slices_running.page import text
from research.benchmarks.slices_running.running import Turns, take_turns


def turns_of(steps, disturbances=(), **options):
    given = iter(disturbances)
    settings = {"turns": 4, "limit_s": 100.0, "seed": 0} | options
    return take_turns(steps, lambda: 2.0, lambda: next(given, 0.0), lambda error: None, **settings)


def test_each_step_is_compared_to_the_reference_of_its_own_turn():
    found = turns_of({"half": lambda: 1.0, "twice": lambda: 4.0})
    assert found["half"].to_dict(4)["measured"] == [0.5] * 4
    assert found["twice"].to_dict(4)["measured"] == [2.0] * 4


def test_the_least_disturbed_turns_count_in_their_order():
    found = Turns([(1.0, 1.0, 0.5), (2.0, 1.0, 0.0), (3.0, 1.0, 0.2), (4.0, 1.0, 0.01)])
    assert found.to_dict(3)["measured"] == [2.0, 3.0, 4.0]
    assert found.to_dict(3)["disturbed"] == 1


def test_disturbed_turns_are_made_up_for_but_not_for_ever():
    calls = []
    turns_of({"step": lambda: calls.append(0) or 1.0}, iter(lambda: 1.0, None))
    assert len(calls) == 3 + 2 * 4  # warm-up, and twice the turns that should count


def test_a_step_that_fails_says_why_and_the_others_go_on():
    def failing():
        raise PeerError("no network namespace")

    found = turns_of({"peer": failing, "step": lambda: 1.0})
    assert found["peer"].failed == "no network namespace" and not found["peer"].pairs
    assert len(found["step"].pairs) == 4


def test_an_error_that_says_nothing_of_the_step_is_raised():
    def wrong():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turns_of({"step": wrong})


def test_other_losses_are_told():
    check("same", difference([2.0, 1.00001], [2.0, 1.0]))
    with pytest.raises(AssertionError, match=r"cnn, K=2: losses differ by 1\.0e-02"):
        check("cnn, K=2", difference([2.0, 1.01], [2.0, 1.0]))


def test_the_table_has_measured_and_simulated_ratios():
    one = {"measured": [1.0], "measured_s": [0.1], "failed": None, "simulated_s": 0.2}
    half = {"measured": [0.4, 0.5, 0.6], "measured_s": [], "failed": None, "simulated_s": 0.09}
    peer = {"measured": [], "measured_s": [], "failed": "it ended"}
    lines = text({"models": [{"model": "cnn", "variants": {"one worker": one, "K=2": half, "peer": peer}}]})
    assert "| cnn   | 100 ms     | 0.50 (0.45..0.55), 0.45 | it ended |" in lines


def test_without_network_namespaces_the_peer_says_why(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(PeerError, match="no network namespace"):
        Peer([0, 1])


def test_a_peer_whose_processes_end_says_so(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(PeerError, match=r"it ended|no network namespace"):  # the latter where none may be made
        Peer([0, 1])
