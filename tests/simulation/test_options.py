"""Every option on small steps computed by hand. Links move 1 byte per second without latency unless said otherwise."""

import dataclasses

import numpy as np
import pytest

from tests.simulation.varied import with_overheads
from tfplace.errors import InputError, UnknownNameError
from tfplace.simulation.evaluate import Simulator, simulate_devices, timeline_of
from tfplace.simulation.options import Options
from tfplace.testing import make_graph, make_problem, make_topology


class Step:
    """One simulated step: `devices` maps op names to device indices, `overheads` are those of every link."""

    def __init__(self, graph, seconds, devices, options, *, overheads=(0.0,) * 4, types="CPU"):
        count = max(devices.values()) + 1
        problem = make_problem(graph, make_topology(count, types=types, bandwidth=1.0, latency=0.0), seconds)
        pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
        problem = with_overheads(problem, dict.fromkeys(pairs, overheads))
        where = [devices.get(op, 0) for op in graph.op_names]
        simulator = Simulator(problem, options)
        self.cost, self.timeline, self.graph = simulator.devices(where), simulator.timeline(where), graph

    def times(self, *ops):
        found = [self.graph.index[op] for op in ops]
        return [(float(self.timeline.start_s[v]), float(self.timeline.finish_s[v])) for v in found]

    @property
    def wires(self):
        return list(zip(self.timeline.moved_start_s.tolist(), self.timeline.moved_finish_s.tolist(), strict=True))


def test_a_transfer_is_work_then_wire_then_work():
    graph = make_graph({"a": 4, "b": 0}, ["a -> b"])
    step = Step(graph, 1.0, {"b": 1}, Options(), overheads=(1.0, 0.25, 0.5, 0.5))
    # a 0-1, work 1-3, wire 3-7, work 7-9.5, b 9.5-10.5
    assert step.wires == [(3.0, 7.0)]
    assert step.times("b") == [(9.5, 10.5)]
    assert step.cost.compute_s.tolist() == [1.0, 1.0]
    assert step.cost.transfer_s.tolist() == [4.0, 4.0]
    assert step.cost.idle_s.tolist() == [10.5 - 1.0 - 2.0, 10.5 - 1.0 - 2.5]
    free = Step(graph, 1.0, {"b": 1}, Options(overheads=False), overheads=(1.0, 0.25, 0.5, 0.5))
    assert free.times("b") == [(5.0, 6.0)]
    assert free.cost.idle_s.tolist() == [5.0, 5.0]


def test_trips_multiply_the_work():
    graph = make_graph({"a": 4, "b": 0}, ["a -> b"], trips={"a": 3.0})
    step = Step(graph, {"a": 1.0, "b": 1.0}, {"b": 1}, Options(), overheads=(1.0, 0.25, 0.0, 0.0))
    assert step.wires == [(1.0 + 3 * 2.0, 7.0 + 12.0)]


@pytest.mark.parametrize(
    ("order", "others", "wire"),
    [("first", [(3.0, 6.0), (6.0, 9.0)], 3.0), ("in turn", [(1.0, 4.0), (4.0, 7.0)], 9.0)],
)
def test_sending_goes_before_waiting_ops_or_in_turn(order, others, wire):
    graph = make_graph({"a": 4, "c": 0, "d": 0, "b": 0}, ["a -> b"])
    seconds = {"a": 1.0, "c": 3.0, "d": 3.0, "b": 1.0}
    step = Step(graph, seconds, {"b": 1}, Options(overhead_order=order), overheads=(2.0, 0.0, 0.0, 0.0))
    assert step.times("c", "d") == others
    assert step.wires == [(wire, wire + 4.0)]


