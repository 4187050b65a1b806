import json

import keras
import pytest

from tests.cli.refusing import assert_refused, refused
from tfplace import OpGraph
from tfplace.cli import PLACED, main
from tfplace.errors import SplitError

SMALL = ["--batch=6", *(f"--param={p}" for p in ("steps=2", "units=8", "vocabulary=50", "layers=1"))]


def written(path, *flags):
    keras.utils.clear_session()  # Keras numbers its names within a process
    assert main(["extract", "rnnlm_2", *SMALL, f"--output={path}", "--quiet", *flags]) == PLACED
    return OpGraph.load(path)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    path = tmp_path_factory.mktemp("split") / "split.npz"
    written(path, "--slices=3,2,1")
    return path


def test_extract_splits_and_says_so(tmp_path, capfd):
    whole, halves, one = (written(tmp_path / "g.npz", *flags) for flags in ([], ["--slices=2"], ["--slices=1"]))
    said = capfd.readouterr().out.splitlines()
    assert [line for line in said if "slices of" in line] == [str(halves.slices)]
    assert str(halves.slices).startswith("2 slices of 3 examples: ")
    assert one.fingerprint == whole.fingerprint and one.slices is None
    left_out = {*whole.op_names} - {*halves.base_names}  # a variable is read once
    assert all("Read" in name for name in left_out) and {*halves.base_names} < {*whole.op_names}
    assert [*halves.layers] == [*whole.layers]


def test_a_split_graph_is_placed_with_rules_for_all_copies_of_a_layer(split, capfd):
    graph = OpGraph.load(split)
    assert graph.slices.sizes == (3, 2, 1)
    layer, *_ = graph.layers
    words = ["place", f"--model={split}", "--topology=2xP100", "--placer=heft", "--budget=5 evaluations", "--quiet"]
    assert main([*words, f"--pin=layer:{layer}=GPU:1", "--layers", "--json"]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    assert facts["slices"]["sizes"] == [3, 2, 1] and facts["slices"]["verdict"] == graph.slices.verdict
    rows = {row["name"]: row for row in facts["simulated"]["layers"]}
    assert [*rows] == [*graph.layers] and [*rows[layer]["devices"]] == ["GPU:1"]


def test_place_and_compare_split_a_model_themselves(capfd):
    for command in (["place", "--placer=single"], ["compare", "--placers=single", "--seeds=1"]):
        keras.utils.clear_session()
        flags = ["--model=rnnlm_2", *SMALL, "--topology=2xP100", "--slices=3,2,1", "--budget=5 evaluations"]
        assert main([*command, *flags, "--quiet", "--json"]) == PLACED
    told = capfd.readouterr().out
    assert '"sizes": [\n   3,\n   2,\n   1\n  ]' in told


def test_memory_is_that_of_the_split_step(capfd):
    peaks = []
    for slices in ("1", "3"):
        keras.utils.clear_session()
        assert main(["memory", "rnnlm_2", *SMALL, "--topology=2xP100", f"--slices={slices}", "--json", "--quiet"]) == 0
        peaks.append(json.loads(capfd.readouterr().out))
    assert peaks[0] != peaks[1]


@pytest.mark.parametrize("command", [["place", "--model={}"], ["compare", "--model={}"], ["extract"], ["memory"]])
def test_files_are_refused(split, command):
    argv = [word.format(split) for word in command] + ([str(split)] if len(command) == 1 else [])
    output = [f"--output={split.with_name('other.npz')}"] if command == ["extract"] else []
    error = refused([*argv, *output, "--slices=2"])
    assert isinstance(error, SplitError) and error.received == f"--slices for {str(split)!r}"


@pytest.mark.parametrize(
    ("flag", "fields"),
    [
        ("--slices=0", {"received": "--slices=0", "expected": "how many slices"}),
        ("--slices=3,0", {"received": "--slices=3,0", "expected": "how many slices"}),
        ("--slices=two", {"received": "--slices=two", "expected": "12,12,4,4"}),
        ("--slices=3,", {"received": "--slices=3,", "expected": "12,12,4,4"}),
        ("--batch_norm=none", {"received": "--batch_norm=none", "expected": "'per_slice' or 'synchronized'"}),
    ],
)
def test_what_is_no_split_is_refused_before_the_model_is_built(flag, fields):
    assert_refused(["place", "--model=rnnlm_2", flag], **fields)
    assert_refused(["memory", "rnnlm_2", flag], **fields)


def test_sizes_that_do_not_add_up_are_refused():
    keras.utils.clear_session()
    assert_refused(
        ["memory", "rnnlm_2", *SMALL, "--topology=2xP100", "--slices=3,2"],
        received="slices of 3 + 2 = 5 examples",
        expected="6 in all",
    )
