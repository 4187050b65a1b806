import json
import subprocess
import sys
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfplace
from tests.splitting import split
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph, UnknownShape
from tfplace.core.problem import Problem
from tfplace.errors import ApplyError, GraphError, SourceError, UnwrittenError
from tfplace.io import archive
from tfplace.io.packing import (
    pack_floats,
    pack_integers,
    pack_texts,
    pack_values,
    unpack_floats,
    unpack_integers,
    unpack_texts,
    unpack_values,
)
from tfplace.testing import make_graph, make_problem, make_topology, random_graph, random_problem
from tfplace.testing.strategies import problems


def assert_same(a, b):
    """Every field but `origin`, to the last bit and type."""
    for f in fields(a):
        left, right = getattr(a, f.name), getattr(b, f.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, f.name
            assert left.shape == right.shape, f.name
            assert left.tobytes() == right.tobytes(), f.name
        elif f.name != "origin":
            assert repr(left) == repr(right), f.name


def assert_same_problem(a, b):
    assert_same(a.graph, b.graph)
    assert a.graph.fingerprint == b.graph.fingerprint
    assert a.fingerprint == b.fingerprint
    assert a.topology.to_dict() == b.topology.to_dict()
    assert a.topology.fingerprint == b.topology.fingerprint
    assert_same(a.costs, b.costs)
    assert_same(a.grouping, b.grouping)
    assert a.constraints == b.constraints
    assert a.compile == b.compile
    assert (a.other_costs is None) == (b.other_costs is None)
    if a.other_costs is not None:
        assert_same(a.other_costs, b.other_costs)
    compared = {"graph", "topology", "costs", "grouping", "constraints", "compile", "other_costs"}
    for what in {f.name for f in fields(Problem)} - compared:
        np.testing.assert_array_equal(getattr(a, what), getattr(b, what))
        assert getattr(a, what).dtype == getattr(b, what).dtype


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 4), st.booleans())
def test_random_problems_come_back_the_same(tmp_path_factory, seed, num_ops, num_devices, ties):
    problem = random_problem(np.random.default_rng(seed), num_ops, num_devices, ties=ties)
    if ties:
        other = CostTable(2 * problem.costs.compute_s, ("doubled",) * num_ops)
        problem = replace(problem, compile="xla", other_costs=other)
    path = tmp_path_factory.getbasetemp() / "problem.npz"
    problem.save(path)
    assert_same_problem(Problem.load(path), problem)
    assert_same(OpGraph.load(path), problem.graph)


@settings(deadline=None)
@given(problems())
def test_problems_that_shrink_come_back_the_same(tmp_path_factory, problem):
    path = tmp_path_factory.getbasetemp() / "shrinks.npz"
    problem.save(path)
    assert_same_problem(Problem.load(path), problem)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.sampled_from([np.int32, np.int64]))
def test_integers_of_any_size_come_back(values, dtype):
    array = np.array(values, np.int64).astype(dtype)
    again = unpack_integers(pack_integers("x", array), "x")
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, array)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(), st.floats())), st.booleans())
def test_floats_come_back_bit_by_bit(rows, flat):
    array = np.array(rows, np.float64).reshape(-1, 2)
    array = array.ravel() if flat else array
    again = unpack_floats(pack_floats("x", array), "x")
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_come_back(texts):
    assert unpack_texts(pack_texts("x", texts), "x") == tuple(texts)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.lists(VALUES))
def test_values_come_back_with_their_types(values):
    assert repr(unpack_values(pack_values("x", values), "x")) == repr(tuple(values))


@pytest.fixture
def graph():
    return replace(
        make_graph(
            {"w": 0, "a\nb/ä": (4, 8), "b": 2, "c": ()},
            ["a\nb/ä:1 -> b", "w -> a\nb/ä", "^b -> c", "b => a\nb/ä"],
            attrs={"b": {"T": "float32", "strides": (1, 2), "keep": True, "n": 1, "eps": float(np.float32(0.1))}},
            variables={"w": 16},
            trips={"b": 3},
            fetches=["c"],
        ),
        unknown=(UnknownShape(1, "a", None, "a guess"), UnknownShape(2, "b", (-1, 3), "another")),
    )


def test_every_field_of_a_graph_is_kept(graph, tmp_path):
    graph.save(tmp_path / "g.npz")
    loaded = OpGraph.load(str(tmp_path / "g.npz"))
    assert_same(loaded, graph)
    assert loaded.fingerprint == graph.fingerprint


def test_slices_are_kept_with_graphs_and_problems(tmp_path):
    graph = split()
    graph.save(tmp_path / "g.npz")
    make_problem(graph, make_topology(2)).save(tmp_path / "p.npz")
    for loaded in (OpGraph.load(tmp_path / "g.npz"), Problem.load(tmp_path / "p.npz").graph):
        assert_same(loaded, graph)
        assert_same(loaded.slices, graph.slices)
        assert loaded.content == graph.content


