"""What simulated communication takes, against formulas: n devices, S bytes, B bytes per second, seconds of latency."""

import numpy as np
import pytest

from tests.simulation.test_oracle import check_agreement
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology

S, B, LATENCY = 100_000_000, 10e9, 10e-6


class Step:
    """A step of ops on given devices, which takes `seconds`; the plain simulator has to agree."""

    def __init__(self, ops, edges, seconds=0.0, *, devices, **topology):
        sizes = {op: size for op, (size, _) in ops.items()}
        where = [device for _, device in ops.values()]
        links = {"bandwidth": B, "latency": LATENCY, **topology}
        problem = make_problem(make_graph(sizes, edges), make_topology(devices, **links), seconds)
        check_agreement(problem, np.array(where))
        simulator = Simulator(problem)
        self.seconds = simulator.devices(where).step_s
        timeline = simulator.timeline(where)
        self.sent = np.zeros((devices, devices))
        np.add.at(self.sent, (timeline.moved_src, timeline.moved_dst), timeline.moved_bytes)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("add_s", [0.0, 1e-4])
def test_a_ring_takes_twice_the_buffer_without_a_share(n, add_s):
    ops, edges, seconds = {}, [], {}
    for c in range(n):
        last = f"own{c} on {c}"
        ops |= {f"own{c} on {r}": (S // n, r) for r in range(n)}
        for hop in range(1, 2 * n - 1):
            r = (c + hop) % n
            op = f"sum{c} on {r}" if hop < n else f"whole{c} on {r}"
            ops[op] = (S // n, r)
            edges += [f"{last} -> {op}", *([f"own{c} on {r} -> {op}"] if hop < n else [])]
            seconds[op] = add_s if hop < n else 0.0
            last = op
    step = Step(ops, edges, seconds, devices=n)
    wire_s = 2 * (n - 1) / n * S / B + 2 * (n - 1) * LATENCY
    assert step.seconds == pytest.approx(wire_s + (n - 1) * add_s, rel=1e-3)
    assert step.sent.sum(axis=1) == pytest.approx([2 * (n - 1) / n * S] * n, rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_owners_of_shares_are_sent_what_a_ring_scatters_if_devices_take_turns(n):
    ops = {f"gradient{(i + turn) % n} on {i}": (S // n, i) for i in range(n) for turn in range(1, n)}
    ops |= {f"update{j}": ((), j) for j in range(n)}
    edges = [f"gradient{j} on {i} -> update{j}" for i in range(n) for j in range(n) if i != j]
    step = Step(ops, edges, devices=n)
    assert step.seconds == pytest.approx((n - 1) / n * S / B + (n - 1) * LATENCY, rel=1e-3)
    assert step.sent.sum(axis=1) == pytest.approx([(n - 1) / n * S] * n, rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_owners_that_send_values_in_one_order_leave_gaps(n):
    """One op's values go out in the order of devices, and a channel is given in the order of requests."""
    ops = {f"value{j}": (S // n, j) for j in range(n)} | {f"step on {i}": ((), i) for i in range(n)}
    edges = [f"value{j} -> step on {i}" for i in range(n) for j in range(n) if i != j]
    step = Step(ops, edges, devices=n)
    assert step.sent.sum(axis=1) == pytest.approx([(n - 1) / n * S] * n, rel=1e-6)
    assert step.seconds == pytest.approx((2 * n - 3) * (S / n / B + LATENCY))


@pytest.mark.parametrize("n", [2, 5])
def test_one_owner_of_all_is_sent_to_by_one_device_at_a_time(n):
    ops = {f"gradient on {i}": (S, i) for i in range(1, n)} | {"update": ((), 0)}
    step = Step(ops, [f"gradient on {i} -> update" for i in range(1, n)], devices=n)
    assert step.seconds == pytest.approx((n - 1) * (S / B + LATENCY))


@pytest.mark.parametrize(("duplex", "times"), [("full", 1), ("half", 2)])
def test_a_device_sends_and_receives_at_once_if_it_is_full_duplex(duplex, times):
    ops = {"a": (S, 0), "b": (S, 1), "reads a": ((), 1), "reads b": ((), 0)}
    step = Step(ops, ["a -> reads a", "b -> reads b"], devices=2, duplex=duplex)
    assert step.seconds == pytest.approx(times * (S / B + LATENCY))


def test_links_that_share_a_channel_take_turns():
    ops = {"a": (S, 0), "b": (S, 1), "reads a": ((), 2), "reads b": ((), 3)}
    switch = {(0, 2): ["switch"], (1, 3): ["switch"]}
    step = Step(ops, ["a -> reads a", "b -> reads b"], devices=4, shared=switch)
    assert step.seconds == pytest.approx(2 * (S / B + LATENCY))


@pytest.mark.parametrize("layer_s", [1e-3, 5e-3])
def test_gradients_are_sent_while_earlier_layers_are_at_work(layer_s):
    layers, size = 6, 20_000_000
    ops, edges = {}, []
    for device in range(2):  # each layer's gradient goes to the other device, which owns it
        for i in range(layers):
            ops[f"layer{i} on {device}"] = (size, device)
            edges += [f"^layer{i - 1} on {device} -> layer{i} on {device}"] if i else []
    for device in range(2):
        ops |= {f"update{i} on {device}": ((), device) for i in range(layers)}
        edges += [f"layer{i} on {1 - device} -> update{i} on {device}" for i in range(layers)]
    step = Step(ops, edges, {op: layer_s for op in ops if op.startswith("layer")}, devices=2)
    sent_s = size / B + LATENCY
    assert step.seconds == pytest.approx(layer_s + (layers - 1) * max(layer_s, sent_s) + sent_s)
