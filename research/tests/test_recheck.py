"""Placements of a claim under Grappler's cost model."""

import json

import numpy as np
import pytest

from research.claims.recheck import Judged, cases_table, judge, opinions_table, read_judged, repeated_text
from research.suites.suites import Suite
from research.tests.test_claims import cells, results
from tfplace.comparison.cells import Case
from tfplace.errors import InputError

FOUND = [
    *(
        Judged("one", *row)
        for row in (("single", 1.0, 2.0), ("heft", 0.5, 1.5), ("metis", 0.8, 1.6), ("post", 0.4, 1.8))
    ),
    *(Judged("other", *row) for row in (("single", 1.0, 2.0), ("heft", 0.5, None), ("post", None, None))),
    *(Judged("third", *row) for row in (("single", 1.0, 2.0), ("heft", 0.6, 1.0), ("post", 0.6, 1.0))),
]


def test_the_table_of_cases_has_both_opinions_and_how_they_agree():
    table = cases_table(FOUND)
    assert cells(table, "over single")[1:] == ["single", "heft", "metis", "post", "rank correlation"]
    assert cells(table, "one")[1:] == ["1.00, 1.00", "0.50, 0.75", "0.80, 0.80", "0.40, 0.90", "0.40"]
    assert cells(table, "other")[1:] == ["1.00, 1.00", "0.50, failed", "-", "does not fit", "-"]
    assert [Judged(**one.to_dict()) for one in FOUND] == FOUND


def test_opinions_are_counted_where_grappler_judged_both():
    table = opinions_table(FOUND, ("post", "absent"))
    head = ["cases", "medians over single", "post is shorter in; both say the same in"]
    assert cells(table, "by the simulator, by Grappler")[1:] == head
    assert cells(table, "single")[1:] == ["3", "1.00, 1.00", "2, 2; 2"]
    assert cells(table, "heft")[1:] == ["2", "0.55, 0.62", "1, 0; 1"]  # equal is not shorter
    assert cells(table, "metis")[1:] == ["1", "0.80, 0.80", "1, 0; 0"]
    assert cells(table, "post")[3:] == ["-"]


def test_what_was_found_again_is_told():
    rows = [results(single=1.0, heft=0.5, annealing=0.7)]
    found = [
        Judged("nmt_2 on 2xP100", *row) for row in (("single", 1.0, 2.0), ("heft", 0.5, None), ("metis", 0.8, 1.6))
    ]
    assert repeated_text(found, rows).startswith("2 of 2 steps are, to the last bit")
    again = [*found, Judged("nmt_2 on 2xP100", "annealing", 0.714, 1.0)]
    assert repeated_text(again, rows).startswith("2 of 3 ")
    assert repeated_text(found, []).startswith("No results")
    assert repeated_text(again, rows).endswith("; annealing in nmt_2 on 2xP100 differs by +2 %")
    unfit = [Judged("nmt_2 on 2xP100", "heft", None, None)]
    assert repeated_text(unfit, rows).endswith("; heft in nmt_2 on 2xP100 takes None s instead of 0.5 s")


def test_a_file_of_what_was_judged_is_read(tmp_path):
    path = tmp_path / "x.json"
    assert read_judged(path) == {}
    path.write_text(json.dumps({"post": [Judged("one", "heft", 1.0, None).to_dict()]}))
    assert read_judged(path) == {"post": [Judged("one", "heft", 1.0, None)]}
    for wrong in ("nonsense", "[1]", '{"post": [{"case": "one"}]}', '{"post": 1}'):
        path.write_text(wrong)
        with pytest.raises(InputError, match="a file of research/recheck_claims"):
            read_judged(path)


def test_grappler_judges_what_was_placed():
    import keras

    from tfplace.extraction.sources import extract_source

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    batch = (np.zeros((32, 8), np.float32), np.zeros((32, 4), np.float32))
    graph = extract_source(model, batch, training=None, fetches=None, name="small")
    placers = ("single", "heft", "random_search", "annealing")
    suite = Suite(placers, "20 evaluations", 1, "none", "none", beside=("random_search_20", "random_search_1"))
    told, placers = [], suite.placers[:3]
    found = list(judge(graph, Case("small", "2xP100"), suite, placers, told.append))
    assert [one.placer for one in found] == list(placers) and len(told) == 3
    assert all(one.grappler_s > 0 and one.simulated_s > 0 for one in found)
    assert found == list(judge(graph, Case("small", "2xP100"), suite, placers, told.append))
    assert found[0].simulated_s == pytest.approx(min(one.simulated_s for one in found))
    beside = list(judge(graph, Case("small", "2xP100"), suite, suite.beside, told.append))
    assert [one.placer for one in beside] == list(suite.beside)
    assert beside[0].simulated_s == found[2].simulated_s <= beside[1].simulated_s
