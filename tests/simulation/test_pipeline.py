"""Loads of a full pipeline, against a slow oracle and the public workloads.

The oracle reads docs/concepts/objectives.md.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tfplace.core.buffers import HELD_BY_VARIABLE, aliased_input
from tfplace.core.stepcost import THROUGHPUT
from tfplace.errors import PlacementError
from tfplace.group.arrays import problem_from_arrays
from tfplace.group.dnn_partitioning import load_workload
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_problem
from tfplace.testing.problems import random_topology

FOLDER = Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning"
REFERENCE = json.loads((FOLDER / "reference.json").read_text())
MAX_LOAD = sorted(name for name, known in REFERENCE.items() if known["objective"] == "max_load")

# ---- the oracle ------------------------------------------------------------------------------------------------------


def messages_of(problem):
    """What each op has for others: (op, bytes, whether it has memory of its own, readers)."""
    graph = problem.graph
    kept = [e for e in range(graph.num_edges) if not graph.edge_back[e]]
    kept = [e for e in kept if not graph.replicable[graph.edge_src[e]] and not graph.replicable[graph.edge_dst[e]]]
    for t in range(graph.num_tensors):
        op = int(graph.tensor_op[t])
        if graph.replicable[op]:
            continue
        size = 0 if graph.op_types[op] in HELD_BY_VARIABLE else int(graph.tensor_bytes[t])
        position = aliased_input(graph.op_types[op], int(graph.tensor_slot[t]))
        read = {int(graph.edge_slot[e]) for e in kept if graph.edge_dst[e] == op and graph.edge_tensor[e] >= 0}
        yield op, size, position not in read, {int(graph.edge_dst[e]) for e in kept if graph.edge_tensor[e] == t}
    for op in range(graph.num_ops):
        readers = {int(graph.edge_dst[e]) for e in kept if graph.edge_tensor[e] < 0 and graph.edge_src[e] == op}
        if readers:
            yield op, 0, True, readers


def oracle(problem, devices):
    """[D] seconds and [D] bytes, straight from the definition."""
    graph, topology = problem.graph, problem.topology
    op_device = problem.spread(devices)
    types = [device.type for device in topology.devices]
    pays = [kind != "CPU" or set(types) == {"CPU"} for kind in types]
    links = {(topology.index(link.src), topology.index(link.dst)): link for link in topology.links}
    load, held = [0.0] * len(types), [0] * len(types)
    for v in range(graph.num_ops):
        if not graph.replicable[v]:
            load[op_device[v]] += problem.costs.compute_s[v, op_device[v]]
            held[op_device[v]] += int(graph.persistent_bytes[v])
    for op, size, own, readers in messages_of(problem):
        home, trips = op_device[op], graph.trips[op]
        held[home] += size if own else 0
        slowest = 0.0
        for d in {op_device[r] for r in readers} - {home}:
            link = links[home, d]
            wire = trips * (link.latency_s + size / link.bandwidth)
            held[d] += size
            if pays[d]:
                load[d] += wire + trips * (link.receive_overhead_s + size * link.receive_overhead_s_per_byte)
            slowest = max(slowest, wire + trips * (link.send_overhead_s + size * link.send_overhead_s_per_byte))
        load[home] += slowest if pays[home] else 0.0
    return load, held


def max_load(data, device_of):
    """Largest load of a workload as its authors define it, from the JSON alone; device 0 is the cpu."""
    node = data["nodes"]
    index = {number: i for i, number in enumerate(node["id"])}
    edges = [(index[u], index[v]) for u, v in data["edges"]]
    load = [0.0] * (data["n_accelerators"] + 1)
    for i, d in enumerate(device_of):
        load[d] += node["acc_ms"][i] if d else node["cpu_ms"][i]
    for d in range(1, len(load)):
        came = {u for u, v in edges if device_of[u] != d and device_of[v] == d}
        went = {u for u, v in edges if device_of[u] == d and device_of[v] != d}
        load[d] += sum(node["out_ms"][u] for u in came) + sum(node["out_ms"][u] for u in went)
    return max(load)


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_oracle(seed):
    """Random graphs with variables, aliases, constants, loops and control edges, on links that all differ."""
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 2 + seed % 4)
    if seed % 3 == 0:
        topology = make_topology(3, types="CPU", latency={(0, 1): 2.0, (1, 2): 0.5})
    problem = random_problem(rng, num_ops=30, topology=topology, tight=seed % 2 == 0)
    evaluator = PipelineLoads(problem)
    for _ in range(5):
        devices = random_devices(rng, problem)
        load, held = oracle(problem, devices)
        cost = evaluator(devices)
        np.testing.assert_allclose(cost.compute_s + cost.transfer_s, load, rtol=1e-12)
        assert cost.peak_bytes.tolist() == held
        assert cost.step_s == pytest.approx(max(load), rel=1e-12)
        assert evaluator.key(devices) == cost.key


def test_work_at_both_ends_of_a_link_counts():
    links = {"send_overhead_s": 0.25, "receive_overhead_s": 0.5, "send_overhead_s_per_byte": 0.1}
    topology = make_topology(2, bandwidth=10.0, latency=1.0)
    data = topology.to_dict()
    for link in data["links"]:
        link |= {name.replace("_s", "", 1): value for name, value in links.items()}
    problem = make_problem(make_graph({"a": 20, "b": 0}, ["a -> b"]), type(topology).from_dict(data), [2.0, 4.0])
    devices = np.array([0, 1], np.int32)
    cost = PipelineLoads(problem)(devices)
    assert cost.transfer_s.tolist() == pytest.approx([1 + 2 + 0.25 + 2, 1 + 2 + 0.5])
    assert (cost.compute_s + cost.transfer_s).tolist() == pytest.approx(oracle(problem, devices)[0])


def test_a_tensor_is_sent_once_and_received_by_each():
    """Sent to two devices over links of 1 and 3 seconds: the sender pays 3, the receivers what they waited for."""
    topology = make_topology(3, bandwidth=1e9, latency={(0, 1): 1.0, (0, 2): 3.0})
    problem = problem_from_arrays(np.ones((4, 3)), [[0, 1], [0, 2], [0, 3]], topology)
    cost = PipelineLoads(problem)([0, 1, 2, 2])
    assert cost.transfer_s.tolist() == pytest.approx([3, 1, 3])
    assert cost.step_s == pytest.approx(5)
    assert cost.idle_s.tolist() == pytest.approx([1, 3, 0])


def test_a_host_pays_for_no_transfer_but_cpus_alone_do():
    for types, host in ((["CPU", "GPU"], 0.0), (["CPU", "CPU"], 1.0)):
        topology = make_topology(2, types=types, bandwidth=1e9, latency=1.0)
        problem = problem_from_arrays(np.ones((2, 2)), [[0, 1]], topology)
        for devices in ([0, 1], [1, 0]):
            assert PipelineLoads(problem)(devices).transfer_s.tolist() == pytest.approx([host, 1.0])


def test_the_cost_says_what_it_is():
    problem = random_problem(np.random.default_rng(0), num_ops=10)
    cost = PipelineLoads(problem)(np.zeros(problem.num_units))
    assert cost.objective == THROUGHPUT
    assert type(cost).from_dict(cost.to_dict()).objective == THROUGHPUT


@pytest.mark.parametrize("threads", [1, 3])
def test_keys_of_a_batch(threads):
    rng = np.random.default_rng(1)
    problem = random_problem(rng, num_ops=30, tight=True)
    evaluator = PipelineLoads(problem, threads=threads)
    rows = np.array([random_devices(rng, problem) for _ in range(150)])
    over, load_s = evaluator.keys(rows)
    assert list(zip(over.tolist(), load_s.tolist(), strict=True)) == [evaluator.key(row) for row in rows]
    assert evaluator.keys(rows[:0])[0].shape == (0,)
    evaluator.close()
    evaluator.close()


def test_wrong_devices_are_refused():
    problem = random_problem(np.random.default_rng(2), num_ops=10)
    evaluator = PipelineLoads(problem)
    with pytest.raises(PlacementError, match="shape"):
        evaluator([0])
    with pytest.raises(PlacementError, match="out of range"):
        evaluator(np.full(problem.num_units, problem.num_devices))
    with pytest.raises(PlacementError, match="shape"):
        evaluator.keys(np.zeros((2, 1)))


@pytest.mark.parametrize("seed", range(20))
def test_no_placement_beats_the_bound(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=12, num_devices=3, tight=seed % 2 == 0)
    evaluator = PipelineLoads(problem)
    over, load_s = evaluator.keys(np.array([random_devices(rng, problem) for _ in range(500)]))
    assert np.all(load_s[over == 0] >= evaluator.bound_s)


def test_nothing_but_constants():
    problem = make_problem(make_graph({"a": 4}, replicable=["a"]), make_topology(2))
    assert PipelineLoads(problem)(np.zeros(0)).step_s == 0.0
    assert PipelineLoads(problem).bound_s == 0.0


@pytest.mark.parametrize("name", MAX_LOAD)
def test_public_workloads(name):
    """Random placements, those on one device, and blocks of units, by the authors' definition."""
    data = json.loads((FOLDER / "workloads" / f"{name}.json").read_text())
    problem = load_workload(data)
    evaluator = PipelineLoads(problem)
    at = [problem.graph.index[str(n)] for n in data["nodes"]["name"]]
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, problem.num_devices, problem.num_units) for _ in range(6)]
    rows += [np.full(problem.num_units, d) for d in range(2)]
    rows += [np.sort(row) for row in rows[:2]]
    for row in rows:
        op_device = problem.spread(row.astype(np.int32))
        over, load_s = evaluator.key(row)
        assert load_s * 1e3 == pytest.approx(max_load(data, [int(op_device[v]) for v in at]), rel=1e-12)
        held = np.bincount(op_device[at], data["nodes"]["bytes"], minlength=problem.num_devices)[1:]
        assert over == np.maximum(held - data["accelerator_bytes"], 0).sum()


@pytest.mark.parametrize("name", MAX_LOAD)
def test_published_values_of_single_devices(name):
    problem, known = load_workload(FOLDER / "workloads" / f"{name}.json"), REFERENCE[name]["values"]
    evaluator = PipelineLoads(problem)
    for device, which in ((0, "all_cpu"), (1, "one_accelerator")):
        over, load_s = evaluator.key(np.full(problem.num_units, device))
        assert load_s * 1e3 == pytest.approx(known[which]["value"], abs=1e-6)
        assert (over == 0) == known[which]["feasible"]
