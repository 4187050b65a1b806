"""Results of several files are shown together where they are of one budget and of the same graphs."""

from pathlib import Path

import pytest

from research.suites.merge_results import read_merged
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.comparison.journal import Journal
from tfplace.errors import InputError, UnknownNameError

ROOT = Path(__file__).resolve().parents[2]
CASE, OTHER = Case("g", "2xP100"), Case("other", "2xP100")
HEADER = {"budget": "2 s", "simulated": True}


def results(path, *cells, header=HEADER, fingerprints=("f", "f"), codes=None):
    """A file with two cases, and runs of the first: (placer, seed, step seconds)."""
    journal = Journal(path, header)
    for case, fingerprint in zip((CASE, OTHER), fingerprints, strict=True):
        journal.add(Facts(case, 8, 8, 3, 1.0, fingerprint))
    for placer, seed, step_s in cells:
        journal.add(Run(CASE, placer, seed, step_s, 0, 1, 0.1, 0.1, code=(codes or {}).get(placer, "")))
    return path


def test_seeds_of_several_files_add_up(tmp_path):
    first = results(tmp_path / "a.jsonl", ("annealing", 0, 4.0), ("annealing", 1, 3.0), ("heft", 0, 9.0))
    second = results(tmp_path / "b.jsonl", ("annealing", 11, 1.0), ("annealing", 10, 2.0), ("heft", 0, 8.0))
    found = read_merged([first, second])
    assert found.budget == "2 s"
    (row,) = found.rows
    assert [(run.seed, run.step_s) for run in row.runs["annealing"]] == [(0, 4.0), (1, 3.0), (10, 2.0), (11, 1.0)]
    assert [run.step_s for run in row.runs["heft"]] == [8.0]  # of one seed the last file's


def test_only_what_is_asked_for(tmp_path):
    path = results(tmp_path / "a.jsonl", ("annealing", 0, 4.0), ("metis", 0, 9.0))
    assert [*read_merged([path], placers=["metis"]).rows[0].runs] == ["metis"]
    assert read_merged([path], cases="other").rows == ()
    with pytest.raises(UnknownNameError, match=r"'anealing'; expected one of annealing, metis\. Did you mean 'anneal"):
        read_merged([path], placers=["metis", "anealing"])


def test_results_of_other_graphs_and_budgets_are_not_mixed(tmp_path):
    first = results(tmp_path / "a.jsonl", ("heft", 0, 4.0))
    other = results(tmp_path / "b.jsonl", ("heft", 0, 4.0), fingerprints=("f", "else"))
    with pytest.raises(InputError, match=r"other on 2xP100 with 8 ops in .*a\.jsonl.* in .*b\.jsonl.*page of each"):
        read_merged([first, other])
    assert read_merged([first, other], cases="g on").rows
    for what, value in (("budget", "60 s"), ("objective", "throughput"), ("problem", "p")):
        path = results(tmp_path / f"{what}.jsonl", header={**HEADER, what: value})
        with pytest.raises(InputError, match=rf"a\.jsonl with results of {what} .*{what}\.jsonl.*page of each"):
            read_merged([first, path])
    with pytest.raises(InputError, match=r"gdp\.jsonl with results of budget '500 evaluations', .*'600 evaluations'"):
        read_merged([ROOT / "research" / "data" / f"{name}.jsonl" for name in ("gdp", "hold_out")], cases="amoebanet")


def test_other_models_and_boxes_are_shown_together(tmp_path):
    paths = []
    for n, case in enumerate((CASE, OTHER)):
        journal = Journal(tmp_path / f"{n}.jsonl", {**HEADER, "problem": str(n)})
        journal.add(Facts(case, 8, 8, 3, 1.0, str(n)))
        journal.add(Run(case, "heft", 0, 4.0, 0, 1, 0.1, 0.1))
        paths.append(journal.path)
    assert [row.facts.case for row in read_merged(paths).rows] == [CASE, OTHER]


def test_weights_are_told_apart_by_the_name_of_their_policy(tmp_path):
    files = [
        results(tmp_path / f"{n}.jsonl", *((name, 0, 4.0) for name in codes), codes=codes)
        for n, codes in enumerate(({"mine": "1", "both": "3"}, {"yours": "2", "both": "3", "heft": ""}, {"mine": "2"}))
    ]
    assert read_merged(files[:2]).rows
    with pytest.raises(InputError, match="results of mine for g '1'"):
        read_merged([files[0], files[2]])
