"""What reads the damaged: every kind of input, made from a seed and read in a process of its own.

Each function damages one kind of input and reads it. What it returns, or the `TfplaceError` it raises, is how it ended;
anything else that it raises is a fault. What is accepted has to make sense: it is used once, and asserted about.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import pickle
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np

import tfplace
from tests.fuzz.mutations import ODD, damage_arrays, damage_message, damaged_bytes, damaged_json, pick, told
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.slices import STATISTICS, Difference, Slices
from tfplace.core.topology import Topology
from tfplace.cost.profile import DeviceProfile, OpTime, Profile, ProfiledStep
from tfplace.errors import TfplaceError
from tfplace.extraction.file_source import FileReader
from tfplace.testing import random_problem


def serve(pipe):
    """Answers (kind, seed) with (whether it ended as it should, how it ended)."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pipe.send(b"")
        with contextlib.suppress(EOFError):
            while True:
                kind, seed = pickle.loads(pipe.receive())
                pipe.send(pickle.dumps(ended(kind, seed)))


def ended(kind, seed):
    """(Whether reading it ended as it should, how it ended.)"""
    try:
        with np.errstate(all="raise"):  # a number that overflows was accepted though it should not have been
            KINDS[kind](np.random.default_rng(seed))
    except TfplaceError as error:
        return True, type(error).__name__
    except Exception as error:
        return False, "".join(traceback.format_exception(error))
    return True, "accepted"


# ---- what is damaged -------------------------------------------------------------------------------------------------


@functools.cache
def problem():
    """Of a graph in slices, which an archive keeps too."""
    whole = random_problem(np.random.default_rng(3), 15, 2)
    count = whole.graph.num_ops
    slice_of = (np.arange(count) % 3 - 1).astype(np.int32)
    differences = (Difference(STATISTICS, ("norm",)),)
    slices = Slices((5, 3), slice_of, tuple(f"op{v // 2}" for v in range(count)), ("op1",), differences)
    return replace(whole, graph=replace(whole.graph, slices=slices))


@functools.cache
def topology():
    return Topology.preset("2xP100")


@functools.cache
def placement():
    return tfplace.place(problem(), placer="single", budget=2, progress=False)


@functools.cache
def profile():
    values = {"int": 3, "float": 1e-3, "str": "text"}
    row = OpTime(**{name: values[str(kind)] for name, kind in OpTime.__annotations__.items()})
    step = ProfiledStep(**{name: values[str(kind)] for name, kind in ProfiledStep.__annotations__.items()})
    return Profile(
        (DeviceProfile("Tesla P100-PCIE-16GB", "GPU", "2.21", "one", {"MatMul float32": row, "Exp": row}, (step,)),)
    )


def damaged_text(data, rng):
    text = json.dumps(data, indent=1)
    if rng.integers(3) == 0:
        return damaged_bytes(text.encode(), rng)
    return told(damaged_json(data, rng)).encode()


# ---- files of JSON ---------------------------------------------------------------------------------------------------


def read_topology(rng):
    Path("t.json").write_bytes(damaged_text(topology().to_dict(), rng))
    read = Topology.load("t.json")
    assert Topology.from_dict(read.to_dict()).fingerprint == read.fingerprint
    told_again = json.dumps(read.to_dict(), allow_nan=False)
    assert "\n" not in read.name and all(name.isprintable() for name in read.device_names), told_again
    cost = tfplace.simulate(*_everything_on_one(tfplace.formulate(problem().graph, read)))
    assert np.isfinite(cost.step_s) and cost.step_s >= 0


def _everything_on_one(of):
    for device in of.topology.device_names:
        if of.allowed[:, of.topology.index(device)].all():
            return of, dict.fromkeys(of.graph.op_names, device)
    raise TfplaceError("no device for all")


def read_profile(rng):
    profile().save("p.json")
    Path("p.json").write_bytes(damaged_text(json.loads(Path("p.json").read_text()), rng))
    read = Profile.load("p.json")
    read.save("again.json")
    assert repr(Profile.load("again.json").devices) == repr(read.devices)
    tfplace.formulate(problem().graph, topology(), profile=read)


