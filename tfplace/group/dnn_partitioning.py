"""The public workloads of Tarnawski et al. as Problems: `research/data/dnn_partitioning` has ten of them.

J. Tarnawski, A. Phanishayee, N. R. Devanur, D. Mahajan, F. Nina Paravecino: Efficient Algorithms for Device Placement
of DNN Graph Operators. NeurIPS 2020; data of github.com/msr-fiddle/dnn-partitioning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.device import Device, Link
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.errors import InputError, SourceError
from tfplace.files import parse_json
from tfplace.group.arrays import problem_from_arrays
from tfplace.units import parse_bytes

MS = 1e-3
_HOST_BYTES = 2**50
_FIELDS = ("id", "name", "cpu_ms", "acc_ms", "bytes", "out_ms", "backward", "group")


def load_workload(source: str | Path | Mapping[str, Any]) -> Problem:
    """A workload's JSON, or the data in it, as a problem.

    The host is "CPU:0", the accelerators are "GPU:0" and so on; ops have the nodes' names. A node's bytes are held on
    its device all the time, like those of a variable, and the host has room for everything. Nodes of one group are one
    unit. Backward nodes have the attribute "backward".

    The workloads give no bytes of tensors, only the milliseconds c(v) that the output of v takes between an accelerator
    and memory. These are kept to the last digit, and tensors take no memory: a tensor has 0 bytes, every link a latency
    of 1 ms, and `trips` of the op that makes it, which multiply the latency, are c(v). So reports say that 0 bytes are
    moved. Between two accelerators a tensor takes c(v) too: in the objective of the paper the sender and the receiver
    each spend that much (docs/concepts/objectives.md); in a simulated step it is one transfer of c(v).

    Raises:
      SourceError: no such file, or no workload in it.
    """
    data = source if isinstance(source, Mapping) else _read(Path(source))
    try:
        return _problem(data)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        wrong = f"data without {error}" if isinstance(error, KeyError) else f"data with wrong numbers ({error})"
        raise SourceError(wrong, f"the JSON of a workload, whose nodes have {', '.join(_FIELDS)}") from error


def is_workload(source: Any) -> bool:
    """Whether `source` is a path that names a workload: one that ends in ".json"."""
    return isinstance(source, str | Path) and Path(source).suffix == ".json"


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{str(path)!r} ({error})", "a JSON file of a workload") from error
    if not isinstance(data, dict) or not {"nodes", "edges", "n_accelerators"} <= set(data):
        raise SourceError(f"{str(path)!r}", 'a workload: a JSON object with "nodes", "edges" and "n_accelerators"')
    return data


def _problem(data: Mapping[str, Any]) -> Problem:
    node = {field: data["nodes"][field] for field in _FIELDS}
    accelerators = int(data["n_accelerators"])
    if accelerators < 0 or len(set(node["id"])) < len(node["id"]):
        raise SourceError(f"{accelerators} accelerators and nodes {node['id'][:5]}...", "at least 0, and unique ids")
    index = {number: i for i, number in enumerate(node["id"])}
    if loose := [edge for edge in data["edges"] if not set(edge) <= index.keys()]:
        raise SourceError(
            f"an edge {loose[0]} with an unknown end ({len(loose)} in all)", "edges between ids of the workload's nodes"
        )
    seconds = np.stack([node["cpu_ms"]] + [node["acc_ms"]] * accelerators, axis=1) * MS
    return problem_from_arrays(
        seconds,
        [(index[src], index[dst]) for src, dst in data["edges"]],
        workload_topology(accelerators, int(data["accelerator_bytes"])),
        memory_bytes=node["bytes"],
        groups=np.unique(node["group"], return_inverse=True)[1],
        trips=node["out_ms"],
        op_names=list(map(str, node["name"])),
        op_attrs=[{"backward": True} if backward else {} for backward in node["backward"]],
        name=str(data["id"]),
    )


def workload_topology(accelerators: int, accelerator_bytes: int) -> Topology:
    """A host and identical accelerators, with links on which a tensor takes 1 ms for each of its trips."""
    kinds = ["CPU"] + ["GPU"] * accelerators
    names = ["CPU:0"] + [f"GPU:{i}" for i in range(accelerators)]
    sizes = [_HOST_BYTES] + [parse_bytes(accelerator_bytes)] * accelerators
    rates = {"float32": 1e12}  # what the ops take is given; no rate is ever used
    devices = tuple(
        Device(name, kind, size, rates, 1e11, 0.0) for name, kind, size in zip(names, kinds, sizes, strict=True)
    )
    links = tuple(Link(a, b, 1e12, MS) for a in names for b in names if a != b)
    return Topology(f"host and {accelerators} accelerators", devices, links, "dnn-partitioning")