@pytest.mark.parametrize(
    ("order", "long", "read"),
    [("first", (0.0, 9.0), 10.0), ("preempt", (0.0, 10.0), 10.0), ("in turn", (0.0, 9.0), 12.0)],
)
def test_receiving_waits_for_the_op_at_hand_unless_it_preempts(order, long, read):
    graph = make_graph({"a": 4, "long": 0, "next": 0, "b": 0}, ["a -> b"])
    seconds = {"a": 1.0, "long": 9.0, "next": 2.0, "b": 1.0}
    step = Step(graph, seconds, {"long": 1, "next": 1, "b": 1}, Options(overhead_order=order), overheads=(0, 0, 1.0, 0))
    # the wire ends at 5 and asks for a second of device 1; "next" is ready since 0, b when it was given that second
    assert step.wires == [(1.0, 5.0)]
    assert step.times("long") == [long]
    assert step.times("b")[0][0] == read + (2.0 if order != "in turn" else 0.0)
    assert step.cost.idle_s[1] == 0.0


def test_work_that_preempts_is_done_one_after_the_other():
    graph = make_graph({"a": 1, "b": 1, "long": 0, "c": 0}, ["a -> c", "b -> c"])
    seconds = {"a": 1.0, "b": 1.0, "long": 6.0, "c": 1.0}
    devices = {"a": 0, "b": 1, "long": 2, "c": 2}
    step = Step(graph, seconds, devices, Options(overhead_order="preempt"), overheads=(0.0, 0.0, 2.0, 0.0))
    # a's byte comes at 2 and b's, which waits for the receiver's channel, at 3: work 2-4 and 4-6, so long ends at 10
    assert step.wires == [(1.0, 2.0), (2.0, 3.0)]
    assert step.times("long", "c") == [(0.0, 10.0), (10.0, 11.0)]


def test_last_ready_runs_first():
    graph = make_graph({"x": 0, "y": 0, "z": 0, "deep": 0}, ["^x -> deep"])
    step = Step(graph, 1.0, {"x": 0}, Options(order="lifo"))
    assert [step.times(op)[0][0] for op in ("x", "deep", "y", "z")] == [0.0, 1.0, 2.0, 3.0]
    fifo = Step(graph, 1.0, {"x": 0}, Options())
    assert [fifo.times(op)[0][0] for op in ("x", "y", "z", "deep")] == [0.0, 1.0, 2.0, 3.0]


def test_an_executor_goes_on_with_cheap_successors_and_hands_on_dear_ones():
    names = ["root", "other", "cheap1", "dear1", "dear2", "cheap2"]
    graph = make_graph(dict.fromkeys(names, 0), [f"^root -> {op}" for op in names[2:]])
    seconds = {op: 0.5 if op.startswith("cheap") else 2.0 for op in names}
    step = Step(graph, seconds, {"root": 0}, Options(order="inline", cheap_s=0.5))
    began = sorted(names, key=lambda op: step.times(op)[0][0])
    # the cheap ones at once; then the newest of the pool; what was there from the start comes last
    assert began == ["root", "cheap1", "cheap2", "dear2", "dear1", "other"]
    on_gpu = Step(graph, seconds, {"root": 0}, Options(order="inline", cheap_s=0.5), types="GPU")
    assert sorted(names, key=lambda op: on_gpu.times(op)[0][0]) == ["root", *names[2:], "other"]


def test_an_executor_keeps_the_last_dear_one_if_nothing_is_cheap():
    names = ["root", "dear1", "dear2", "after2"]
    graph = make_graph(dict.fromkeys(names, 0), ["^root -> dear1", "^root -> dear2", "^dear2 -> after2"])
    step = Step(graph, 2.0, {"root": 0}, Options(order="inline", cheap_s=0.5))
    assert sorted(names, key=lambda op: step.times(op)[0][0]) == ["root", "dear2", "after2", "dear1"]


def test_a_random_order_depends_on_its_seed_alone():
    graph = make_graph({f"op{i}": 0 for i in range(20)})
    starts = [
        Step(graph, 1.0, {"op0": 0}, Options(order="random", seed=seed)).timeline.start_s.tolist() for seed in (1, 1, 2)
    ]
    assert starts[0] == starts[1] != starts[2]
    assert sorted(starts[0]) == sorted(starts[2]) == list(map(float, range(20)))


