"""`tfplace plan`: what it prints and writes, and how it ends."""

import json

import keras

from tests.cli.test_place import SMALL
from tfplace import Plan
from tfplace.cli import BAD_INPUT, INFEASIBLE, PLACED, main
from tfplace.search import largest_batch

PLAN = ["plan", *SMALL[1:], "--topology=2xP100", "--budget=20 evaluations"]


def test_the_verdict_comes_first_and_the_plan_is_kept(tmp_path, capfd):
    assert main([*PLAN, "--verbose", f"--out={tmp_path / 'out'}"]) == PLACED
    title, verdict, *rest = capfd.readouterr().out.splitlines()
    assert title.startswith("rnnlm_2 on 2xP100") and verdict.startswith(("take ", "stay on "))
    loaded = Plan.load(tmp_path / "out")
    assert loaded.chosen.name.split(" (")[0] in verdict or verdict.startswith("stay on ")
    assert all(any(line.strip().startswith(row.name) for line in rest) for row in loaded.rows)


def test_json_has_every_row(capfd):
    assert main([*PLAN, "--json", "--compile=none"]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    assert {row["compile"] for row in facts["rows"]} == {"none"}
    chosen = facts["rows"][facts["chosen"]]
    assert chosen["bottleneck"].startswith(("computing", "sending")) and chosen["found_s"] > 0
    assert chosen["error"] is None  # of data sheets nobody knows
    assert chosen["fits"] and chosen["step_s"] <= 1.01 * min(row["step_s"] for row in facts["rows"])


def test_a_plan_is_set_against_an_earlier_one(tmp_path, capfd):
    keras.utils.clear_session()  # or layers have other names the second time
    assert main([*PLAN, "--compile=none", f"--out={tmp_path}"]) == PLACED
    keras.utils.clear_session()
    assert main([*PLAN, "--compile=none", f"--against={tmp_path}"]) == PLACED
    assert "against the earlier plan:\nthe same rows" in capfd.readouterr().out
    other = [*[flag.replace("--batch=2", "--batch=4") for flag in PLAN], f"--against={tmp_path}"]
    assert main(other) == BAD_INPUT and "Another batch" in capfd.readouterr().err


def test_a_plan_is_explained(capfd):
    assert main([*PLAN, "--compile=none", "--explain"]) == PLACED
    told = capfd.readouterr().out
    assert "on the critical path" in told and "a batch twice as large" in told and "devices and slices" in told
    assert main([*PLAN, "--compile=none", "--explain", "--json"]) == PLACED
    explained = json.loads(capfd.readouterr().out)["explanation"]
    assert len(explained["changes"]) == 5 and not explained["left_out"] and explained["layers"]


def test_what_fits_nowhere_is_told_with_the_rows(capfd):
    assert main([*PLAN, "--max_memory=*=4KiB"]) == INFEASIBLE
    told = capfd.readouterr()
    assert max(map(len, told.out.splitlines())) <= 80 and len(told.out.splitlines()) <= 40
    assert "too large" in told.out and "nothing fits" in told.err


def test_a_file_is_planned_whole(tmp_path, capfd):
    graph = tmp_path / "graph.npz"
    assert (
        main(["extract", "rnnlm_2", "--batch=2", "--param=units=8", "--param=vocabulary=50", f"--output={graph}"]) == 0
    )
    flags = [f"--model={graph}", "--topology=2xP100", "--budget=5 evaluations", "--quiet", "--json"]
    capfd.readouterr()
    assert main(["plan", *flags]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    assert {row["way"] for row in facts["rows"]} == {"one device", "placed"}
    assert any("slices" in note for note in facts["notes"])


def test_the_best_ways_are_run_where_that_is_asked(capfd):
    assert main(["plan", *SMALL[1:], "--budget=5 evaluations", "--json", "--run=2"]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    took = {number: row["measured_s"] for number, row in enumerate(facts["rows"]) if row["measured_s"] is not None}
    assert len(took) >= min(3, len(facts["rows"])) and took[facts["chosen"]] == min(took.values())


def test_the_largest_batch_is_found(capfd, monkeypatch):
    monkeypatch.setattr(largest_batch, "_DOUBLINGS", 1)
    assert main([*PLAN, "--largest_batch", "--compile=none", "--json"]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    assert [one["examples"] for one in facts["tried"]] == [2, 4] and facts["largest_batch"] == 4
    assert facts["plan"]["chosen"] is not None and facts["notes"] == ["larger batches were not tried"]


def test_the_largest_batch_goes_with_no_other_question(capfd):
    assert main([*PLAN, "--largest_batch", "--explain"]) == BAD_INPUT
    assert "--explain" in capfd.readouterr().err
