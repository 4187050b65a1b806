"""Options are declared once; everything that names them has the same ones, with the same defaults."""

import inspect
import json

import numpy as np
import pytest

import tfplace
from tfplace.cli.compare import compare_command
from tfplace.cli.extract import ExtractFlags, extract_command
from tfplace.cli.flags import CompareFlags, PlaceFlags, PlanFlags
from tfplace.cli.memory import MemoryFlags, memory_command
from tfplace.cli.option_tables import option_table, written
from tfplace.cli.place import place_command
from tfplace.cli.plan import plan_command
from tfplace.cli.profile import ProfileFlags, profile_command
from tfplace.core.constraints import Constraints
from tfplace.core.engine import Controllers
from tfplace.cost.profile import DeviceProfile, Profile
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import InputError, UnknownOptionError
from tfplace.keras import PlacementCallback
from tfplace.options import CompareOptions, FitOptions, PlanOptions, SearchOptions, SplitOptions
from tfplace.testing import random_problem

SURFACES = [(tfplace.place, SearchOptions), (tfplace.compare, CompareOptions), (PlacementCallback, FitOptions)]
SURFACES.append((tfplace.plan, PlanOptions))
COMMANDS = [(place_command, PlaceFlags, SearchOptions), (compare_command, CompareFlags, CompareOptions)]
COMMANDS.append((plan_command, PlanFlags, PlanOptions))
OTHERWISE = {"constraints", "progress"}
"""Told by --pin, --forbid, --colocate and --headroom, and by --quiet."""


@pytest.fixture
def problem():
    return random_problem(np.random.default_rng(3), 20, 2)


@pytest.mark.parametrize(("function", "options"), SURFACES)
def test_signatures_have_every_option_with_its_default(function, options):
    found = inspect.signature(function).parameters
    assert {"source", "batch"} & {*found} == {*found} - {*options.declared()}
    for name, declared in options.declared().items():
        assert found[name].default == declared.default, name


@pytest.mark.parametrize(("function", "options"), SURFACES)
def test_help_describes_every_option_with_its_default(function, options):
    told = " ".join(inspect.getdoc(function).split())
    for name, declared in options.declared().items():
        assert f"{name}: {declared.text}." in told


@pytest.mark.parametrize(("command", "flags", "options"), COMMANDS)
def test_commands_have_every_option_with_its_default(command, flags, options):
    names = {param.name for param in command.params}
    assert names == {name for name, one in flags.declared().items() if one.flag}
    assert {*options.declared()} - names == OTHERWISE
    assert flags().narrowed(options) == options()
    assert {one.default for one in command.params} == {None}  # what is not given is the field's own default


@pytest.mark.parametrize("function", [tfplace.extract, tfplace.memory])
def test_whatever_reads_a_model_has_the_options_of_splitting(function):
    found, told = inspect.signature(function).parameters, " ".join(inspect.getdoc(function).split())
    for name, declared in SplitOptions.declared().items():
        assert found[name].default == declared.default, name
        assert f"{name}: {declared.text}." in told


@pytest.mark.parametrize(
    ("command", "flags"),
    [(extract_command, ExtractFlags), (memory_command, MemoryFlags), (profile_command, ProfileFlags)],
)
def test_so_have_the_commands_that_read_one(command, flags):
    assert {*SplitOptions.declared()} < {param.name for param in command.params}
    assert flags().narrowed(SplitOptions) == SplitOptions()


def test_the_callback_lacks_only_what_fit_decides():
    assert {*SearchOptions.declared()} - {*FitOptions.declared()} == {"evaluator", "progress"}


CHANGES = {
    "placer": {"placer": "gdp"},
    "grouper": {"grouper": "metis"},
    "groups": {"grouper": "metis", "groups": 3},
    "seed": {"seed": 1},
    "controllers": {"controllers": 2},
    "asynchronous": {"controllers": 2, "asynchronous": True},
    "weights": {"weights": __file__},
    "fine_tune": {"fine_tune": 3},
    "slices": {"slices": (12, 4)},
    "batch_norm": {"slices": 2, "batch_norm": "synchronized"},
    "pack": {"slices": 2, "pack": True},
    "compile": {"compile": "xla"},
}
ELSEWHERE = {"topology", "profile", "constraints", "max_memory", "budget", "evaluator", "objective", "init"}
"""A run directory records what comes of these: the problem's fingerprint, the evaluator's own words and so on."""
NO_OTHER_SEARCH = {"baselines", "engine", "progress", "run_dir", "resume", "tensorboard"}


