"""Plans as data: rows by name, what may be taken, fingerprints, what changed, and files. Rows are written by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.report import cases
from tfplace.core.compilation import NONE, XLA
from tfplace.core.critical_path import Waiting
from tfplace.core.fidelity import BANDS, PROFILED
from tfplace.core.plan import ALONE, STRATEGY, Plan, PlanRow
from tfplace.core.plan_diff import RowDiff
from tfplace.errors import InfeasibleError, InputError, PlacementError, Shortage, UnknownNameError
from tfplace.testing import make_graph, make_topology

WAITS = (Waiting("GPU:0", 0.006), Waiting("GPU:0 to GPU:1", 0.004, sends=True))


def row(way, step_s, devices=(0, 0, 1), peak=(1, 1), **fields):
    placement = cases.placement(step_s)
    cost = cases.cost(step_s, peak=peak)
    placement = replace(placement, op_device=np.array(devices, np.int32), cost=cost)
    return PlanRow(way, (), NONE, cost, placement=fields.pop("placement", placement), **fields)


@pytest.fixture
def plan():
    rows = (
        row("placed", 0.010, error=BANDS[PROFILED, NONE], found_s=1.5, known_waits=WAITS),
        row(STRATEGY, 0.011, placement=None),
        row(ALONE, 0.020, devices=(0, 0, 0)),
        row("gpipe", 0.005, peak=(7, 1)),
    )
    return Plan(rows, "net", "2xTest", 32, graph_fingerprint="graph", topology_fingerprint="box")


def test_a_row_that_fits_is_taken_by_name(plan):
    assert plan.take("one device (GPU:0)") is plan.rows[2].placement
    with pytest.raises(UnknownNameError, match="Did you mean 'placed'"):
        plan.take("place")


def test_one_that_does_not_fit_says_how_many_bytes_are_missing(plan):
    assert plan.row("gpipe") is plan.rows[3]
    with pytest.raises(InfeasibleError, match=r"GPU:0: needs 7.00 GiB, may use 4.00 GiB[^$]*Take 'placed'") as caught:
        plan.take("gpipe")
    assert caught.value.shortages == (Shortage("GPU:0", 7 * cases.GIB, 4 * cases.GIB),)


def test_what_tensorflow_runs_has_no_placement_to_take(plan):
    with pytest.raises(InputError, match=r"tf\.distribute\.MirroredStrategy runs it"):
        plan.take(STRATEGY)
    barred = replace(plan, rows=(replace(plan.rows[0], obstacle="a rule"),))
    with pytest.raises(InputError, match="a rule"):
        barred.take("placed")


def test_bottlenecks_in_words(plan):
    told = [row.bottleneck for row in plan.rows]
    assert told[0] == "computing on GPU:0 60 %, sending GPU:0 to GPU:1 40 %"
    assert told[1] == "the busiest device computes 60 % and sends or receives 10 % of the step"
    assert told[2] == "GPU:0 computes 60 % and sends or receives 10 % of the step"
    assert told[3] == "memory of GPU:0: 3.00 GiB more than it may use"


def test_the_summary_says_of_the_chosen_row_why_how_sure_and_how_long(plan):
    text = plan.summary()
    said = " ".join(text.split())
    assert plan.rows[0].bottleneck in said and str(BANDS[PROFILED, NONE]) in said and "found in 1.50 s" in said
    table = text.partition("\n\n")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 100


def test_fingerprints_change_with_devices_and_not_with_seconds(plan):
    def changed(**fields):
        return replace(plan, rows=(replace(plan.rows[0], **fields), *plan.rows[1:])).fingerprint

    assert changed(found_s=2.5, measured_s=1.0, cost=cases.cost(0.5)) == plan.fingerprint
    elsewhere = replace(plan.rows[0].placement, op_device=np.array([0, 1, 1], np.int32))
    others = {changed(placement=elsewhere), changed(compile=XLA), replace(plan, graph_fingerprint="other").fingerprint}
    assert len(others | {plan.fingerprint}) == 4


def test_a_diff_tells_rows_that_changed_and_what_is_chosen(plan):
    other = replace(
        plan,
        rows=(
            row("placed", 0.012, devices=(1, 0, 1)),
            row("gpipe", 0.005),
            replace(plan.rows[1]),
            row("data_parallel", 0.030),
        ),
    )
    diff = plan.diff(other)
    assert diff.chosen == ("placed", "gpipe") and diff.chosen_s == (0.010, 0.005)
    assert diff.rows == (
        RowDiff("placed", 0.010, 0.012, moved=1),
        RowDiff("gpipe", 0.005, 0.005, (False, True)),
        RowDiff("data_parallel", None, 0.030),
        RowDiff("one device (GPU:0)", 0.020, None),
    )
    assert str(diff).splitlines() == [
        "chosen: placed, 10.0 ms -> gpipe, 5.00 ms",
        "placed: 10.0 ms -> 12.0 ms, 1 ops elsewhere",
        "gpipe: does not fit -> 5.00 ms",
        "data_parallel: new, 30.0 ms",
        "one device (GPU:0): gone, 20.0 ms",
    ]
    assert not plan.diff(plan).rows and str(plan.diff(plan)) == "the same rows"
    with pytest.raises(PlacementError, match="Another batch"):
        plan.diff(replace(plan, graph_fingerprint="another"))


def test_files_keep_it_all_and_seconds_apart(plan, tmp_path):
    plan.save(tmp_path / "one")
    replace(plan, rows=tuple(replace(row, found_s=9.0) for row in plan.rows)).save(tmp_path / "other")
    loaded = Plan.load(tmp_path / "one")
    assert loaded.fingerprint == plan.fingerprint and not plan.diff(loaded).rows
    assert loaded.summary() == plan.summary()
    assert [row.bottleneck for row in loaded.rows] == [row.bottleneck for row in plan.rows]
    texts = [{f.name: f.read_text() for f in (tmp_path / name).iterdir()} for name in ("one", "other")]
    assert texts[0].pop("seconds.json") != texts[1].pop("seconds.json")
    assert texts[0] == texts[1]


def test_files_of_the_first_format_are_read(plan, tmp_path):
    plan.save(tmp_path)
    data = json.loads((tmp_path / "plan.json").read_text()) | {"format": "tfplace-plan/1"}
    for row in data["rows"]:
        del row["error"], row["waits"]
    del data["graph_fingerprint"], data["topology_fingerprint"]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    (tmp_path / "seconds.json").unlink()
    old = Plan.load(tmp_path, graph=make_graph({"a": 1}))  # which nobody can tell
    assert [row.name for row in old.rows] == [row.name for row in plan.rows]
    assert old.chosen.error is None and old.chosen.found_s is None


def test_a_plan_of_another_graph_or_box_is_refused(plan, tmp_path):
    graph, topology = make_graph({"a": 4}), make_topology(2)
    prints = {"graph_fingerprint": graph.fingerprint, "topology_fingerprint": topology.fingerprint}
    replace(plan, **prints).save(tmp_path)
    assert Plan.load(tmp_path, graph=graph, topology=topology).chosen is not None
    with pytest.raises(PlacementError, match=r"\(net, 32 examples a step\).*Another batch"):
        Plan.load(tmp_path, graph=make_graph({"a": 8}))
    with pytest.raises(PlacementError, match="plan again"):
        Plan.load(tmp_path, topology=make_topology(3))


@pytest.mark.parametrize("wrong", ["[1]", "[1, 2, 3, {}]", "{", '"four"'])
def test_seconds_that_are_none_are_refused(plan, tmp_path, wrong):
    plan.save(tmp_path)
    (tmp_path / "seconds.json").write_text(wrong)
    with pytest.raises(PlacementError):
        Plan.load(tmp_path)
