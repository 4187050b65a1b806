"""Small steps computed by hand. Links move 1 byte per second without latency unless said otherwise."""

import numpy as np
import pytest

from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology

LINKS = {"bandwidth": 1.0, "latency": 0.0}


class Step:
    """One simulated step: `devices` maps op names to device indices."""

    def __init__(self, graph, seconds, devices, **topology):
        count = max(devices.values()) + 1
        problem = make_problem(graph, make_topology(count, **{**LINKS, **topology}), seconds)
        op_device = [devices.get(op, 0) for op in graph.op_names]
        self.graph = graph
        self.cost = Simulator(problem).devices(op_device)
        self.timeline = Simulator(problem).timeline(op_device)

    def times(self, op):
        v = self.graph.index[op]
        return self.timeline.start_s[v], self.timeline.finish_s[v]

    @property
    def moves(self):
        t = self.timeline
        return list(
            zip(t.moved, t.moved_dst.tolist(), t.moved_start_s.tolist(), t.moved_finish_s.tolist(), strict=True)
        )

    def memory(self, device):
        mine = self.timeline.memory_device == device
        return list(zip(self.timeline.memory_s[mine].tolist(), self.timeline.memory_bytes[mine].tolist(), strict=True))


def test_chain_over_two_devices():
    graph = make_graph({"a": 3, "b": 5, "c": 1}, ["a -> b", "b -> c"])
    step = Step(graph, 1.0, {"a": 0, "b": 1, "c": 0}, latency=0.5)
    # a 0-1, sent 1-4.5, b 4.5-5.5, sent 5.5-11, c 11-12
    assert step.moves == [("a", 1, 1.0, 4.5), ("b", 0, 5.5, 11.0)]
    assert step.times("c") == (11.0, 12.0)
    assert step.cost.step_s == 12.0
    assert step.cost.compute_s.tolist() == [2.0, 1.0]
    assert step.cost.idle_s.tolist() == [10.0, 11.0]
    assert step.cost.transfer_s.tolist() == [9.0, 9.0]
    assert step.cost.moved_bytes == 8


def test_fork_and_join_on_two_devices():
    graph = make_graph({"a": 1, "b": 1, "c": 1, "d": 0}, ["a -> b", "a -> c", "b -> d", "c -> d"])
    step = Step(graph, {"a": 1.0, "b": 4.0, "c": 2.0, "d": 1.0}, {"b": 0, "c": 1})
    # b 1-5 here; a sent 1-2, c 2-4 there, sent back 4-5
    assert step.times("c") == (2.0, 4.0)
    assert step.times("d") == (5.0, 6.0)
    alone = Step(graph, {"a": 1.0, "b": 4.0, "c": 2.0, "d": 1.0}, {"b": 0, "c": 0})
    assert alone.cost.step_s == 8.0
    assert alone.cost.moved_bytes == 0


def test_two_readers_on_one_device_share_one_transfer():
    graph = make_graph({"a": 4, "b": 0, "c": 0}, ["a -> b", "a -> c"])
    step = Step(graph, 1.0, {"b": 1, "c": 1})
    assert step.moves == [("a", 1, 1.0, 5.0)]
    assert step.times("b") == (5.0, 6.0)
    assert step.times("c") == (6.0, 7.0)


def test_a_receiver_takes_one_transfer_at_a_time():
    graph = make_graph({"a": 4, "b": 2, "c": 0}, ["a -> c", "b -> c"])
    step = Step(graph, 1.0, {"a": 0, "b": 1, "c": 2})
    assert step.moves == [("a", 2, 1.0, 5.0), ("b", 2, 5.0, 7.0)]
    assert step.times("c") == (7.0, 8.0)


def test_a_sender_sends_to_one_device_at_a_time_and_ports_lift_that():
    graph = make_graph({"a": 4, "b": 0, "c": 0}, ["a -> c", "a -> b"])
    devices = {"b": 1, "c": 2}
    assert Step(graph, 1.0, devices).moves == [("a", 1, 1.0, 5.0), ("a", 2, 5.0, 9.0)]
    ported = Step(graph, 1.0, devices, ports={(0, 2): "second"})
    assert ported.moves == [("a", 1, 1.0, 5.0), ("a", 2, 1.0, 5.0)]
    assert ported.cost.transfer_s.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize(("duplex", "second"), [("full", (1.0, 4.0)), ("half", (5.0, 8.0))])
def test_a_half_duplex_device_does_not_send_while_it_receives(duplex, second):
    graph = make_graph({"a": 4, "b": 3, "c": 0, "d": 0}, ["a -> c", "b -> d"])
    step = Step(graph, 1.0, {"a": 0, "b": 1, "c": 1, "d": 0}, duplex=duplex)
    assert step.moves == [("a", 1, 1.0, 5.0), ("b", 0, *second)]


def test_a_shared_channel_serves_in_the_order_of_requests_without_filling_gaps():
    graph = make_graph({"a": 4, "b": 2, "c": 2, "x": 0, "y": 0}, ["a -> x", "b -> x", "c -> y"])
    # a: 0 -> 2 at 1-5 on the switch; b: 1 -> 2 waits for device 2 and the switch until 5-7; c: 3 -> 1 is asked for
    # last and waits for the switch until 7, though it is needed first.
    seconds = {"a": 1.0, "b": 1.5, "c": 2.0, "x": 1.0, "y": 1.0}
    switch = {pair: ["switch"] for pair in [(0, 2), (1, 2), (3, 1)]}
    step = Step(graph, seconds, {"a": 0, "b": 1, "c": 3, "x": 2, "y": 1}, shared=switch)
    assert step.moves == [("a", 2, 1.0, 5.0), ("b", 2, 5.0, 7.0), ("c", 1, 7.0, 9.0)]
    free = Step(graph, seconds, {"a": 0, "b": 1, "c": 3, "x": 2, "y": 1})
    assert free.moves[2] == ("c", 1, 2.0, 4.0)