def test_a_run_directory_records_every_option_that_makes_another_search():
    assert {*SearchOptions().record()} == {*CHANGES}
    assert {*SearchOptions.declared()} == {*CHANGES} | ELSEWHERE | NO_OTHER_SEARCH


@pytest.mark.parametrize("name", CHANGES)
def test_another_option_is_another_record(name):
    assert SearchOptions(**CHANGES[name]).record()[name] != SearchOptions().record()[name]


def test_slices_are_recorded_as_json_reads_them_and_those_of_a_whole_batch_not_at_all():
    for slices in (4, (12, 4), None):
        kept = SearchOptions(slices=slices, batch_norm="synchronized").check().record()
        assert json.loads(json.dumps(kept)) == kept
    assert SearchOptions(slices=1, batch_norm="synchronized").check().record() == SearchOptions().record()


def test_equal_options_resume_and_the_option_that_differs_is_named(problem, tmp_path):
    wanted = {"placer": "local_search", "budget": 20, "grouper": "metis", "groups": 5, "progress": False}
    first = tfplace.place(problem, **wanted, run_dir=tmp_path)
    assert tfplace.place(problem, **wanted, run_dir=tmp_path).diff(first) == {}
    for name, value in {"seed": 1, "groups": 6, "placer": "annealing", "budget": 21}.items():
        with pytest.raises(InputError) as refused:
            tfplace.place(problem, **{**wanted, name: value}, run_dir=tmp_path)
        assert name in refused.value.received


def test_a_run_directory_without_options_that_were_not_given_is_resumed(problem, tmp_path):
    """As earlier versions wrote it."""
    wanted = {"placer": "local_search", "budget": 20, "run_dir": tmp_path, "progress": False}
    first = tfplace.place(problem, **wanted)
    config = json.loads((tmp_path / "config.json").read_text())
    kept = {"placer", "grouper", "groups", "seed", "init", "problem", "graph", "topology", "budget", "evaluator"}
    kept |= {"objective", "versions", "format", "settings"}
    (tmp_path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if key in kept}))
    assert tfplace.place(problem, **wanted).diff(first) == {}


@pytest.mark.parametrize("function", [tfplace.place, tfplace.compare, lambda _, **given: PlacementCallback(**given)])
def test_unknown_options_are_refused_with_near_names(function):
    with pytest.raises(UnknownOptionError) as refused:
        function("no model", budgt="30s")
    assert "'budgt'" in refused.value.received and "'budget'" in refused.value.hint
    assert isinstance(refused.value, TypeError)


