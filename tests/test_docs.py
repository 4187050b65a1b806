import functools
import importlib
import itertools
import json
import re

import numpy as np
import pytest

import tfplace
from tests.pages import ROOT, text
from tfplace import Topology
from tfplace.cli.flags import CompareFlags, PlaceFlags
from tfplace.cli.option_tables import PAGES, written
from tfplace.cli.plan import plan_command
from tfplace.learned.training.metrics import TAGS
from tfplace.options import FitOptions
from tfplace.registry import PLACERS
from tfplace.report.tensorboard import BEST, TRAINING
from tfplace.testing import make_graph


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_options_are_those_that_a_fresh_generation_writes(page):
    assert written(text(page)) == text(page), "run scripts/make_docs.py"


@pytest.mark.parametrize(
    ("page", "options"), [("docs/cli.md", PlaceFlags), ("docs/cli.md", CompareFlags), ("docs/keras.md", FitOptions)]
)
def test_every_option_is_documented(page, options):
    flags = page == "docs/cli.md"
    told = re.findall(r"^\| `(?:--)?(\w+)", text(page), re.MULTILINE)
    assert {one.flag if flags else one.name for one in options.declared().values() if one.flag or not flags} <= {*told}


def test_every_preset_is_documented():
    assert all(f"`{name}`" in text("docs/topology.md") for name in Topology.presets())


def test_the_example_topology_loads():
    example = json.loads(re.search(r"```json\n(.*?)```", text("docs/topology.md"), re.DOTALL)[1])
    topology = Topology.from_dict(example)
    assert topology.device_names == ("CPU:0", "GPU:0", "GPU:1")
    assert "uplink" in topology.channel_names


def test_the_readme_commands_are_one_line_each_and_parse():
    plan, test = re.findall(r"^python3\.11 -m venv .*$", text("README.md"), re.MULTILINE)
    flags = plan_command.make_context("plan", plan.partition("tfplace plan ")[2].split()).params
    assert flags["model"] == "inception_v3"
    assert flags["topology"] in Topology.presets()
    assert "-m pytest" in test


def test_the_placer_of_ones_own_works_as_written(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", text("docs/own_placer.md"), re.DOTALL)[1]
    (tmp_path / "greedy.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    graph = make_graph({"a": 10**9, "b": 10**9, "c": 10**6}, ["a -> c", "b -> c"])
    found = tfplace.compare(graph, "2xP100", placers=("greedy:Greedy",), budget=100, seeds=2, progress=False)
    assert not found.troubles()
    assert found.results.median_s("greedy:Greedy") <= found.results.median_s("single")


def test_the_simulator_is_asked_as_written(tmp_path, monkeypatch):
    code = re.search(r"## Asking it\n\n```python\n(.*?)```", text("docs/simulator.md"), re.DOTALL)[1]
    graph = make_graph({"a": 10**6, "b": 10**6}, ["a -> b"])
    graph.save(tmp_path / "graph.npz")
    (tmp_path / "out").mkdir()
    tfplace.place(graph, "2xP100", placer="single", budget=5, progress=False).save(tmp_path / "out" / "placement.json")
    monkeypatch.chdir(tmp_path)
    said = []
    exec(code, {"tfplace": tfplace, "print": lambda *values: said.extend(values)})
    assert said[0] > 0 and said[1] is True and len(said[2]) == 9


@pytest.mark.tensorflow
def test_a_model_that_does_not_fit_is_placed_and_trained_as_written(tmp_path, monkeypatch):
    model, fit = re.findall(r"```python\n(.*?)```", text("docs/does_not_fit.md"), re.DOTALL)
    (tmp_path / "net.py").write_text(model)
    monkeypatch.syspath_prepend(tmp_path)
    small = {"batch": 4, "words": 8, "width": 32, "layers": 1, "vocabulary": 50}
    net = importlib.import_module("net")
    monkeypatch.setattr(net, "build", functools.partial(net.build, **small))
    built, batch = net.build()
    graph = tfplace.extract(built, batch)
    need = tfplace.place(graph, "4xP100", placer="single", budget=5, progress=False).cost.peak_bytes.max()
    limits = {"GPU:*": int(0.8 * need), "CPU:0": 1 << 20}
    placed = tfplace.place(graph, "4xP100", budget=300, max_memory=limits, progress=False)
    assert placed.cost.feasible and sum(name.startswith("GPU") for name in {*placed.devices.values()}) > 1

    tokens = np.zeros((32, 8), np.int32)
    exec(fit.replace('"60s"', "50"), said := {"x": tokens, "y": tokens})
    assert said["model"].optimizer.iterations.numpy() == 2


@pytest.mark.tensorflow
def test_a_model_is_trained_on_several_devices_as_written():
    fit = re.search(r"```python\n(.*?)```", text("docs/several_gpus.md"), re.DOTALL)[1]
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((64, 8)).astype(np.float32), "y": rng.integers(10, size=64)}
    exec(fit.replace('"60s"', "60"), given)
    assert given["model"].optimizer.iterations.numpy() == 2


def test_another_box_is_asked_as_written(tmp_path, monkeypatch):
    page = text("docs/other_box.md")
    (tmp_path / "box.json").write_text(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    branches = [[f"{side}{i}" for i in range(100)] for side in "ab"]
    edges = [f"{one} -> {two}" for branch in branches for one, two in itertools.pairwise([*branch, "c"])]
    ops = {op: 10**6 if op.endswith("99") else 1000 for branch in branches for op in branch}
    make_graph({**ops, "c": 1000}, edges).save(tmp_path / "gpt.npz")
    monkeypatch.chdir(tmp_path)
    said = []
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    exec(code.replace('"60s"', "50"), {"print": lambda *values: said.extend(values)})
    assert 0 < said[0] < said[1]


def test_links_between_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


def test_every_name_that_policies_log_is_documented():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", text("docs/policies.md").split("## What is logged")[1], re.M)
    assert dict(rows) == TAGS
    assert f"`{BEST}`" in text("docs/policies.md") and f"`{TRAINING}...`" in text("docs/policies.md")


def test_every_placer_is_in_the_list_with_what_it_needs_and_whether_it_goes_on():
    row = r"^\| `(\w+)` \|(?:.*\|)? (yes|no) \| (?:`'\.\[(\w+)\]'` )?\|$"
    rows = re.findall(row, text("docs/placers.md"), re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == list(PLACERS)
    for name, init, extra in rows:
        assert (init == "yes") == PLACERS[name].accepts_starts, name
        assert extra == (PLACERS[name].extra or ""), name
