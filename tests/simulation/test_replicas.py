"""Equal replicas by hand: what goes over the network, and when. `tests/search/test_symmetric.py` has real models."""

import numpy as np
import pytest

from tests.transforms.split_steps import step
from tfplace.io.hosts import Between, equal_hosts
from tfplace.local_search.devices import single_device
from tfplace.simulation.replica import Kind, cut_replica
from tfplace.simulation.replicas import BY_HOST, FLAT, Hosts, simulate_replicas
from tfplace.testing.problems import make_problem, make_topology

MB = 2**20
NIC = 5e9


def box(hosts, size=8):
    """Hosts with a CPU each, whose accelerators share one network card."""
    host = make_topology(size + 1, types=["CPU"] + ["GPU"] * size, bandwidth=50e9, latency=1e-6)
    topology = equal_hosts("box", host, hosts, Between((0,) * (size + 1), NIC, 2e-6))
    numbers = np.arange(hosts * (size + 1), dtype=np.int32).reshape(hosts, size + 1)
    return Hosts(topology, numbers[:, 1:], numbers[:, 0])


def problem(slices, topology, weights, seconds):
    """A loss and a gradient of each weight take seconds in every slice, sums as long as memory takes for them."""
    ops = ("loss", *(f"gradient{i}" for i in range(len(weights))))
    each = {f"slice{k}/{op}": seconds[i] for k in range(slices) for i, op in enumerate(ops)}
    gpu = topology.devices[1]
    once = {f"update{i}": 1e-4 for i in range(len(weights))}
    once |= {
        f"gradient{i}": gpu.op_overhead_s + (slices + 1) * size / gpu.memory_bandwidth for i, size in enumerate(weights)
    }
    return make_problem(step(slices, weights), topology, each | once)


def replica_of(hosts, weights, seconds, stretches=None):
    one = problem(1, hosts.part(1), weights, seconds)
    return cut_replica(one, one.spread(single_device(one, 1)), None, stretches)


def drawn(seed):
    rng = np.random.default_rng(seed)
    return (rng.uniform(1, 8, 20) * MB).astype(int).tolist(), rng.uniform(1e-4, 1e-3, 21).tolist()


def test_by_host_a_variable_crosses_the_network_once_for_each_other_host():
    hosts, size = box(2, 4), 100 * MB
    replica = replica_of(hosts, (size,), (1e-3, 1e-3))
    flat, by_host = (simulate_replicas(replica, hosts, 8, exchange) for exchange in (FLAT, BY_HOST))
    assert flat.step_s == pytest.approx((4 + 1) * size / NIC, rel=0.05)  # four values, and the last one's gradient
    assert by_host.step_s == pytest.approx((1 + 1) * size / NIC, rel=0.5)  # and what is sent within the hosts
    assert by_host.moved_bytes == pytest.approx(flat.moved_bytes, rel=0.01)


def test_on_one_host_gradients_go_straight_to_the_owner_by_host_too():
    hosts, (weights, seconds) = box(1), drawn(1)
    replica = replica_of(hosts, weights, seconds)
    flat, by_host = (simulate_replicas(replica, hosts, 8, exchange) for exchange in (FLAT, BY_HOST))
    assert by_host.moved_bytes == pytest.approx(flat.moved_bytes, rel=1e-6)
    assert flat.step_s <= by_host.step_s <= 1.1 * flat.step_s  # which has inputs on the CPU


def test_gradients_are_sent_at_the_ends_of_clusters():
    hosts, (weights, seconds) = box(1), drawn(2)
    own = {}
    for stretches in (None, 12, 1):
        replica = replica_of(hosts, weights, seconds, stretches)
        own[stretches] = int((replica.kind == Kind.OWN).sum()), simulate_replicas(replica, hosts, 8).step_s
    assert own[None][0] > own[12][0] > own[1][0] == 1
    assert own[12][1] < own[1][1]


def test_more_hosts_take_longer_for_the_same_replica():
    weights, seconds = drawn(0)
    steps = []
    for count in (1, 2, 4):
        hosts = box(count)
        steps.append(simulate_replicas(replica_of(hosts, weights, seconds), hosts, 8 * count).step_s)
    assert steps == sorted(steps)