def read_placement(rng):
    Path("placement.json").write_bytes(damaged_text(json.loads(placement().to_json()), rng))
    read = Placement.load("placement.json")
    again = Placement.from_json(read.to_json())
    assert again.devices == read.devices and again.to_json() == read.to_json()
    read.summary()
    bound = Placement.load("placement.json", problem=problem())
    tfplace.simulate(problem(), bound)


WORKLOAD = {
    "id": "small",
    "n_accelerators": 2,
    "accelerator_bytes": 2**30,
    "nodes": {
        "id": [0, 1, 2],
        "name": ["a", "b", "c"],
        "cpu_ms": [3.0, 3.0, 3.0],
        "acc_ms": [1.0, 1.0, 1.0],
        "out_ms": [0.1, 0.2, 0.3],
        "bytes": [100, 200, 300],
        "group": [0, 1, 1],
        "backward": [False, False, True],
    },
    "edges": [[0, 1], [1, 2]],
}


def read_workload(rng):
    Path("w.json").write_bytes(damaged_text(WORKLOAD, rng))
    tfplace.place("w.json", placer="single", budget=2, progress=False)


# ---- archives --------------------------------------------------------------------------------------------------------


def read_archive_bytes(rng):
    """Damage that nobody signed: what is accepted is what was written."""
    problem().save("a.npz")
    Path("a.npz").write_bytes(damaged_bytes(Path("a.npz").read_bytes(), rng))
    read = Problem.load("a.npz")
    assert read.fingerprint == problem().fingerprint
    assert repr(read.graph.op_attrs) == repr(problem().graph.op_attrs)


def read_archive_parts(rng):
    """Damage to the parts, with the digest that they have: it may be a graph, but none that crashes."""
    from tfplace.io import archive

    whole = bool(rng.integers(2))
    (problem() if whole else problem().graph).save("a.npz")
    with np.load("a.npz") as parts:
        held = {**parts}
    header = json.loads(held.pop("header").tobytes())
    if rng.integers(3) == 0:
        header = damaged_json(header, rng)
    else:
        damage_arrays(held, rng)
    if isinstance(header, dict) and {"graph", "problem"} <= set(header) and "@deep@" not in repr(header):
        with contextlib.suppress(TypeError):
            header["content"] = archive._content(header, held)
    np.savez("a.npz", header=np.frombuffer(told(header).encode(), np.uint8), **held)
    read = Problem.load("a.npz") if whole else tfplace.formulate(OpGraph.load("a.npz"), topology())
    cost = tfplace.simulate(*_everything_on_one(read))
    assert np.isfinite(cost.step_s) and cost.step_s >= 0


# ---- graphs ----------------------------------------------------------------------------------------------------------


@functools.cache
def metagraph():
    from tests.extraction.models import tf1_graph

    return tf1_graph()


@functools.cache
def function_graph():
    """A call, a loop, a constant and variables."""
    import tensorflow as tf

    @tf.function
    def step(x, n):
        table = tf.reshape(tf.range(12.0), [3, 4])
        inner = tf.function(lambda a: tf.nn.relu(a @ table))
        for _ in tf.range(n):
            x = tf.concat(tf.split(inner(x), [3, 1], 1), 1)[:, :3]
        return tf.reduce_sum(x, 1), tf.strings.length(tf.constant(["a", "bb"]))

    return step.get_concrete_function(tf.TensorSpec([None, 3]), tf.TensorSpec([], tf.int32)).graph.as_graph_def()


@functools.cache
def saved_model():
    import tensorflow as tf

    module = tf.Module()
    module.v = tf.Variable(tf.ones([3, 4]))
    module.f = tf.function(lambda x: {"y": tf.nn.relu(x @ module.v)}, input_signature=[tf.TensorSpec([None, 3])])
    tf.saved_model.save(module, "saved", signatures=module.f)
    return {path: path.read_bytes() for path in Path("saved").rglob("*") if path.is_file()}


def damaged_message(message, rng):
    if rng.integers(4) == 0:
        return damaged_bytes(message.SerializeToString(), rng)
    damaged = type(message)()
    damaged.CopyFrom(message)
    damage_message(damaged, rng)
    return damaged.SerializeToString()


