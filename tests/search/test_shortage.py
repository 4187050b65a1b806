"""What a device holds when it holds most, and the ways out that fit the case."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfplace.core.constraints import Constraints
from tfplace.cost.analytic import analytic_costs
from tfplace.group.problem import formulate
from tfplace.search.shortage import infeasible
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_topology


def shortage_of(graph, devices, rules=None, workspace=0, **topology):
    made = make_topology(2, **topology)
    own = tuple(dataclasses.replace(device, workspace_bytes=workspace) for device in made.devices)
    made = dataclasses.replace(made, devices=own)
    problem = formulate(graph, made, analytic_costs(graph, made), rules or Constraints())
    op_device = problem.expand(np.array(devices, np.int32))
    return infeasible(problem, op_device, Simulator(problem).devices(op_device), tried=1)


def chain():
    """a is dead when c is made; v is a view of b; w is a variable."""
    return make_graph(
        {"w": 0, "a": 500, "b": 900, "v": 900, "c": 700, "d": 10},
        ["w -> a", "a -> b", "b -> v", "v -> c", "c -> d"],
        types={"v": "Reshape"},
        variables={"w": 300},
    )


def test_the_largest_are_those_alive_at_the_peak():
    error = shortage_of(chain(), [0] * 6, memory=1700)
    assert [s.device for s in error.shortages] == ["GPU:0"]
    # at the peak b, its view and c are alive, and a is not; the view has no memory of its own
    assert error.shortages[0].largest == (("b (result)", 900), ("c (result)", 700), ("w", 300))
    assert error.shortages[0].need_bytes == 1900


def test_what_was_sent_there_is_named_as_received():
    error = shortage_of(chain(), [0, 0, 0, 0, 1, 1], memory=[10_000, 1000])
    assert error.shortages[0].device == "GPU:1"
    assert dict(error.shortages[0].largest) == {"v (received)": 900, "c (result)": 700}


def test_ways_out_fit_the_case():
    plain = shortage_of(chain(), [0] * 6, memory=1700).ways_out
    assert not any("max_memory" in way or "Drop" in way for way in plain)
    assert any("Add the host's CPU" in way for way in plain)
    rules = Constraints(pin={"a": "GPU:0"}, max_memory={"GPU:0": 1700})
    ruled = shortage_of(chain(), [0] * 6, rules, memory=4000).ways_out
    assert ruled[0] == "Raise max_memory: GPU:0 by 200 B, to 1.86 KiB of its 3.91 KiB."
    assert any("Drop pin" in way for way in ruled)


def test_a_limit_that_is_not_all_that_is_missing_is_no_first_way_out():
    rules = Constraints(max_memory={"GPU:1": 500})
    error = shortage_of(chain(), [0, 0, 0, 0, 1, 1], rules, memory=[1650, 4000])
    assert [s.device for s in error.shortages] == ["GPU:0", "GPU:1"]
    assert error.ways_out[0].startswith("Make the batch smaller")
    assert error.ways_out[1].endswith("GPU:1 by 1.07 KiB, to 1.56 KiB of its 3.91 KiB; GPU:0 would still be over.")


def test_what_cannot_help_is_no_way_out():
    """Ops that may be on one device each."""
    pinned = shortage_of(chain(), [0] * 6, Constraints(pin={"*": "GPU:0"}, headroom=0.5), memory=3400).ways_out
    assert any("Raise max_memory or lower the headroom" in way for way in pinned)
    assert not any("budget" in way for way in pinned)


def test_what_kernels_need_is_counted_in_the_way_out():
    """It is taken off the device's memory, and off a limit too."""
    plain = shortage_of(chain(), [0] * 6, workspace=100, memory=1000).ways_out
    assert not any("max_memory" in way for way in plain)
    rules = Constraints(max_memory={"GPU:0": 1000})
    limited = shortage_of(chain(), [0] * 6, rules, workspace=100, memory=4000).ways_out
    assert limited[0].endswith("by 1000 B, to 1.95 KiB of its 3.91 KiB.")
    enough = Constraints(max_memory={"GPU:0": 2000})
    assert shortage_of(chain(), [0] * 6, enough, workspace=100, memory=4000).shortages == ()


def test_what_is_impossible_is_said_instead():
    """c reads and makes 1600 bytes."""
    error = shortage_of(chain(), [0] * 6, memory=1500)
    assert str(error).startswith("No device has room for Op 'c'")
    assert not any("budget" in way for way in error.ways_out)
