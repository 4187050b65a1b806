import importlib
import inspect
import json
import re
import shlex

import pytest

import tfplace
import tfplace.cli
from tests.pages import ROOT, text
from tfplace import Topology, errors
from tfplace.cli.flags import CompareFlags, PlaceFlags
from tfplace.cli.option_tables import COMMANDS, PAGES, written
from tfplace.cli.plan import plan_command
from tfplace.learned.training.metrics import TAGS
from tfplace.options import FitOptions
from tfplace.registry import PLACERS
from tfplace.report.tensorboard import BEST, TRAINING
from tfplace.testing import make_graph

FENCED = re.DOTALL | re.MULTILINE


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_options_are_those_that_a_fresh_generation_writes(page):
    assert written(text(page)) == text(page), "run scripts/make_docs.py"


@pytest.mark.parametrize(
    ("page", "options"),
    [
        *(("docs/reference/cli.md", flags) for flags in (PlaceFlags, CompareFlags, *COMMANDS.values())),
        ("docs/reference/keras.md", FitOptions),
    ],
)
def test_every_option_is_documented(page, options):
    flags = page == "docs/reference/cli.md"
    told = re.findall(r"^\| `(?:--)?(\w+)", text(page), re.MULTILINE)
    assert {one.flag if flags else one.name for one in options.declared().values() if one.flag or not flags} <= {*told}


def test_every_public_name_is_in_the_python_reference():
    generated = re.findall(r"^::: tfplace\.(\w+)", text("docs/reference/python.md"), re.MULTILINE)
    elsewhere = {"TfplaceError", "InfeasibleError", "__version__"}
    assert {*generated} == {*tfplace.__all__} - elsewhere


def test_every_error_is_in_the_reference_and_says_what_to_do():
    listed = re.findall(r"^ +- (\w+Error)$", text("docs/reference/errors.md"), re.MULTILINE)
    known = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, Exception)]
    assert sorted(listed) == sorted(one.__name__ for one in known)
    assert all("What to do: " in one.__doc__ for one in known)


def test_every_preset_is_documented():
    assert all(f"`{name}`" in text("docs/reference/presets.md") for name in Topology.presets())


def test_the_example_topology_loads():
    example = json.loads(re.search(r"```json\n(.*?)```", text("docs/reference/topology.md"), re.DOTALL)[1])
    topology = Topology.from_dict(example)
    assert topology.device_names == ("CPU:0", "GPU:0", "GPU:1")
    assert "uplink" in topology.channel_names


def test_the_readme_commands_are_one_line_each_and_parse():
    plan, test = re.findall(r"^python3\.11 -m venv .*$", text("README.md"), re.MULTILINE)
    flags = plan_command.make_context("plan", plan.partition("tfplace plan ")[2].split()).params
    assert flags["model"] == "inception_v3"
    assert flags["topology"] in Topology.presets()
    assert "-m pytest" in test


@pytest.mark.parametrize("name", tfplace.cli.COMMANDS)
def test_every_command_on_a_page_has_flags_that_there_are(name):
    command = getattr(importlib.import_module(tfplace.cli.COMMANDS[name][0]), f"{name}_command")
    pages = [path.read_text() for path in ROOT.glob("docs/**/*.md")]
    blocks = "".join(block for page in pages for block in re.findall(r"^ *```(?:sh|text)\n(.*?)```", page, FENCED))
    lines = re.findall(rf"^ *tfplace {name} (-.*|\S+ -.*|\S+)$", blocks.replace("\\\n", " "), re.MULTILINE)
    for line in lines:
        command.make_context(name, shlex.split(line.partition(" #")[0].partition(" ||")[0]))


def test_the_placer_of_ones_own_works_as_written(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", text("docs/how_to/own_placer.md"), re.DOTALL)[1]
    (tmp_path / "greedy.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    graph = make_graph({"a": 10**9, "b": 10**9, "c": 10**6}, ["a -> c", "b -> c"])
    found = tfplace.compare(graph, "2xP100", placers=("greedy:Greedy",), budget=100, seeds=2, progress=False)
    assert not found.troubles()
    assert found.results.median_s("greedy:Greedy") <= found.results.median_s("single")


def test_the_simulator_is_asked_as_written(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", text("docs/concepts/simulator.md"), re.DOTALL)[1]
    graph = make_graph({"a": 10**6, "b": 10**6}, ["a -> b"])
    graph.save(tmp_path / "graph.npz")
    (tmp_path / "out").mkdir()
    tfplace.place(graph, "2xP100", placer="single", budget=5, progress=False).save(tmp_path / "out" / "placement.json")
    monkeypatch.chdir(tmp_path)
    said = []
    exec(code, {"tfplace": tfplace, "print": lambda *values: said.extend(values)})
    assert said[0] > 0 and said[1] is True and len(said[2]) == 9


def test_every_name_that_policies_log_is_documented():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \|$", text("docs/concepts/learned_policies.md").split("## What is logged")[1], re.M
    )
    assert dict(rows) == TAGS
    assert f"`{BEST}`" in text("docs/concepts/learned_policies.md") and f"`{TRAINING}...`" in text(
        "docs/concepts/learned_policies.md"
    )


def test_every_placer_is_in_the_list_with_what_it_needs_and_whether_it_goes_on():
    row = r"^\| `(\w+)` \|(?:.*\|)? (yes|no) \| (?:`'\.\[(\w+)\]'` )?\|$"
    rows = re.findall(row, text("docs/concepts/placers.md"), re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == list(PLACERS)
    for name, init, extra in rows:
        assert (init == "yes") == PLACERS[name].accepts_starts, name
        assert extra == (PLACERS[name].extra or ""), name