def test_what_is_computed_again_is_kept_and_noticed_if_it_is_damaged(tmp_path):
    graph = replace(
        make_graph({"a": 8, "b": 8}, ["a -> b"], types={"a": "Relu", "b": "Relu"}),
        recomputes=np.array([-1, 0], np.int32),
    )
    graph.save(tmp_path / "g.npz")
    loaded = OpGraph.load(tmp_path / "g.npz")
    assert_same(loaded, graph)
    assert loaded.content == graph.content
    assert loaded.base_names == ("a", "a")
    for rows in (np.array([-1, 2], np.int32), np.array([0, -1, 0], np.int32), np.array([-1, 0], np.int64)):
        signed(tmp_path / "g.npz", recomputes=pack_integers("x", rows)["x"])
        with pytest.raises(SourceError, match="cut off or damaged"):
            OpGraph.load(tmp_path / "g.npz")


def test_constraints_of_every_kind_are_kept(graph, tmp_path):
    rules = Constraints(
        pin={"b*": "GPU:0"},
        forbid={"c": ("GPU:1",)},
        colocate=(("b", "c"),),
        max_memory={"GPU:0": "1GiB"},
        headroom=0.1,
    )
    problem = replace(make_problem(graph, make_topology(2)), constraints=rules)
    problem.save(tmp_path / "p.npz")
    assert Problem.load(tmp_path / "p.npz").constraints == rules
    with_a_set = replace(rules, forbid={"c": {"GPU:1"}}, colocate=({"b", "c"},))
    replace(problem, constraints=with_a_set).save(tmp_path / "p.npz")
    assert Problem.load(tmp_path / "p.npz").constraints == rules


def test_the_same_graph_makes_the_same_bytes_and_no_other_file(graph, tmp_path):
    for name in ("a.npz", "b.npz", "a.npz"):
        graph.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_a_failed_save_leaves_the_file_as_it_was(graph, tmp_path, monkeypatch):
    graph.save(tmp_path / "g.npz")
    before = (tmp_path / "g.npz").read_bytes()

    def fail(file, **parts):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(UnwrittenError, match=r"g\.npz, which could not be written \(no space left\)"):
        graph.save(tmp_path / "g.npz")
    assert (tmp_path / "g.npz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["g.npz"]


def test_a_large_graph_is_small(tmp_path):
    """Random edges and sizes: a traced graph, whose parts repeat, is a tenth of this."""
    graph = random_graph(np.random.default_rng(0), 20_000)
    graph.save(tmp_path / "g.npz")
    assert (tmp_path / "g.npz").stat().st_size < 500_000


# ---- what is refused -------------------------------------------------------------------------------------------------


def rewritten(path, **changes):
    """The archive with other parts; None leaves one out."""
    with np.load(path) as parts:
        kept = {k: v for k, v in ({**parts} | changes).items() if v is not None}
    np.savez_compressed(path, **kept)


def header_with(path, **changes):
    with np.load(path) as parts:
        header = json.loads(parts["header"].tobytes())
    rewritten(path, header=np.frombuffer(json.dumps(header | changes).encode(), np.uint8))


def test_a_missing_file(tmp_path):
    with pytest.raises(SourceError, match=r"missing\.npz.*No such file"):
        OpGraph.load(tmp_path / "missing.npz")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a zip file"),
        (b"something else entirely", "not a zip file"),
        (b"PK but no zip", "cut off or damaged"),
    ],
)
def test_foreign_files(tmp_path, content, why):
    (tmp_path / "g.npz").write_bytes(content)
    with pytest.raises(SourceError, match=rf"'g\.npz'.*{why}"):
        OpGraph.load(tmp_path / "g.npz")


def test_foreign_archives(tmp_path):
    np.savez(tmp_path / "arrays.npz", x=np.arange(3))
    with pytest.raises(SourceError, match=r"not a tfplace archive.*tfplace extract"):
        OpGraph.load(tmp_path / "arrays.npz")
    np.savez(tmp_path / "pickled.npz", header=np.array([{"format": "tfplace-archive/1"}], object))
    with pytest.raises(SourceError):
        OpGraph.load(tmp_path / "pickled.npz")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as file:
        file.writestr("header", "no array")
    with pytest.raises(SourceError):
        OpGraph.load(tmp_path / "text.npz")


def test_every_cut_is_noticed(graph, tmp_path):
    graph.save(tmp_path / "g.npz")
    whole = (tmp_path / "g.npz").read_bytes()
    for end in range(2, len(whole), 97):
        (tmp_path / "g.npz").write_bytes(whole[:end])
        with pytest.raises(SourceError, match=r"cut off or damaged.*Extract the model again"):
            OpGraph.load(tmp_path / "g.npz")


