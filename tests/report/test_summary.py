import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests import splitting
from tests.report.cases import cost, placement
from tfplace.core.stepcost import Failure, FailureKind
from tfplace.report.facts import placement_facts, shared_line
from tfplace.report.html import placement_html
from tfplace.report.summary import summary_tables
from tfplace.search.place import search_placement
from tfplace.testing import make_problem, make_topology


def test_says_how_much_faster_than_the_best_single_device():
    text = placement(0.010, {"single GPU:0": cost(0.0142), "single GPU:1": cost(0.020), "heft": cost(0.012)}).summary()
    assert "1.42 times faster than the best single device (GPU:0)" in text
    assert re.search(r"heft\s+12.0 ms\s+1.20 times slower", text)
    assert "within 25.0 % of the bound of 8.00 ms" in text


def test_small_differences_are_percentages():
    text = placement(0.010, {"single GPU:0": cost(0.0102)}, bound_s=0.004).summary()
    assert "2.0 % faster than the best single device (GPU:0)" in text
    assert "2.5 times the bound of 4.00 ms" in text


def test_says_stay_when_nothing_is_gained():
    assert "stay on GPU:1: no faster placement" in placement(0.010, {"single GPU:1": cost(0.010)}).summary()
    text = placement(0.012, {"single GPU:1": cost(0.010)}, placer="heft").summary()
    assert "stay on GPU:1: this placement is 1.20 times slower" in text


def test_says_which_baseline_is_better_than_both():
    baselines = {"single GPU:1": cost(0.010), "heft": cost(0.008), "expert": cost(0.009)}
    said = placement(0.012, baselines).summary()
    assert "take heft: 1.50 times faster than this placement, 1.25 times faster than GPU:1" in said
    assert "faster than the best single device (GPU:1)" in placement(0.0075, baselines).summary()


def test_a_baseline_that_does_not_fit_has_no_step_time():
    misfit = cost(0.123456, peak=(2, 6.5))
    text = placement(0.010, {"single GPU:1": misfit}).summary()
    assert re.search(r"single GPU:1\s+-\s+does not fit \(needs 6.50 GiB of 4.00 GiB on GPU:1\)", text)
    assert "no single device fits; this placement does" in text
    assert "123 ms" not in text
    beaten = placement(0.010, {"single GPU:1": misfit, "expert": cost(0.005)}).summary()
    assert "no single device fits; take expert: 2.00 times faster than this placement" in beaten


def test_every_device_has_a_row_labelled_simulated():
    text = placement().summary()
    assert "Devices (simulated)" in text
    assert re.search(r"GPU:0\s+2\s+6.00 ms\s+1.00 ms\s+40 %\s+1.00 GiB\s+4.00 GiB", text)
    assert re.search(r"GPU:1\s+1\s+3.00 ms\s+2.00 ms\s+70 %", text)
    assert "not compared with single devices" in text


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "COLUMNS"])
def test_text_is_plain_whatever_the_terminal(monkeypatch, variable):
    plain = placement().summary()
    monkeypatch.setenv(variable, "40")
    assert placement().summary() == plain
    assert "\x1b" not in plain


def test_a_step_of_no_time_beside_one_that_takes_some():
    text = placement(0.010, {"single GPU:0": cost(0.0)}).summary()
    assert "stay on GPU:0: this placement is infinitely many times slower" in text
    assert re.search(r"single GPU:0\s+0 s\s+infinitely many times faster", text)
    text = placement(0.0, {"single GPU:0": cost(0.010)}, bound_s=0.0).summary()
    assert "infinitely many times faster than the best single device (GPU:0)" in text
    assert re.search(r"single GPU:0\s+10.0 ms\s+infinitely many times slower", text)


def test_an_empty_step_is_no_error():
    assert "simulated step time 0 s" in placement(0.0, {"single GPU:0": cost(0.0)}, bound_s=0.0).summary()


def test_messages_of_tensorflow_are_shown_as_they_are():
    failure = Failure(FailureKind.NO_KERNEL, "nothing for [/device:GPU:0] [bold] at host:100:", "GPU:0")
    failed = placement(0.010, {"single GPU:0": replace(cost(0.012), failure=failure)}, placer="[red]mine")
    assert "nothing for [/device:GPU:0] [bold] at host:100:" in " ".join(failed.summary().split())
    assert "this one, by [red]mine" in failed.summary()
    shown = Console(file=io.StringIO(), width=200)  # with styles, such as a user's own
    shown.print(summary_tables(failed))
    assert "[/device:GPU:0] [bold] at host:100:" in shown.file.getvalue()


TASK = "/job:worker/replica:0/task:"


@pytest.mark.parametrize(
    ("names", "mapped", "shared"),
    [
        (("CPU:0", "CPU:1"), None, True),
        (("CPU:0", "GPU:0"), None, False),
        (("GPU:0", "GPU:1"), None, False),
        ((f"{TASK}0/device:CPU:0", f"{TASK}1/device:CPU:0"), None, False),
        ((f"{TASK}1/device:CPU:0", f"{TASK}1/device:CPU:1"), None, True),
        (("GPU:0", "GPU:1"), {"GPU:0": "CPU:0", "GPU:1": "CPU:1"}, True),
        (("GPU:0", "GPU:1"), {"GPU:1": "GPU:0"}, True),
        (("CPU:0", "CPU:1"), {"CPU:1": "GPU:0"}, False),
    ],
)
def test_says_which_devices_are_the_same_cores(names, mapped, shared):
    made = replace(placement(), device_names=names)
    line = shared_line(made, mapped)
    assert all(name in line for name in names) == shared
    if mapped is None:
        assert ("same cores" in made.summary()) == shared
        assert placement_facts(made)["sharing_cores"] == ([[*names]] if shared else [])


def test_nothing_is_said_of_cores_of_unused_devices_or_in_measured_times():
    made = replace(placement(), device_names=("CPU:0", "CPU:1"))
    alone = replace(made, op_device=np.zeros(3, np.int32))
    measured = replace(made, cost=replace(made.cost, source="measured"), simulated=made.cost)
    assert not shared_line(alone)
    assert not shared_line(measured)


def test_the_order_of_phases_is_said_where_it_is_not_free():
    free = placement()
    ordered = replace(free, phases=np.array([0, 1, 0], np.int32), order="1f1b")
    (line,) = set(ordered.summary().splitlines()) - set(free.summary().splitlines())
    assert all(text in line for text in ("1f1b", "2 on GPU:0", "1 on GPU:1"))
    assert placement_facts(ordered)["order"] == "1f1b"


def test_a_split_step_is_said_to_be_one_in_text_on_pages_and_in_json():
    problem = make_problem(splitting.split(), make_topology(2))
    placed = search_placement(problem, placer="single", budget=2)
    line = "2 slices of 12 and 4 examples: differs: BatchNorm statistics are per slice"
    assert line in placed.summary() and line in placement_html(placed)
    assert json.loads(json.dumps(placement_facts(placed)))["slices"] == {
        "sizes": [12, 4],
        "verdict": problem.graph.slices.verdict,
        "differences": [{"kind": "statistics", "ops": ["norm"]}, {"kind": "draws", "ops": ["drop/random"]}],
        "gathered": ["loss"],
    }
    exact = search_placement(make_problem(splitting.split(()), make_topology(2)), placer="single", budget=2)
    assert "2 slices of 12 and 4 examples: same numbers up to summation order\n" in exact.summary()
    whole = search_placement(make_problem(splitting.whole(), make_topology(2)), placer="single", budget=2)
    assert "slices" not in whole.summary() and placement_facts(whole)["slices"] is None
