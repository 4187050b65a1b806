"""Graphs and problems as files: one `.npz` each, read without TensorFlow and without pickle.

An archive has a part `header`, JSON that says what the file is, and parts that `tfplace.io.packing` packs. A graph
keeps everything but its origin, the TensorFlow program it was read from: it can be given costs, grouped, searched and
simulated, but not run. A placement found with it fits the graph that is extracted again, whose fingerprint is the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfplace.core.arrays import IntArray, digest
from tfplace.core.compilation import NONE
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import Body, OpGraph, UnknownShape, Variable
from tfplace.core.grouping import Grouping
from tfplace.core.problem import Problem
from tfplace.core.slices import Difference, Slices
from tfplace.core.topology import Topology
from tfplace.errors import SourceError
from tfplace.files import UNREADABLE, parse_json, path_of, read_arrays, writing
from tfplace.io.packing import (
    Packed,
    as_tuples,
    pack_floats,
    pack_integers,
    pack_texts,
    pack_values,
    unpack_floats,
    unpack_integers,
    unpack_texts,
    unpack_values,
)
from tfplace.version import VERSION

SUFFIX = ".npz"
FORMAT = "tfplace-archive"
FORMAT_VERSION = 1
"""Raised when files are written that the released code before cannot read."""
_INTEGERS = (
    "tensor_op",
    "tensor_slot",
    "tensor_bytes",
    "edge_src",
    "edge_dst",
    "edge_tensor",
    "edge_slot",
    "colocation",
    "resource",
)
_VALUES = ("op_types", "op_attrs", "tensor_dtype", "tensor_shape")
_BOOLEANS = ("edge_back", "has_kernel", "host_memory", "replicable")


def is_archive(source: Any) -> bool:
    """Whether `source` is a path that names an archive."""
    return isinstance(source, str | Path) and Path(source).suffix == SUFFIX


def save(thing: OpGraph | Problem, path: str | Path) -> None:
    """Writes a graph, or a problem with its graph, topology, costs and rules, whole or not at all.

    The same graph always makes the same bytes.

    Args:
      thing: what to keep.
      path: of the file; ends in ".npz".

    Raises:
      SourceError: the path ends otherwise.
      UnwrittenError: the operating system refused.
    """
    path = Path(path)
    if path.suffix != SUFFIX:
        raise SourceError(f"{str(path)!r}", f"a path that ends in {SUFFIX!r}")
    header, parts = _pack_problem(thing) if isinstance(thing, Problem) else _pack_graph(thing)
    # a rule may name devices or patterns in a set
    header = json.loads(json.dumps(header, default=sorted)) | {"content": ""}
    header["content"] = _content(header, parts)
    header = {"format": f"{FORMAT}/{FORMAT_VERSION}", "tfplace": VERSION} | header
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            with part.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, header=text, **parts)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def load(path: str | Path) -> OpGraph | Problem:
    """What `save` wrote.

    Raises:
      InputError: no path.
      SourceError: no such file, not an archive of tfplace, one that is cut off or damaged, or one of a newer version.
    """
    path = path_of("path", path)
    header, parts = _read(path)
    try:
        # The graph's fingerprint is that of the model; how its ops are bound, and rules, only the content tells.
        if header.get("content", "") not in ("", _content(header, parts)):
            raise _damaged(path, "a part of it has changed since it was written")
        graph = _unpack_graph(header["graph"], parts)
        loaded = _unpack_problem(header["problem"], parts, graph) if header["problem"] is not None else graph
        intact = graph.fingerprint == header["graph"]["fingerprint"]
        if isinstance(loaded, Problem):
            intact &= loaded.costs.fingerprint == header["problem"]["costs_fingerprint"]
    except SourceError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, ZeroDivisionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if not intact:
        raise _damaged(path, "its content has another fingerprint than its header says")
    return loaded


def load_graph(path: str | Path) -> OpGraph:
    """The graph of an archive, be it a graph or a problem; see `load`."""
    loaded = load(path)
    return loaded.graph if isinstance(loaded, Problem) else loaded


def load_problem(path: str | Path) -> Problem:
    """The problem of an archive; see `load`.

    Raises:
      SourceError: as `load`, or the archive holds a graph only.
    """
    loaded = load(path)
    if isinstance(loaded, OpGraph):
        raise SourceError(
            f"{str(path)!r}, which holds a graph only",
            "a problem, which has a topology and costs",
            "Make one: tfplace.formulate(tfplace.OpGraph.load(path), topology).",
        )
    return loaded


def _content(header: Mapping[str, Any], parts: Packed) -> str:
    """A digest of everything in an archive but the versions that wrote it; archives of tfplace 0.1.0 have none."""
    described = json.dumps({"graph": header["graph"], "problem": header["problem"]}, sort_keys=True)
    arrays = (
        part
        for name in sorted(parts.keys() - {"header"})
        for part in (name, f"{parts[name].dtype.str}{parts[name].shape}", np.ascontiguousarray(parts[name]))
    )
    return digest([described, *arrays])


# ---- files -----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, Any], Packed]:
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise _foreign(path, "it is not a zip file")
            file.seek(0)
            return _read_parts(path, file)
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{str(path)!r} ({error.strerror})", f"a file that ends in {SUFFIX!r}") from error


def _read_parts(path: Path, file: BinaryIO) -> tuple[dict[str, Any], Packed]:
    try:
        parts = read_arrays(file)
        header: Any = parse_json(parts["header"].tobytes()) if "header" in parts else None
        _check_format(path, header)
        return header, parts
    except SourceError:
        raise
    except UNREADABLE as error:
        raise _damaged(path, str(error)) from error


def _check_format(path: Path, header: Any) -> None:
    kind, _, version = str(header.get("format") if isinstance(header, dict) else None).partition("/")
    if kind != FORMAT or not version.isdecimal():
        raise _foreign(path, "it has no header")
    if int(version) > FORMAT_VERSION:
        raise SourceError(
            f"{path.name!r} in format {kind}/{version}, written by tfplace {header.get('tfplace')}",
            f"format {FORMAT}/{FORMAT_VERSION} or lower, which tfplace {VERSION} reads",
            "Update tfplace, or extract the model again and save it with this version.",
        )


def _foreign(path: Path, why: str) -> SourceError:
    return SourceError(
        f"{path.name!r}, which is not a tfplace archive: {why}", "a file written by save() or `tfplace extract`"
    )


def _damaged(path: Path, why: str) -> SourceError:
    return SourceError(
        f"{path.name!r}, which is cut off or damaged ({why})",
        "a whole tfplace archive",
        "Extract the model again, and save it.",
    )


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _pack_graph(graph: OpGraph) -> tuple[dict[str, Any], Packed]:
    held, unknown = graph.variables, graph.unknown
    parts = pack_texts("op_names", graph.op_names) | pack_floats("trips", graph.trips)
    for name in _INTEGERS:
        parts |= pack_integers(name, getattr(graph, name))
    for name in _VALUES:
        parts |= pack_values(name, getattr(graph, name))
    parts |= {name: getattr(graph, name) for name in _BOOLEANS}
    parts |= pack_texts("variables.name", [v.name for v in held])
    parts |= pack_integers("variables.op", np.array([v.op for v in held], np.int32))
    parts |= pack_integers("variables.size_bytes", np.array([v.size_bytes for v in held], np.int64))
    parts["variables.trainable"] = np.array([v.trainable for v in held], np.bool_)
    parts |= pack_integers("unknown.tensor", np.array([u.tensor for u in unknown], np.int32))
    parts |= pack_texts("unknown.op", [u.op for u in unknown])
    parts |= pack_values("unknown.shape_rule", [(u.shape, u.rule) for u in unknown])
    described: dict[str, Any] = {
        "name": graph.name,
        "kernel_types": graph.kernel_types,
        "fetches": graph.fetches,
        "fingerprint": graph.fingerprint,
    }
    if (slices := graph.slices) is not None:
        kinds = [{"kind": one.kind, "ops": one.ops} for one in slices.differences]
        described["slices"] = {"sizes": slices.sizes, "gathered": slices.gathered, "differences": kinds}
        parts |= pack_integers("slices.slice_of", slices.slice_of) | pack_texts("slices.original", slices.original)
    if graph.recomputes is not None:
        described["recomputes"] = True
        parts |= pack_integers("recomputes", graph.recomputes)
    if graph.bodies:
        described["bodies"] = []
    for i, body in enumerate(graph.bodies):
        inner, inside = (None, {}) if body.graph is None else _pack_graph(body.graph)
        described["bodies"].append({"op": body.op, "runs": body.runs, "graph": inner and inner["graph"]})
        parts |= {f"body{i}/{name}": part for name, part in inside.items()}
    return {"graph": described, "problem": None}, parts


def _unpack_graph(described: Mapping[str, Any], parts: Packed) -> OpGraph:
    held = zip(
        unpack_texts(parts, "variables.name"),
        unpack_integers(parts, "variables.op").tolist(),
        unpack_integers(parts, "variables.size_bytes").tolist(),
        parts["variables.trainable"].tolist(),
        strict=True,
    )
    unknown = zip(
        unpack_integers(parts, "unknown.tensor").tolist(),
        unpack_texts(parts, "unknown.op"),
        unpack_values(parts, "unknown.shape_rule"),
        strict=True,
    )
    _check_kinds(described, parts)
    axes: dict[str, Any] = {name: unpack_integers(parts, name) for name in _INTEGERS}
    axes |= {name: unpack_values(parts, name) for name in _VALUES}
    axes |= {name: parts[name] for name in _BOOLEANS}
    for name, array in axes.items():
        wanted = np.int64 if name == "tensor_bytes" else np.int32 if name in _INTEGERS else np.bool_
        if name not in _VALUES and array.dtype != wanted:
            raise TypeError(f"{name} of type {array.dtype}")
    return OpGraph(
        name=described["name"],
        op_names=unpack_texts(parts, "op_names"),
        trips=unpack_floats(parts, "trips"),
        **axes,
        kernel_types=tuple(described["kernel_types"]),
        variables=tuple(Variable(*row) for row in held),
        unknown=tuple(UnknownShape(tensor, op, shape, rule) for tensor, op, (shape, rule) in unknown),
        bodies=tuple(_unpack_body(i, body, parts) for i, body in enumerate(described.get("bodies", ()))),
        fetches=tuple(described["fetches"]),
        slices=_unpack_slices(described["slices"], parts) if described.get("slices") is not None else None,
        recomputes=_unpack_recomputes(parts) if described.get("recomputes") else None,
    )


def _unpack_slices(described: Mapping[str, Any], parts: Packed) -> Slices:
    """How a step was split.

    Raises:
      GraphError, KeyError, TypeError: it is damaged.
    """
    slice_of = unpack_integers(parts, "slices.slice_of")
    if slice_of.dtype != np.int32:
        raise TypeError(f"slices.slice_of of type {slice_of.dtype}")
    if wrong := [size for size in described["sizes"] if type(size) is not int]:
        raise TypeError(f"not a number of examples: {wrong[0]!r:.80}")
    differences = tuple(Difference(one["kind"], _texts(one["ops"])) for one in described["differences"])
    original = unpack_texts(parts, "slices.original")
    return Slices(tuple(described["sizes"]), slice_of, original, _texts(described["gathered"]), differences)


def _unpack_recomputes(parts: Packed) -> IntArray:
    """What ops compute again.

    Raises:
      KeyError, TypeError: it is damaged.
    """
    recomputes = unpack_integers(parts, "recomputes")
    if recomputes.dtype != np.int32:
        raise TypeError(f"recomputes of type {recomputes.dtype}")
    return recomputes


def _texts(values: Any) -> tuple[str, ...]:
    """A list of texts.

    Raises:
      TypeError: it is something else.
    """
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise TypeError(f"not texts: {values!r:.80}")
    return tuple(values)


def _check_kinds(described: Mapping[str, Any], parts: Packed) -> None:
    """Refuses texts, shapes and attributes that are something else.

    Raises:
      TypeError: they are.
    """
    texts = (described["name"], *described["kernel_types"], *described["fetches"])
    texts = (*texts, *set(unpack_values(parts, "op_types")), *set(unpack_values(parts, "tensor_dtype")))
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise TypeError(f"not text: {wrong[0]!r:.80}")
    for shape in unpack_values(parts, "tensor_shape"):
        if shape is not None and not all(type(size) is int and size >= 0 for size in shape):
            raise TypeError(f"not a shape: {shape!r:.80}")
    for attributes in unpack_values(parts, "op_attrs"):
        if not isinstance(attributes, dict):
            raise TypeError(f"not attributes: {attributes!r:.80}")


def _unpack_body(i: int, described: Mapping[str, Any], parts: Packed) -> Body:
    prefix, inner = f"body{i}/", described["graph"]
    inside = {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}
    return Body(described["op"], described["runs"], None if inner is None else _unpack_graph(inner, inside))


# ---- problems --------------------------------------------------------------------------------------------------------


def _pack_problem(problem: Problem) -> tuple[dict[str, Any], Packed]:
    header, parts = _pack_graph(problem.graph)
    parts |= pack_floats("compute_s", problem.costs.compute_s)
    parts |= pack_values("provenance", problem.costs.provenance)
    parts |= pack_integers("unit_of", problem.grouping.unit_of)
    parts |= pack_integers("memory_limit", problem.memory_limit)
    parts |= pack_integers("follows", problem.follows)
    parts["allowed"] = problem.allowed
    other = problem.other_costs
    if other is not None:
        parts |= pack_floats("other_compute_s", other.compute_s) | pack_values("other_provenance", other.provenance)
    described = {
        "topology": problem.topology.to_dict(),
        "constraints": asdict(problem.constraints),
        "num_units": problem.num_units,
        "costs_fingerprint": problem.costs.fingerprint,
        "compile": problem.compile,
        "other_costs": other is not None,
    }
    return header | {"problem": described}, parts


def _unpack_problem(described: Mapping[str, Any], parts: Packed, graph: OpGraph) -> Problem:
    other = None
    if described.get("other_costs", False):
        other = CostTable(unpack_floats(parts, "other_compute_s"), unpack_values(parts, "other_provenance"))
    return Problem(
        graph=graph,
        topology=Topology.from_dict(described["topology"]),
        costs=CostTable(unpack_floats(parts, "compute_s"), unpack_values(parts, "provenance")),
        constraints=Constraints(**as_tuples(described["constraints"])),
        grouping=Grouping(unpack_integers(parts, "unit_of"), described["num_units"]),
        allowed=parts["allowed"],
        memory_limit=unpack_integers(parts, "memory_limit"),
        follows=unpack_integers(parts, "follows"),
        compile=described.get("compile", NONE),
        other_costs=other,
    )