def test_damage_and_foreign_content_are_noticed(graph, tmp_path):
    path = tmp_path / "g.npz"
    graph.save(path)
    whole = path.read_bytes()
    noticed = 0
    for at in range(0, len(whole), 41):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert_same(OpGraph.load(path), graph)  # the flipped byte was one that means nothing, such as a date
        except SourceError:
            noticed += 1
    assert noticed > len(whole) / 41 / 2
    directory = whole.rindex(b"PK\1\2") + 8  # flags of a member; the first bit says that it is encrypted
    path.write_bytes(whole[:directory] + bytes([whole[directory] ^ 1]) + whole[directory + 1 :])
    with pytest.raises(SourceError, match="cut off or damaged"):
        OpGraph.load(path)

    for part, other in [
        ("tensor_bytes", pack_integers("x", graph.tensor_bytes + 1)["x"]),
        ("edge_dst", pack_integers("x", graph.edge_dst[::-1])["x"]),
        ("op_names.length", None),
        ("op_types.which", pack_integers("x", np.full(4, 99, np.int32))["x"]),
    ]:
        graph.save(path)
        rewritten(path, **{part: other})
        with pytest.raises(SourceError, match="cut off or damaged"):
            OpGraph.load(path)


ALTERED = {
    "resource": lambda x: pack_integers("x", np.zeros(len(unpack_integers({"x": x}, "x")), np.int32))["x"],
    "colocation": lambda x: pack_integers("x", np.zeros(len(unpack_integers({"x": x}, "x")), np.int32))["x"],
    "host_memory": lambda x: ~x,
    "edge_back": np.ones_like,
    "replicable": lambda x: ~x,
    "has_kernel": lambda x: np.ones_like(x) & (np.arange(x.shape[1]) == 0),
    "op_attrs.table.bytes": lambda x: x[::-1],
    "tensor_dtype.table.bytes": lambda x: x[::-1],
    "trips.table": lambda x: x + 2**52,
    "variables.trainable": lambda x: ~x,
    "compute_s.table": lambda x: x + 1,
    "allowed": np.ones_like,
    "memory_limit": lambda x: x[:, ::-1],
    "follows": lambda x: x[:, ::-1],
    "unit_of": lambda x: x[:, ::-1],
}


@pytest.mark.parametrize("part", ALTERED)
def test_every_part_that_is_altered_is_noticed(tmp_path, part):
    path = tmp_path / "p.npz"
    random_problem(np.random.default_rng(5), 40, 3).save(path)
    with np.load(path) as parts:
        before = parts[part]
    after = ALTERED[part](before)
    assert after.shape == before.shape and after.dtype == before.dtype and (after != before).any()
    rewritten(path, **{part: after})
    with pytest.raises(SourceError) as caught:
        Problem.load(path)
    assert "cut off or damaged" in caught.value.received


@pytest.mark.parametrize("described", ["topology", "constraints"])
def test_what_the_header_says_is_noticed_too(tmp_path, described):
    path = tmp_path / "p.npz"
    random_problem(np.random.default_rng(5), 40, 3).save(path)
    with np.load(path) as parts:
        problem = json.loads(parts["header"].tobytes())["problem"]
    problem[described] = {**problem[described], "source": "another"} if described == "topology" else {"headroom": 0.5}
    header_with(path, problem=problem)
    with pytest.raises(SourceError) as caught:
        Problem.load(path)
    assert "cut off or damaged" in caught.value.received


