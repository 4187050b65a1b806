"""The public workloads as problems."""

import json
from pathlib import Path

import numpy as np
import pytest

from tfplace.errors import SourceError
from tfplace.group.dnn_partitioning import is_workload, load_workload
from tfplace.simulation.evaluate import Simulator

FOLDER = Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning"
REFERENCE = json.loads((FOLDER / "reference.json").read_text())
WORKLOADS = sorted(path.stem for path in (FOLDER / "workloads").glob("*.json"))


def path(name):
    return FOLDER / "workloads" / f"{name}.json"


def test_there_are_ten():
    assert sorted(REFERENCE) == WORKLOADS
    assert len(WORKLOADS) == 10


@pytest.mark.parametrize("name", WORKLOADS)
def test_sizes(name):
    problem, known = load_workload(path(name)), REFERENCE[name]
    assert problem.graph.num_ops == known["nodes"]
    assert problem.graph.num_edges == known["edges"]
    assert problem.num_units == known["groups"]
    assert problem.num_devices == known["accelerators"] + 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_numbers_are_kept(name):
    """Op seconds, bytes, groups and c(v), each found again by the node's name."""
    data = json.loads(path(name).read_text())
    problem = load_workload(data)
    node, graph = data["nodes"], problem.graph
    at = [graph.index[str(n)] for n in node["name"]]
    np.testing.assert_allclose(problem.costs.compute_s[at, 0] * 1e3, node["cpu_ms"], rtol=1e-12)
    np.testing.assert_allclose(problem.costs.compute_s[at, -1] * 1e3, node["acc_ms"], rtol=1e-12)
    assert graph.persistent_bytes[at].tolist() == node["bytes"]
    assert problem.memory_limit[1] == data["accelerator_bytes"]
    units = problem.grouping.unit_of[at]
    assert len(set(zip(units.tolist(), node["group"], strict=True))) == problem.num_units
    wire = graph.trips[at] * problem.topology.latency_s[0, 1]
    np.testing.assert_allclose(wire * 1e3, node["out_ms"], rtol=1e-12)
    assert not graph.tensor_bytes.any()
    backward = [bool(graph.op_attrs[v].get("backward")) for v in at]
    assert backward == list(map(bool, node["backward"]))


def test_a_step_takes_its_transfers():
    """Two nodes apart: compute, c(u) in milliseconds, compute."""
    problem = load_workload(_two_nodes())
    assert Simulator(problem)([1, 2]).step_s == pytest.approx(1e-3 * (1 + 2.5 + 3), rel=1e-12)
    assert Simulator(problem)([1, 0]).step_s == pytest.approx(1e-3 * (1 + 2.5 + 30), rel=1e-12)


def test_the_host_has_room_for_all():
    problem = load_workload(_two_nodes())
    assert Simulator(problem)([0, 0]).feasible
    assert not Simulator(problem)([1, 1]).feasible
    assert Simulator(problem)([1, 2]).feasible


def test_names():
    assert is_workload("a/b.json") and is_workload(Path("b.json"))
    assert not is_workload("b.npz") and not is_workload({"nodes": {}})


def test_wrong_files(tmp_path):
    with pytest.raises(SourceError, match="No such file"):
        load_workload(tmp_path / "no.json")
    other = tmp_path / "other.json"
    other.write_text('{"devices": []}')
    with pytest.raises(SourceError, match='a JSON object with "nodes"'):
        load_workload(other)
    data = _two_nodes()
    del data["nodes"]["out_ms"]
    with pytest.raises(SourceError, match="without 'out_ms'"):
        load_workload(data)
    with pytest.raises(
        SourceError,
        match=r"an edge \[9, 8\] with an unknown end \(1 in all\).*edges between ids of the workload's nodes",
    ):
        load_workload(_two_nodes() | {"edges": [[7, 9], [9, 8]]})


def _two_nodes():
    nodes = {
        "id": [7, 9],
        "name": ["u", "v"],
        "cpu_ms": [10.0, 30.0],
        "acc_ms": [1.0, 3.0],
        "bytes": [60.0, 60.0],
        "out_ms": [2.5, 0.0],
        "backward": [0, 0],
        "group": [1, 2],
    }
    return {"id": "two", "n_accelerators": 2, "accelerator_bytes": 100.0, "nodes": nodes, "edges": [[7, 9]]}