def test_first_ready_runs_first_and_ties_go_to_the_lower_op():
    graph = make_graph({"late": 0, "x": 0, "y": 0, "z": 0}, ["^late -> x"])
    step = Step(graph, {"late": 1.0, "x": 1.0, "y": 1.0, "z": 1.0}, {"late": 0})
    # late, y and z are ready at 0, x only at 1
    assert [step.times(op)[0] for op in ("late", "y", "z", "x")] == [0.0, 1.0, 2.0, 3.0]


def test_a_control_edge_sends_an_empty_message_of_its_own():
    graph = make_graph({"a": 4, "b": 0, "c": 0}, ["a -> b", "^a -> c"])
    step = Step(graph, 1.0, {"b": 1, "c": 1}, latency=0.5)
    assert step.moves == [("a", 1, 1.0, 5.5), ("a", 1, 5.5, 6.0)]
    assert step.cost.moved_bytes == 4


def test_trips_multiply_what_is_sent():
    graph = make_graph({"a": 4, "b": 0}, ["a -> b"], trips={"a": 3.0})
    step = Step(graph, {"a": 3.0, "b": 1.0}, {"b": 1}, latency=0.5)
    assert step.moves == [("a", 1, 3.0, 3.0 + 3 * 0.5 + 3 * 4.0)]
    assert step.cost.moved_bytes == 12
    assert step.cost.peak_bytes.tolist() == [4, 4]


def test_memory_lives_from_start_to_last_use():
    graph = make_graph({"a": 10, "b": 20, "c": 1, "d": 2}, ["a -> b", "a -> c", "b -> d"], variables={"a": 100})
    step = Step(graph, 1.0, {"b": 0, "c": 0, "d": 1})
    # a 0-1, b 1-2, c 2-3; b's result is sent 2-22 and then leaves; a's is done with at 3; d 22-23.
    assert step.memory(0) == [(0.0, 110), (1.0, 130), (2.0, 131), (3.0, 120), (22.0, 100)]
    assert step.memory(1) == [(0.0, 0), (2.0, 20), (22.0, 22), (23.0, 0)]
    assert step.cost.peak_bytes.tolist() == [131, 22]


def test_a_transfer_that_waits_takes_memory_only_when_it_starts():
    graph = make_graph({"a": 4, "b": 2, "c": 0}, ["a -> c", "b -> c"])
    step = Step(graph, 1.0, {"a": 0, "b": 1, "c": 2})
    assert step.memory(2) == [(0.0, 0), (1.0, 4), (5.0, 6), (8.0, 0)]


def test_what_is_freed_and_taken_at_one_instant_does_not_add_up():
    graph = make_graph({"a": 10, "b": 10, "c": 10}, ["^a -> b", "^b -> c"])
    assert Step(graph, 1.0, {"a": 0}).cost.peak_bytes.tolist() == [10]


def test_an_alias_takes_nothing_and_keeps_its_input():
    graph = make_graph(
        {"a": 10, "i": 10, "r": 10, "b": 1, "late": 1},
        ["a -> i", "i -> r", "r -> late", "^i -> b", "^b -> late"],
        types={"i": "Identity", "r": "Reshape"},
    )
    step = Step(graph, 1.0, {"a": 0})
    # a 0-1, i 1-2, then r and b, then late 4-5, which reads a's buffer through r and i
    # at 4 the one byte of b leaves and the one of late comes
    assert step.memory(0) == [(0.0, 10), (3.0, 11), (5.0, 0)]
    remote = Step(graph, 1.0, {"late": 1})
    assert remote.cost.peak_bytes.tolist()[1] == 11


def test_a_read_variable_is_counted_once():
    graph = make_graph(
        {"w": 0, "read": 100, "use": 1},
        ["w -> read", "read -> use"],
        types={"read": "ReadVariableOp"},
        variables={"w": 100},
    )
    assert Step(graph, 1.0, {"w": 0}).cost.peak_bytes.tolist() == [101]
    assert Step(graph, 1.0, {"use": 1}).cost.peak_bytes.tolist() == [100, 101]


def test_replicable_constants_cost_nothing_anywhere():
    graph = make_graph({"k": 1000, "a": 1, "b": 1}, ["k -> a", "k -> b"], replicable=["k"])
    step = Step(graph, 1.0, {"k": 0, "a": 0, "b": 1})
    assert step.cost.step_s == 1.0
    assert step.moves == []
    assert step.cost.peak_bytes.tolist() == [1, 1]
    assert step.timeline.replicated.tolist() == [True, False, False]


def test_loop_back_edges_hold_nothing_up():
    graph = make_graph({"a": 1, "b": 1}, ["a -> b", "b => a"])
    assert Step(graph, 1.0, {"b": 1}).cost.step_s == 3.0


def test_ops_of_no_time_run_through_at_once():
    graph = make_graph({f"op{i}": 1 for i in range(4)}, ["op0 -> op1", "op1 -> op2", "op2 -> op3"])
    step = Step(graph, 0.0, {"op1": 1, "op3": 1}, bandwidth=1e12)
    assert np.all(step.timeline.start_s < 1e-10)
    assert step.cost.compute_s.tolist() == [0.0, 0.0]