def test_archives_of_versions_without_a_digest_of_the_content_are_read(graph, tmp_path):
    graph.save(tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as parts:
        header = json.loads(parts["header"].tobytes())
    del header["content"]
    rewritten(tmp_path / "g.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    assert_same(OpGraph.load(tmp_path / "g.npz"), graph)


def signed(path, **changes):
    """The archive with other parts, and the digest of its content that they have."""
    rewritten(path, **changes)
    with np.load(path) as parts:
        header, rest = json.loads(parts["header"].tobytes()), {**parts}
    header["content"] = archive._content(header, rest)
    rewritten(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8))


@pytest.mark.parametrize(
    "bomb",
    [
        pack_integers("op_names.shared", np.full(4, 2**31 - 1, np.int32)),
        {"trips.table": np.zeros((1, 10**6), np.int64), **pack_integers("trips.which", np.zeros(10**4, np.int32))},
        {"tensor_op": np.zeros((3, 2), np.uint8)},
        {"edge_back": np.zeros(3)},
        pack_integers("tensor_op", np.zeros(3, np.int64)),
        pack_texts("op_attrs.table", ("[" * 100_000,)),
    ],
    ids=lambda parts: next(iter(parts)),
)
def test_parts_that_unpack_to_more_or_to_something_else(graph, tmp_path, bomb):
    graph.save(tmp_path / "g.npz")
    signed(tmp_path / "g.npz", **bomb)
    with pytest.raises(SourceError) as caught:
        OpGraph.load(tmp_path / "g.npz")
    assert "cut off or damaged" in caught.value.received


def test_a_newer_version_says_so(graph, tmp_path):
    path = tmp_path / "g.npz"
    graph.save(path)
    header_with(path, format="tfplace-archive/2", tfplace="9.9")
    with pytest.raises(SourceError, match=r"tfplace-archive/2, written by tfplace 9\.9.*Update tfplace"):
        OpGraph.load(path)


def test_a_graph_is_no_problem_and_names_end_in_npz(graph, tmp_path):
    graph.save(tmp_path / "g.npz")
    with pytest.raises(SourceError, match=r"a graph only.*tfplace\.formulate"):
        Problem.load(tmp_path / "g.npz")
    with pytest.raises(SourceError, match=r"ends in '\.npz'"):
        make_problem(graph, make_topology(2)).save(tmp_path / "p.json")
    with pytest.raises(GraphError, match="devices for a MetaGraphDef only"):
        graph.save(tmp_path / "g.npz", devices={})


# ---- what a loaded graph is good for ---------------------------------------------------------------------------------


@pytest.mark.tensorflow
def test_a_loaded_graph_is_placed_but_not_run(tmp_path):
    problem = random_problem(np.random.default_rng(1), 20, 2)
    problem.graph.save(tmp_path / "g.npz")
    problem.save(tmp_path / "p.npz")
    quick = {"placer": "heft", "budget": 5, "progress": False}
    placed = tfplace.place(str(tmp_path / "p.npz"), **quick)
    assert placed.devices == tfplace.place(problem, **quick).devices
    placed = tfplace.place(tmp_path / "g.npz", "2xP100", **quick)
    assert placed.graph_fingerprint == problem.graph.fingerprint
    with pytest.raises(GraphError, match=rf"loaded from a file.*{problem.graph.fingerprint}"):
        OpGraph.load(tmp_path / "g.npz").metagraph()
    with pytest.raises(ApplyError, match=r"loaded from a file.*tfplace\.apply\(model, placement, batch\)"):
        tfplace.apply(str(tmp_path / "g.npz"), placed)


def test_extract_takes_an_archive_as_it_is(graph, tmp_path):
    graph.save(tmp_path / "g.npz")
    assert tfplace.extract(tmp_path / "g.npz", name="other").name == "other"
    with pytest.raises(SourceError, match="one step's graph as it is"):
        tfplace.extract(str(tmp_path / "g.npz"), batch=np.zeros(3))
    with pytest.raises(SourceError, match="one step's graph as it is"):
        tfplace.place(str(tmp_path / "g.npz"), "2xP100", batch=np.zeros(3))


def test_neither_saving_nor_loading_nor_placing_loads_tensorflow(tmp_path):
    code = f"""
import sys, numpy as np, tfplace
from tfplace.testing import random_problem
problem = random_problem(np.random.default_rng(0), 10, 2)
problem.graph.save({str(tmp_path / "g.npz")!r})
tfplace.place({str(tmp_path / "g.npz")!r}, "2xP100", placer="heft", budget=3, progress=False)
print("tensorflow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_is_archive():
    assert archive.is_archive("a/b.npz")
    assert not archive.is_archive("inception_v3")
    assert not archive.is_archive(object())


def test_slices_that_are_none_are_noticed(tmp_path):
    path = tmp_path / "g.npz"
    split().save(path)
    whole = path.read_bytes()
    with np.load(path) as parts:
        header = json.loads(parts["header"].tobytes())
    longer = pack_integers("x", np.zeros(99, np.int32))["x"]
    for part, other in {
        "slices.slice_of": longer,
        "slices.original.length": longer,
        "slices.original.bytes": None,
    }.items():
        path.write_bytes(whole)
        signed(path, **{part: other})
        with pytest.raises(SourceError, match="cut off or damaged"):
            OpGraph.load(path)
    for described in (
        {"sizes": [12, 0]},
        {"sizes": [12, 4.0]},
        {"sizes": [16]},
        {"sizes": []},
        {"gathered": "loss"},
        {"gathered": [3]},
        {"differences": [{"kind": "taste", "ops": []}]},
        {"differences": [{"kind": "draws", "ops": [None]}]},
        {"differences": 3},
    ):
        path.write_bytes(whole)
        graph = header["graph"] | {"slices": header["graph"]["slices"] | described}
        header_with(path, graph=graph)
        signed(path)
        with pytest.raises(SourceError, match="cut off or damaged"):
            OpGraph.load(path)
