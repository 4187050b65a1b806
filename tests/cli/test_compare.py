import json
import sys

import pytest

from tests.cli.refusing import assert_refused
from tests.report.test_html import Outline
from tfplace.cli import BAD_INPUT, INFEASIBLE, INTERRUPTED, PLACED, main
from tfplace.testing import make_graph

OWN = """
class Mine:
    citation = "none"

    def place(self, context):
        return context.problem.allowed.argmax(axis=1)
"""


@pytest.fixture
def command(tmp_path):
    names = [f"{c}{i}" for c in "ab" for i in range(6)]
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(5)]
    make_graph(dict.fromkeys(names, 10**8), edges).save(tmp_path / "graph.npz")
    model = f"--model={tmp_path / 'graph.npz'}"
    return ["compare", model, "--topology=2xP100", "--budget=40 evaluations", "--seeds=2", "--quiet"]


def test_a_table_files_and_json(command, tmp_path, capfd):
    command += ["--placers=metis,annealing", f"--out={tmp_path / 'out'}"]
    assert main(command) == PLACED
    text = capfd.readouterr().out
    assert "12 ops in 12 units, 40 evaluations for each run" in text
    assert all(name in text for name in ("metis", "annealing", "single", "heft", "random_search", "local_search"))
    assert "\x1b" not in text
    assert main([*command, "--json"]) == PLACED  # goes on where it was: nothing is left to do
    facts = json.loads(capfd.readouterr().out)
    assert set(facts["files"]) == {"runs", "placement", "report"}
    assert len(facts["placers"]["annealing"]["step_s"]) == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert Outline(page).open == [] and "annealing" in page


def test_without_matplotlib_everything_else_is_written(command, tmp_path, capfd, monkeypatch):
    from tfplace.comparison.comparison import Comparison
    from tfplace.errors import MissingExtraError

    def fails(self, path):
        raise MissingExtraError("matplotlib", "plots")

    monkeypatch.setattr(Comparison, "save", fails)
    command.remove("--quiet")
    assert main([*command, "--placers=metis", f"--out={tmp_path / 'out'}"]) == PLACED
    said = capfd.readouterr()
    assert "report.html is not written" in said.err and "placement.json" in said.out


def test_a_placer_of_ones_own(command, tmp_path, capfd, monkeypatch):
    (tmp_path / "own_placer.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main([*command, "--placers=own_placer:Mine"]) == PLACED
    assert "own_placer:Mine" in capfd.readouterr().out
    place = ["place", *command[1:3], "--budget=5 evaluations", "--quiet"]
    assert main([*place, "--placer=own_placer:Mine"]) == PLACED
    assert "by own_placer:Mine" in capfd.readouterr().out
    for wrong, said in (("own_placr:Mine", "own_placr"), ("own_placer:Yours", "Yours")):
        assert main([*place, f"--placer={wrong}"]) == BAD_INPUT
        assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothere", "module 'bad', which fails when it is imported: ModuleNotFoundError: No module named 'noth"),
        ("class Mine(", "module 'bad', which fails when it is imported: SyntaxError"),
        (OWN.replace("return", "return [][3]  #"), "placer 'bad:Mine', which failed: IndexError: list index out of"),
        (OWN.replace("citation", "accepts_starts, __init__ = True, lambda self: 1 / 0; citation"), "ZeroDivisionError"),
    ],
)
def test_what_fails_in_a_placer_of_ones_own_is_told_as_such(source, said, command, *, tmp_path, capfd, monkeypatch):
    (tmp_path / "bad.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "bad", raising=False)
    init = ["--init=heft"] if "accepts_starts" in source else []
    assert main(["place", *command[1:3], "--budget=5 evaluations", "--quiet", "--placer=bad:Mine", *init]) == BAD_INPUT
    told = capfd.readouterr().err
    assert said in told and "Traceback" not in told
    if "failed" in said:
        assert f"See {tmp_path / 'bad.py'}:6." in told


@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [
        (KeyboardInterrupt, INTERRUPTED, "interrupted after the placers were run, before the page was written"),
        (OSError(28, "No space left on device"), BAD_INPUT, "report.html, which could not be written (No space left"),
    ],
)
def test_what_was_run_is_shown_though_the_page_is_not_written(
    stop, code, said, *, command, tmp_path, capfd, monkeypatch
):
    from tfplace.comparison.comparison import Comparison

    def fails(self, path):
        raise stop

    monkeypatch.setattr(Comparison, "save", fails)
    assert main([*command, "--placers=metis", f"--out={tmp_path / 'out'}"]) == code
    shown = capfd.readouterr()
    assert said in shown.err
    assert "12 ops in 12 units" in shown.out and "placement.json" in shown.out and "report.html" not in shown.out


def test_groups(command, capfd):
    assert main([*command, "--placers=metis", "--grouper=merge", "--groups=3"]) == PLACED
    assert "2 groups" in capfd.readouterr().out  # two chains


def test_what_can_never_fit_is_told_at_once(command, capfd):
    tiny = ["--max_memory=*=1KiB"]
    for words in (["place", *command[1:4]], [*command, "--placers=metis"]):
        assert main([*words, "--quiet", *tiny]) == INFEASIBLE
        said = capfd.readouterr()
        assert said.out == ""
        assert "No device has room for Op" in said.err
        assert "budget" not in said.err


def test_nothing_that_fits_is_told_as_place_tells_it(command, tmp_path, capfd):
    """Four variables, of which each device holds one, on three devices."""
    graph = make_graph(dict.fromkeys("abcd", ()), variables=dict.fromkeys("abcd", 60))
    graph.save(tmp_path / "graph.npz")
    tiny = ["--max_memory=*=100B"]
    assert main(["place", *command[1:4], "--quiet", *tiny]) == INFEASIBLE
    capfd.readouterr()
    assert main([*command, "--placers=metis", *tiny]) == INFEASIBLE
    said = capfd.readouterr()
    assert "does not fit" in said.out and "No placement of graph on 2xP100 that fits was found. The nearest" in said.err
    assert main([*command, "--placers=metis", *tiny, "--json"]) == INFEASIBLE
    assert json.loads(capfd.readouterr().out)["best"] is None


@pytest.mark.parametrize(
    ("flag", "fields"),
    [
        ("--placers=autoo", {"received": "autoo"}),
        ("--seeds=0", {"received": "--seeds=0"}),
        ("--seeds=1000000000000000000000000000000", {"expected": "at most"}),
        ("--placers=", {"received": "--placers=", "expected": "at least one placer"}),
        ("--placers=,", {"received": "--placers=", "expected": "at least one placer"}),
        ("--budget=soon", {"received": "soon"}),
        ("--groups=3", {"received": "--groups=3", "expected": "a grouper"}),
        ("--model=", {"received": "--model"}),
        ("--pin=a=GPU:7", {"received": "GPU:7"}),
    ],
)
def test_bad_input_is_refused_before_the_graph_is_read(command, flag, fields, monkeypatch):
    monkeypatch.setattr("tfplace.cli.problem.ProblemReader._read", lambda *_, **__: pytest.fail("too late"))
    assert_refused([*command, flag], **fields)
