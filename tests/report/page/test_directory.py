"""A directory's report is made again from its files, and says so where it has none."""

import json

import pytest

import tfplace
from tests.cli.refusing import assert_refused
from tests.search.plans import layers, plan_of
from tfplace.cli import PLACED, main
from tfplace.report.page.page import plan_page
from tfplace.report.search_trail import SearchTrail, load_trail, save_trail
from tfplace.search.progress import Progress
from tfplace.testing import make_graph, make_topology


@pytest.fixture
def placed(tmp_path):
    """What `tfplace place` wrote of a graph in a file."""
    make_graph({"net/a": 4 << 20, "net/b": 4}, ["net/a -> net/b"]).save(tmp_path / "graph.npz")
    argv = ["place", f"--model={tmp_path / 'graph.npz'}", "--topology=2xP100", "--budget=20 evaluations", "--quiet"]
    assert main([*argv, f"--out={tmp_path / 'out'}"]) == PLACED
    return tmp_path / "out"


def test_a_placement_has_the_report_that_was_there(placed, capsys):
    report = placed / "report.html"
    before = report.read_text()
    assert 'id="timeline"' in before and 'id="search"' in before
    report.unlink()
    capsys.readouterr()
    assert main(["report", str(placed), "--quiet"]) == PLACED
    assert capsys.readouterr().out == f"{report}\n"
    assert report.read_text() == before


def test_a_plan_has_the_report_of_the_plan_that_was_saved(tmp_path):
    plan = plan_of(layers(make_topology(2), [3.0, 1.0], [4, 4]))
    plan.save(tmp_path)
    assert main(["report", str(tmp_path), "--quiet"]) == PLACED
    assert (tmp_path / "report.html").read_text() == plan_page(plan)


def test_without_the_problem_it_has_tables(placed):
    (placed / "problem.npz").unlink()
    assert main(["report", str(placed), "--quiet"]) == PLACED
    page = (placed / "report.html").read_text()
    assert 'id="plans"' in page and 'id="timeline"' not in page


def test_the_problem_of_another_placement_is_not_shown(placed):
    make_graph({"other": 4}).save(placed / "graph.npz")
    tfplace.formulate(tfplace.OpGraph.load(placed / "graph.npz"), "2xP100").save(placed / "problem.npz")
    assert main(["report", str(placed), "--quiet"]) == PLACED
    assert 'id="timeline"' not in (placed / "report.html").read_text()


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        (None, {"expected": "a directory with plan.json or placement.json", "hint": "tfplace plan --out"}),
        ("runs.jsonl", {"received": "`tfplace compare`"}),
        ("placement.json", {"received": "is not a placement"}),
        ("plan.json", {"received": "is not a plan"}),
    ],
)
def test_other_directories_are_refused(file, fields, tmp_path):
    if file is not None:
        (tmp_path / file).write_text("{}")
    assert_refused(["report", str(tmp_path), "--quiet"], **fields)
    assert not (tmp_path / "report.html").exists()


def test_one_directory_has_to_be_named(tmp_path):
    assert_refused(["report"], received="0 directories", expected="such as")
    assert_refused(["report", str(tmp_path / "none")], received="no such directory")


def test_it_is_opened_if_asked(placed, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or len(opened) == 1)
    for _ in range(2):
        assert main(["report", str(placed), "--open", "--quiet"]) == PLACED
    assert opened == [(placed / "report.html").as_uri()] * 2
    assert "no browser was found" in capsys.readouterr().err


def test_a_trail_has_what_got_better_and_the_end(tmp_path):
    told = []
    trail = SearchTrail(told.append)
    steps = [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.3), (5, 0.3), (6, 0.2), (7, 0.2), (9, 0.2)]
    for evaluations, best_s in ((0, None), *steps):
        trail(Progress(evaluations, 0.1 * evaluations, 0.0, best_s, True, "auto"))
    assert [point.evaluations for point in trail.points] == [1, 4, 6, 9] and len(told) == 9
    save_trail(tmp_path / "search.json", trail.points)
    assert load_trail(tmp_path / "search.json") == tuple(trail.points)
    assert load_trail(tmp_path / "none.json") == ()
    (tmp_path / "search.json").write_text(json.dumps([{"evaluations": 1}]))
    with pytest.raises(tfplace.TfplaceError, match="is not the log of a search"):
        load_trail(tmp_path / "search.json")