def read_graph_def(rng):
    read_graph("g.pb", damaged_message(function_graph(), rng), rng)


def read_metagraph(rng):
    read_graph("g.meta", damaged_message(metagraph(), rng), rng)


def read_graph_text(rng):
    read_graph("g.pbtxt", damaged_bytes(str(function_graph()).encode(), rng), rng)


def read_graph(name, data, rng):
    Path(name).write_bytes(data)
    check_graph(reader().read(Path(name).absolute(), examples=None if rng.integers(2) else 5))


@functools.cache
def reader():
    return FileReader()


def read_saved_model(rng):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    whole = saved_model()
    for path, data in whole.items():
        path.write_bytes(data)
    path = pick(rng, sorted(whole)) if rng.integers(2) else Path("saved/saved_model.pb")
    if path.name == "saved_model.pb":
        path.write_bytes(damaged_message(SavedModel.FromString(whole[path]), rng))
    else:
        path.write_bytes(damaged_bytes(whole[path], rng))
    check_graph(reader().read(Path("saved").absolute()))


def check_graph(graph):
    """It can be written back, kept, loaded and simulated."""
    graph.metagraph()
    graph.save("kept.npz")
    assert OpGraph.load("kept.npz").fingerprint == graph.fingerprint
    cost = tfplace.simulate(*_everything_on_one(tfplace.formulate(graph, topology())))
    assert np.isfinite(cost.step_s) and cost.step_s >= 0


# ---- flags -----------------------------------------------------------------------------------------------------------

COMMANDS = {
    "place": {"model": "a.npz", "topology": "2xP100", "placer": "heft", "budget": "3 evaluations"},
    "compare": {"model": "a.npz", "topology": "2xP100", "placers": "single", "budget": "2 evaluations", "seeds": "1"},
    "extract": {"output": "b.npz"},
}
NEVER = ("workers", "cluster", "controllers", "help")
"""What starts processes, and would not be done in time."""


def read_flags(rng):
    from tfplace.cli import INFEASIBLE, PLACED, main
    from tfplace.cli.click_options import LazyGroup  # noqa: F401  # the commands are built with it

    problem().graph.save("a.npz")
    placement().save("placement.json")
    command = pick(rng, sorted(COMMANDS))
    flags = dict(COMMANDS[command])
    values = [str(odd) for odd in ODD if isinstance(odd, str | int | float | None)]
    values = [v for v in values if "\ud800" not in v] + [
        "placement.json",
        "a.npz",
        "2xP100",
        "GPU:0",
        "*=GPU:0",
        "1GiB",
        "0.1",
    ]
    for _ in range(int(rng.integers(1, 4))):
        flags[pick(rng, _flags(command))] = pick(rng, values)
    words = ["a.npz"] if command == "extract" else []
    argv = [command, *words, *(f"--{name}={value}" for name, value in flags.items()), "--quiet"]
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(argv)
    if code not in (PLACED, 2, INFEASIBLE):
        raise AssertionError(f"{[word[:80] for word in argv]} ended with {code}: {said.getvalue()[-3000:]}")
    if code != PLACED:
        raise TfplaceError(said.getvalue())


@functools.cache
def _flags(command):
    from tfplace.cli.extract import ExtractFlags
    from tfplace.cli.flags import CompareFlags, PlaceFlags

    kinds = {"place": PlaceFlags, "compare": CompareFlags, "extract": ExtractFlags}
    flags = {o.flag for o in kinds[command].declared().values()}
    return sorted(flags - {None, *NEVER})


KINDS = {
    "topology": read_topology,
    "profile": read_profile,
    "placement": read_placement,
    "workload": read_workload,
    "archive bytes": read_archive_bytes,
    "archive parts": read_archive_parts,
    "flags": read_flags,
    "GraphDef": read_graph_def,
    "MetaGraphDef": read_metagraph,
    "graph text": read_graph_text,
    "SavedModel": read_saved_model,
}
GRAPHS = ("GraphDef", "MetaGraphDef", "graph text", "SavedModel")
"""Kinds that TensorFlow reads."""

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
