"""Plans of steps so small that every row can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.search.plans import layers, plan_of, seconds_of
from tfplace.core.plan import ALONE, STRATEGY, Plan
from tfplace.errors import ConstraintError, InfeasibleError, TopologyError
from tfplace.report.plan_table import verdict
from tfplace.sources import formulate
from tfplace.testing import make_graph
from tfplace.testing.problems import make_topology

AT_ONCE = {"bandwidth": 1e9, "latency": 0.0}
"""Links that take no time for a few bytes."""


def test_a_layer_that_splits():
    """4 examples take 4 s, the update 1 s: 5 s on one device; 2 + 1 s on two, in two slices or in four of 1 s each."""
    plan = plan_of(layers(make_topology(2, **AT_ONCE), [4.0], [4], update_s=1.0))
    seconds = seconds_of(plan)
    assert seconds.pop("one device (GPU:0)") == seconds.pop("placed") == 5.0
    assert {*seconds} >= {STRATEGY, "data_parallel, 2 slices", "data_parallel, 4 slices", "placed, 2 slices"}
    assert list(seconds.values()) == pytest.approx([3.0] * len(seconds), abs=1e-3)
    assert plan.chosen.way == STRATEGY  # which takes as long, and is simpler
    assert "1.67 times faster than one device" in verdict(plan)


def test_the_strategy_is_explained_too():
    """2 s for a slice and 1 s for the update become 1 and 0.5 s."""
    plan = plan_of(layers(make_topology(2, **AT_ONCE), [4.0], [4], update_s=1.0))
    found = plan.explain()
    assert found.chosen.name == STRATEGY and not found.chosen.waits and not found.layers
    assert found.against.name == "data_parallel, 2 slices"
    step_s = {one.change: one.step_s for one in found.changes}
    assert step_s["devices twice as fast"] == pytest.approx(1.5, abs=1e-3)
    assert step_s["links twice as fast"] == pytest.approx(3.0, abs=1e-3)
    assert "the busiest device computes 100 %" in found.summary()


def test_a_weight_that_takes_as_long_to_send_as_it_saves():
    """The second device gets the weight after 2 s, computes for 2 s, and sends a gradient for 2 s: 7 s with the update.

    The strategy has a copy of the weight on both. They exchange halves of the gradient twice, each for 1 s: 5 s.
    """
    plan = plan_of(layers(make_topology(2, bandwidth=1.0, latency=0.0), [4.0], [2], update_s=1.0))
    seconds = seconds_of(plan)
    assert seconds["one device (GPU:0)"] == seconds["placed, 2 slices"] == 5.0
    assert seconds["data_parallel, 2 slices"] == 7.0
    assert seconds[STRATEGY] == pytest.approx(5.0, abs=1e-3)
    assert plan.chosen.way == ALONE and plan.chosen.bottleneck == "computing on GPU:0 100 %"
    assert verdict(plan) == "stay on GPU:0: 5.00 s a step, and no way is over 1 % faster"


def two_layers(memory):
    """Two layers of 3 s, between which 4 bytes take 1 s. All that is held at once takes 28 bytes."""
    return plan_of(layers(make_topology(2, bandwidth=4.0, latency=0.0, memory=memory), [3.0, 3.0], [4, 4], most=1))


def test_a_step_that_fits_no_device_is_shared_out():
    plan = two_layers(memory=24)
    assert seconds_of(plan) == {"placed": 7.0, "one device (GPU:0)": np.inf}
    assert plan.chosen.bottleneck.endswith("sending GPU:1 to GPU:0 14 %")
    assert plan.row("one device (GPU:0)").bottleneck == "memory of GPU:0: 4 B more than it may use"
    with pytest.raises(InfeasibleError, match="needs 28 B, may use 24 B, 4 B over"):
        plan.take("one device (GPU:0)")
    assert plan.take("placed") is plan.placement


def test_what_would_help_is_simulated():
    """3 + 1 + 3 s become 1.5 + 1 + 1.5 or 3 + 0.5 + 3, and with 48 bytes one device does it in 6 s."""
    found = two_layers(memory=24).explain()
    changes = {one.change: (one.row, one.step_s, round(one.gain, 3)) for one in found.changes}
    assert changes == {
        "devices twice as fast": ("placed", 4.0, 0.429),
        "twice the memory on every device": ("one device (GPU:0)", 6.0, 0.143),
        "links twice as fast": ("placed", 6.5, 0.071),
        "latencies and overheads halved": ("placed", 7.0, 0.0),
    }
    assert [*changes] == [one.change for one in sorted(found.changes, key=lambda one: -one.gain)]
    assert found.advice == "devices twice as fast would help most: 43 % less time for each example"
    assert found.left_out == ("a batch twice as large: this source has one batch size",)
    assert found.against is None


def test_what_would_make_it_fit_is_told_where_nothing_does():
    found = two_layers(memory=14).explain()
    assert found.chosen is None and found.advice == "twice the memory on every device: one device (GPU:0) fits"
    assert two_layers(memory=7).explain().advice == "no change makes it fit"


def test_a_larger_batch_is_compared_by_the_example():
    """4 s for 4 examples and 1 s for the update: 8 + 1 s for 8 examples are 10 % less for each."""
    topology = make_topology(1)
    read = layers(topology, [4.0], [4], update_s=1.0)
    plan = plan_of(read, larger=layers(topology, [8.0], [4], update_s=1.0))
    (larger,) = [one for one in plan.explain().changes if "batch" in one.change]
    assert (larger.step_s, larger.gain) == (9.0, pytest.approx(0.1))
    other = plan_of(read, larger=layers(topology, [4.0, 4.0], [4, 4]))
    assert other.explain().left_out == ("a batch twice as large: its step has other ops",)


def test_the_same_seed_writes_the_same_files_but_for_seconds(tmp_path):
    for name in ("one", "other"):
        plan_of(layers(make_topology(2), [3.0, 1.0], [4, 4])).save(tmp_path / name)
    one, other = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "other"))
    assert len(one) > 5 and one.pop("seconds.json") != other.pop("seconds.json")
    assert one == other


@pytest.mark.parametrize(("types", "error"), [(["GPU"], ConstraintError), (["TPU"], TopologyError)])
def test_devices_that_cannot_run_the_model_are_refused(types, error):
    graph = make_graph({"a": 4}, cpu_only=["a"])
    with pytest.raises(error):
        plan_of(lambda slices: formulate(graph, make_topology(1, types=types)))


def test_what_fits_and_may_not_be_taken_is_told_with_what_is_in_its_way():
    plan = plan_of(layers(make_topology(1), [1.0], [4]))
    barred = replace(plan, rows=tuple(replace(row, obstacle="a rule forbids it") for row in plan.rows))
    assert barred.chosen is None
    assert verdict(barred) == "nothing that fits may be taken; one device (GPU:0) fits, but a rule forbids it"


def test_two_of_three_devices_may_be_best_for_the_strategy(tmp_path):
    """A layer of 3 s, a weight of 1 byte, 2 bytes/s. On two devices 1.5 s of compute, 0.5 s in which each sends half of
    its gradient and then half of the sum, and an update of 0.5 s; a ring of three has more turns than it saves."""
    topology = make_topology(3, bandwidth=2.0, latency=0.0)
    plan = plan_of(layers(topology, (3.0,), (1,), examples=12, most=6, update_s=0.5))
    row = plan.row("MirroredStrategy on 2 devices")
    assert row.on_part and row.cost.step_s == 2.5 and plan.row("MirroredStrategy").cost.step_s == 3.0
    plan.save(tmp_path)
    assert Plan.load(tmp_path).row(row.name).on_part
