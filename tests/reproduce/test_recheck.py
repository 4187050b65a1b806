"""Placements of a claim under Grappler's cost model."""

import json

import numpy as np
import pytest

from tests.reproduce.test_claims import cells
from tfplace.compare.cells import Case
from tfplace.compare.suites import Suite
from tfplace.errors import InputError
from tfplace.reproduce.recheck import Judged, judge, judged_table, read_judged


def test_the_table_has_both_opinions_and_how_they_agree():
    found = [
        *(Judged("one", *row) for row in (("single", 1.0, 2.0), ("heft", 0.5, 1.5), ("metis", 0.8, 1.6))),
        *(Judged("other", *row) for row in (("single", 1.0, 2.0), ("heft", 0.5, None))),
    ]
    table = judged_table(found)
    assert cells(table, "heft")[1:] == ["0.50, 0.75", "0.50, failed"]
    assert cells(table, "metis")[1:] == ["0.80, 0.80", "-"]
    assert cells(table, "rank correlation")[1:] == ["1.00", "-"]
    assert [Judged(**one.to_dict()) for one in found] == found


def test_a_file_of_what_was_judged_is_read(tmp_path):
    path = tmp_path / "x.json"
    assert read_judged(path) == {}
    path.write_text(json.dumps({"post": [Judged("one", "heft", 1.0, None).to_dict()]}))
    assert read_judged(path) == {"post": [Judged("one", "heft", 1.0, None)]}
    for wrong in ("nonsense", "[1]", '{"post": [{"case": "one"}]}', '{"post": 1}'):
        path.write_text(wrong)
        with pytest.raises(InputError, match="a file of scripts/recheck"):
            read_judged(path)


def test_grappler_judges_what_was_placed():
    import keras

    from tfplace.extract.sources import extract_source

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    batch = (np.zeros((32, 8), np.float32), np.zeros((32, 4), np.float32))
    graph = extract_source(model, batch, training=None, fetches=None, name="small")
    suite = Suite(("single", "heft", "random_search"), "20 evaluations", 1, "none", "none")
    told = []
    found = judge(graph, Case("small", "2xP100"), suite, told.append)
    assert [one.placer for one in found] == ["single", "heft", "random_search"] and len(told) == 3
    assert all(one.grappler_s > 0 and one.simulated_s > 0 for one in found)
    assert found == judge(graph, Case("small", "2xP100"), suite, told.append)
    assert found[0].simulated_s == pytest.approx(min(one.simulated_s for one in found))