def test_ops_at_once_share_the_core():
    graph = make_graph({"a": 0, "b": 0, "c": 0})
    step = Step(graph, {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0}, Options(parallel=2))
    # a and b at half speed until 2; b has 1 left and shares with c until 4; c has 2 left
    assert step.times("a", "b", "c") == [(0.0, 2.0), (0.0, 4.0), (2.0, 6.0)]
    assert step.cost.compute_s.tolist() == [6.0]
    assert step.timeline.parallel == 2
    alone = Step(graph, {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0}, Options(parallel=3))
    assert alone.times("a", "b", "c") == [(0.0, 3.0), (0.0, 5.0), (0.0, 6.0)]


def test_ops_at_once_wait_together_for_work_that_preempts():
    graph = make_graph({"a": 2, "b": 0, "x": 0, "y": 0}, ["a -> b"])
    seconds = {"a": 1.0, "b": 1.0, "x": 4.0, "y": 4.0}
    devices = {"b": 1, "x": 1, "y": 1}
    options = Options(parallel=2, overhead_order="preempt")
    step = Step(graph, seconds, devices, options, overheads=(0.0, 0.0, 3.0, 0.0))
    # x and y would both end at 8; the work takes 3-6
    assert step.times("x", "y", "b") == [(0.0, 11.0), (0.0, 11.0), (11.0, 12.0)]


def host_problem():
    graph = make_graph(
        {"shape": 2, "use": 4, "look": 0, "back": 0, "reshape": 0},
        ["shape -> use", "use -> look", "use -> back", "use -> reshape", "shape -> reshape"],
        types={"look": "Shape", "reshape": "Reshape"},
        host_memory=["shape", "look", "back"],
    )
    return make_problem(graph, make_topology(2, types=["CPU", "GPU"], bandwidth=1.0, latency=0.0), 1.0)


def test_the_two_memories_of_a_device_cost_a_copy():
    timeline = timeline_of(host_problem(), [1] * 5, Options(host_copies=True))
    times = dict(zip(timeline.op_names, timeline.start_s.tolist(), strict=True))
    # shape 0-1, copied to the GPU 1-3, use 3-4; then what needs no copy; use's 4 bytes come back to the host at 8
    assert times == {"shape": 0.0, "use": 3.0, "look": 4.0, "reshape": 5.0, "back": 8.0}
    assert list(zip(timeline.moved, timeline.moved_src.tolist(), timeline.moved_dst.tolist(), strict=True)) == [
        ("shape", 0, 1),
        ("use", 1, 0),
    ]
    assert timeline.memory_bytes[timeline.memory_device == 0].tolist() == [0]


def test_a_cpu_has_one_memory_and_copies_are_an_option():
    problem = host_problem()
    for devices, options in (([0] * 5, Options(host_copies=True)), ([1] * 5, Options())):
        assert Simulator(problem, options).devices(devices).step_s == 5.0
    gpus = dataclasses.replace(problem, topology=make_topology(2, bandwidth=1.0, latency=0.0))
    assert Simulator(gpus, Options(host_copies=True)).devices([1] * 5).step_s == 5.0


def test_handles_need_no_copies():
    problem = host_problem()
    graph = dataclasses.replace(problem.graph, tensor_dtype=("resource",) * problem.graph.num_tensors)
    problem = dataclasses.replace(problem, graph=graph)
    assert Simulator(problem, Options(host_copies=True)).devices([1] * 5).step_s == 5.0


def test_functions_take_options():
    problem = host_problem()
    named = dict.fromkeys(problem.graph.op_names, "GPU:0")
    assert simulate_devices(problem, named).step_s == 5.0
    assert simulate_devices(problem, named, Options(host_copies=True)).step_s == 9.0


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"order": "fif"}, UnknownNameError, "order 'fif'; expected one of .*fifo.*Did you mean 'fifo'"),
        (
            {"overhead_order": "last"},
            UnknownNameError,
            "overhead order 'last'; expected one of first, in turn, preempt",
        ),
        ({"parallel": 0}, InputError, "parallel 0; expected at least 1"),
        ({"cheap_s": -1.0}, InputError, "cheap_s -1.0; expected seconds of at least 0"),
        ({"cheap_s": np.nan}, InputError, "cheap_s nan"),
    ],
)
def test_wrong_options_are_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        Options(**wrong)
