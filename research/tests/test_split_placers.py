"""The tables of split steps beside what users would pick instead."""

from research.split_placers import OTHERS, SPLIT, text

ROW = {"topology": "4xP100", "tight": False, "bound_s": 0.1, "chosen": [[[8] * 4, "by_use"]], "auto, whole": [0.2]}


def row(model, step_s, **others):
    return {**ROW, **dict.fromkeys(OTHERS, 0.4), "model": model, SPLIT: [step_s], "auto, whole": [0.2], **others}


def test_gains_are_over_the_best_of_all_others_where_that_is_far_from_the_bound():
    near = row("near", 0.1, mirrored=0.11)
    first, *_ = [line for line in text([row("far", 0.1), near]).splitlines() if line.startswith("| 4xP100")]
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[1:3] == ["2", "1"] and cells[-2:] == ["0.500", "none"]


def test_cases_behind_the_best_are_named_with_their_ratio():
    lines = text([row("slow", 0.3), row("same", 0.2)]).splitlines()
    assert next(line for line in lines if line.startswith("| 4xP100")).strip("| ").endswith("slow 1.50")


def test_what_does_not_fit_is_left_out():
    lines = text([row("small", 0.1, mirrored=None), row("large", None)]).splitlines()
    (large,) = (line for line in lines if line.startswith("| large"))
    assert [cell.strip() for cell in large.strip("|").split("|")][-3] == "-"
