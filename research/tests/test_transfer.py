"""Policies under names of their own, with weights of one's own, and the table of what they carry over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research.suites import suites
from research.suites.running import Task, run_all, tasks
from research.tables.transfer_table import steps_table, transfer_text
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Case, Facts, Run, Trained, problem_of, run_cell
from tfplace.comparison.journal import Journal
from tfplace.errors import InputError
from tfplace.learned.networks.sweep import Sweep
from tfplace.learned.training.pretrained import Pretrained
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.testing.graphs import random_graph

CASE = Case("cells_3", "2xP100")
BUDGET = Budget(evaluations=60)


@pytest.fixture
def graph():
    return random_graph(np.random.default_rng(0), 30)


@pytest.fixture
def trained(tmp_path):
    network = Sweep(np.random.default_rng(0), hidden=4, rounds=1)
    settings = {"groups": 16, "hidden": 4, "rounds": 1}
    Pretrained("placeto", settings, [v.numpy() for v in network.variables], {}).save(tmp_path / "without_cells.npz")
    return Trained("placeto", str(tmp_path / "without_{family}.npz"), options={"moves": 0})


def test_the_family_of_a_graph_names_the_file(graph, trained):
    found = run_cell(problem_of(graph, CASE), CASE, "elsewhere", BUDGET, 0, trained=trained)
    assert (found.placer, found.trouble, found.evaluations) == ("elsewhere", "", 49)
    assert found.step_s is not None


def test_without_a_file_that_is_what_the_cell_says(graph, trained):
    other = Case("rows_3", "2xP100")
    found = run_cell(problem_of(graph, other), other, "elsewhere", BUDGET, 0, trained=trained)
    assert "No such file" in found.trouble and found.step_s is None


def test_other_weights_or_more_learning_are_other_results(trained, tmp_path):
    code = trained.code("cells_3")
    assert code == trained.code("cells_4") != replace(trained, fine_tune=1).code("cells_3")
    with pytest.raises(InputError, match="without_rows"):
        trained.code("rows_3")
    network = Sweep(np.random.default_rng(1), hidden=4, rounds=1)
    Pretrained("placeto", {}, [v.numpy() for v in network.variables], {}).save(tmp_path / "without_cells.npz")
    assert trained.code("cells_3") != code


def test_what_is_trained_anew_is_run_again_and_nothing_else(graph, trained, tmp_path):
    others = tmp_path / "without_rows.npz"
    others.write_bytes((tmp_path / "without_cells.npz").read_bytes())
    given = []
    for name in ("cells_3", "rows_3"):
        graph.save(tmp_path / f"{name}.npz")
        given.append((tmp_path / f"{name}.npz", Case(name, "2xP100")))

    def todo():
        journal = Journal(tmp_path / "found.jsonl", {"budget": str(BUDGET), "simulated": True})
        return tasks(given, [("single", 0), ("elsewhere", 0)], BUDGET, journal, trained={"elsewhere": trained}), journal

    assert run_all(*todo()) == []
    assert todo()[0] == []
    network = Sweep(np.random.default_rng(1), hidden=4, rounds=1)
    settings = {"groups": 16, "hidden": 4, "rounds": 1}
    Pretrained("placeto", settings, [v.numpy() for v in network.variables], {}).save(others)
    again, journal = todo()
    assert again == [Task(*given[1], BUDGET, "elsewhere", 0, trained)]
    assert run_all(again, journal) == []
    assert todo()[0] == []
    others.unlink()
    with pytest.raises(InputError, match="without_rows"):
        todo()


def test_weights_of_another_policy_are_no_placer(trained):
    with pytest.raises(InputError, match="gdp"):
        Trained("gdp", trained.weights).placer_for(CASE).place(None)


def test_cells_in_other_processes_know_what_stands_behind_a_name(graph, trained, tmp_path):
    graph.save(tmp_path / "cells_3.npz")
    journal = Journal(tmp_path / "found.jsonl", {"budget": str(BUDGET), "simulated": True})
    given = [(tmp_path / "cells_3.npz", CASE)]
    todo = tasks(given, [("single", 0), ("elsewhere", 0)], BUDGET, journal, trained={"elsewhere": trained})
    assert todo[1:] == [
        Task(given[0][0], CASE, BUDGET, "single"),
        Task(given[0][0], CASE, BUDGET, "elsewhere", 0, trained),
    ]
    assert run_all(todo, journal) == []
    assert not journal.runs[CASE, "elsewhere", 0].trouble


def test_every_name_of_the_suite_is_something():
    assert {*suites.TRANSFER.placers} <= {*PLACERS, *suites.TRANSFER.trained}


def run(placer, step_s, trail):
    return Run(CASE, placer, 0, step_s, 0, 1000, 1.0, 1.0, tuple((e, 0.1, s, "x") for e, s in trail))


def results(anew):
    runs = {
        "single": [run("single", 4.0, ())],
        "placeto_scratch": [run("placeto_scratch", 1.0, anew)],
        "placeto_elsewhere": [run("placeto_elsewhere", 2.0, [(1, 2.0)])],
        "placeto_tuned": [run("placeto_tuned", 1.5, [(1, 2.0), (20, 1.5)])],
    }
    return CaseResults(Facts(CASE, 10, 8, 2, 1.0, "f"), runs)


def test_how_many_times_the_evaluations_it_takes_anew():
    rows = [results([(10, 3.0), (260, 1.4)]), results([(10, 3.0), (40, 1.5)]), results([(10, 3.0)])]
    text = transfer_text(rows)
    assert "at least 10 times the evaluations in 2 of 3 cases, in 1 of which it never has it" in text
    assert "25.0 % faster than placeto_elsewhere" in text
    assert "placeto_tuned is faster than single in 3 of 3 cases, and no faster than one device in 0" in text
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in steps_table(rows).splitlines()]
    head, *found = lines[0], *lines[2:]
    assert head[1:3] == ["single", "placeto_scratch"]
    assert [line[-3:] for line in found] == [["20", "260", "13.0"], ["20", "40", "2.0"], ["20", "never", "-"]]
    tuned = head.index("placeto_tuned")
    assert all(line[tuned] == "0.38" for line in found)


def test_how_many_times_is_the_least_that_trails_tell():
    row = results([(119, 1.51), (400, 1.2)])
    assert [cell.strip() for cell in steps_table([row]).splitlines()[2].split("|")[-4:-1]] == ["20", "400", "6.0"]
    assert "in 0 of 1 cases" in transfer_text([row])


def test_what_was_not_run_is_said():
    row = results([(10, 3.0)])
    del row.runs["single"]
    assert "single not run" in steps_table([row]) and "nan" not in steps_table([row])
    assert "no constructive placer was run everywhere" in transfer_text([row])
    row.runs["placeto_scratch"] = [replace(row.runs["placeto_scratch"][0], trouble="no memory")]
    assert transfer_text([row]).startswith("no case yet")


def test_a_part_of_the_suite_has_tables_too():
    part = CaseResults(results([]).facts, {"single": [run("single", 4.0, ())], "heft": [run("heft", 3.0, ())]})
    assert transfer_text([part]).startswith("no case yet")
    assert steps_table([part]).splitlines()[2:] == []
    nothing = results([])
    nothing.runs["placeto_tuned"] = [run("placeto_tuned", None, ())]
    assert transfer_text([nothing]).startswith("no case yet")