WRONG = [
    ({"placer": "heftt"}, "'heftt'", "heft", "'heft'"),
    ({"grouper": "metiss"}, "'metiss'", "metis", "'metis'"),
    ({"evaluator": "measure"}, "'measure'", "measured", "'measured'"),
    ({"evaluator": 3}, "evaluator=3", "an evaluator", ""),
    ({"objective": "troughput"}, "'troughput'", "throughput", "'throughput'"),
    ({"objective": "throughput", "evaluator": "grappler"}, "'throughput'", "'simulated'", ""),
    ({"topology": "4xP101"}, "'4xP101'", "4xP100", "'4xP100'"),
    ({"topology": ""}, "topology=''", "no topology", ""),
    ({"run_dir": ""}, "run_dir=''", "no run_dir", ""),
    ({"run_dir": 3}, "run_dir=3", "a path", ""),
    ({"budget": "500"}, "budget='500'", "500 evaluations", ""),
    ({"budget": 0}, "budget=0", "at least 1", ""),
    ({"seed": 1.5}, "seed=1.5", "at least 0", ""),
    ({"seed": -1}, "seed=-1", "at least 0", ""),
    ({"groups": 4}, "groups=4", "a grouper", "metis"),
    ({"grouper": "metis", "groups": 0}, "groups=0", "at least 1", ""),
    ({"baselines": "heft"}, "baselines='heft'", "a sequence", "('heft',)"),
    ({"baselines": ("no_such",)}, "'no_such'", "heft", ""),
    ({"init": "heft", "placer": "metis"}, "'metis'", "warm starts", "auto"),
    ({"init": "lost.json"}, "'lost.json'", "a placement", ""),
    ({"resume": False}, "resume=False", "a run_dir", ""),
    ({"controllers": 2}, "'auto'", "controllers", "seq2seq"),
    ({"controllers": "2"}, "controllers='2'", "a number", ""),
    ({"controllers": -1}, "controllers=-1", "a number", ""),
    ({"controllers": 2, "placer": "seq2seq", "evaluator": "measured"}, "measured", "simulated", ""),
    ({"controllers": Controllers(ProcessEngine(1)), "placer": "seq2seq", "asynchronous": True}, "asynchronous", "", ""),
    ({"asynchronous": True}, "asynchronous=True", "at least 1 controller", ""),
    ({"engine": "ray"}, "engine='ray'", "processes:NUMBER", ""),
    ({"engine": "processes:2", "placer": "heft"}, "an engine with placer 'heft'", "searches on many workers", "auto"),
    ({"engine": "dask", "controllers": Controllers(ProcessEngine(1)), "placer": "seq2seq"}, "engine=", "alone", ""),
    ({"fine_tune": 3, "placer": "heft"}, "'heft'", "pretrained weights", "placeto"),
    ({"fine_tune": -1, "placer": "placeto"}, "fine_tune=-1", "at least 0", ""),
    ({"weights": "lost.npz", "placer": "placeto"}, "'lost.npz'", "train_policy", ""),
    ({"profile": "lost.json"}, "'lost.json'", "", ""),
    ({"profile": Profile((DeviceProfile("X", "CPU", "2", "1", {}, ()),)), "topology": "2xP100"}, "'X'", "P100", ""),
    ({"constraints": {"pin": {}}}, "dict", "tfplace.Constraints", ""),
    ({"constraints": Constraints(pin={"*": "GPU:7"}), "topology": "2xP100"}, "'GPU:7'", "GPU:1", ""),
    ({"constraints": Constraints(forbid={"*": "GPU:7"}), "topology": "2xP100"}, "'GPU:7'", "GPU:1", ""),
    ({"max_memory": {"GPU:7": "1GiB"}, "topology": "2xP100"}, "'GPU:7'", "GPU:1", ""),
    ({"max_memory": {"GPU:0": "some"}}, "some", "a size", ""),
    ({"max_memory": "1GiB"}, "max_memory='1GiB'", "a dict", ""),
    ({"slices": 0}, "slices=0", "examples of each", ""),
    ({"slices": "4"}, "slices='4'", "examples of each", ""),
    ({"slices": (3, 0)}, "slices=(3, 0)", "examples of each", ""),
    ({"batch_norm": "none"}, "batch_norm='none'", "'synchronized'", ""),
]


@pytest.mark.parametrize(("wrong", "received", "expected", "hint"), WRONG)
def test_wrong_options_are_refused_before_the_model_is_read(wrong, received, expected, hint):
    for check in (SearchOptions(**wrong).check, lambda: tfplace.place("no model", **wrong)):
        with pytest.raises(InputError) as refused:
            check()
        assert received in refused.value.received
        assert expected in refused.value.expected
        assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("wrong", "received"),
    [({"placers": "heft"}, "placers='heft'"), ({"placers": ["heftt"]}, "'heftt'"), ({"seeds": 0}, "seeds=0")],
)
def test_wrong_comparisons_are_refused_before_the_model_is_read(wrong, received):
    with pytest.raises(InputError) as refused:
        tfplace.compare("no model", **wrong)
    assert received in refused.value.received


def test_slices_of_what_has_the_sizes_of_one_batch_are_refused(problem, tmp_path):
    problem.save(tmp_path / "p.npz")
    for function in (tfplace.place, tfplace.compare, tfplace.memory):
        for source, what in ((problem, "a problem"), (problem.graph, "the graph"), (tmp_path / "p.npz", "the file")):
            with pytest.raises(InputError) as refused:
                function(source, slices=2)
            assert "slices" in refused.value.received and what in refused.value.received
    whole = {"placer": "single", "budget": 2, "progress": False}
    assert tfplace.place(problem, slices=1, **whole).diff(tfplace.place(problem, **whole)) == {}


def test_checked_options_have_files_read_and_are_what_they_were(problem, tmp_path):
    placement = tfplace.place(problem, placer="single", budget=2, progress=False)
    placement.save(tmp_path / "placement.json")
    given = SearchOptions(topology="2xP100", seed=np.int64(3), init=tmp_path / "placement.json", grouper="metis")
    checked = given.check()
    assert checked.topology.name == "2xP100" and checked.init.devices == placement.devices
    assert type(checked.seed) is int and checked.groups == 256
    assert checked.check() == checked


def test_pages_with_unknown_or_open_tables_are_refused():
    with pytest.raises(InputError):
        option_table("no_such")
    with pytest.raises(InputError):
        written("<!-- generated: options search -->\n")
