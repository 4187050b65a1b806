"""What is told of layers: their devices, memory and seconds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests import splitting
from tests.report.test_html import Outline
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.group.problem import formulate
from tfplace.report.facts import placement_facts
from tfplace.report.html import placement_html
from tfplace.report.layer_facts import LayerShare, kept_bytes, layer_facts
from tfplace.report.page.layers_view import layers_picture
from tfplace.search.place import search_placement
from tfplace.testing import make_graph, make_problem, make_topology

SECONDS = {"net/a/mul": 3.0, "net/a/relu": 1.0, "net/b/in/mul": 2.0, "gradient_tape/net/a/mul/grad": 4.0}


def graph():
    """Layers a, and in within b; view is of what a makes."""
    return make_graph(
        {
            "net/a/w": 8,
            "net/b/in/w": 8,
            "x": 10,
            "net/a/mul": 100,
            "net/a/relu": 40,
            "net/a/view": 40,
            "net/b/in/mul": 30,
            "loss": 4,
            "gradient_tape/net/b/in/mul/grad": 30,
            "gradient_tape/net/a/mul/grad": 100,
            "sgd/a": (),
            "sgd/b": (),
        },
        [
            *("net/a/w -> net/a/mul", "x -> net/a/mul", "net/a/mul -> net/a/relu", "net/a/relu -> net/a/view"),
            *("net/b/in/w -> net/b/in/mul", "net/a/view -> net/b/in/mul", "net/b/in/mul -> loss"),
            *("loss -> gradient_tape/net/b/in/mul/grad", "net/a/view -> gradient_tape/net/b/in/mul/grad"),
            *("gradient_tape/net/b/in/mul/grad -> gradient_tape/net/a/mul/grad",),
            *("net/a/mul -> gradient_tape/net/a/mul/grad", "net/a/w -> sgd/a", "net/b/in/w -> sgd/b"),
            *("gradient_tape/net/a/mul/grad -> sgd/a", "gradient_tape/net/b/in/mul/grad -> sgd/b"),
        ],
        types={"net/a/view": "Reshape", "sgd/a": "ResourceApplyGradientDescent"},
        variables={"net/a/w": 500, "net/b/in/w": 700},
    )


@pytest.fixture(scope="module")
def placement():
    made, topology = graph(), make_topology(2)
    seconds = np.array([[SECONDS.get(name, 0.0)] * 2 for name in made.op_names])
    rules = Constraints(pin={"layer:a": "GPU:0", "layer:b": "GPU:1", "loss": "GPU:0", "x": "GPU:0"})
    problem = formulate(made, topology, CostTable(seconds, ("given",) * made.num_ops), rules)
    return search_placement(problem, placer="single", budget=5, baselines=())


def test_seconds_variables_and_what_is_kept_for_gradients(placement):
    """What a layer makes is kept once, though a view of it is read."""
    found = {row.name: row.devices for row in layer_facts(placement)}
    assert found == {
        "a": {"GPU:0": LayerShare(6, 8.0, 500, 140)},
        "b": {"GPU:1": LayerShare(4, 2.0, 700, 0)},
        "b/in": {"GPU:1": LayerShare(4, 2.0, 700, 0)},
    }


def test_kept_bytes_of_ops():
    made = graph()
    kept = kept_bytes(made)
    assert {made.op_names[v]: int(kept[v]) for v in np.flatnonzero(kept)} == {
        "net/a/mul": 100,
        "net/a/relu": 40,
        "loss": 4,
    }


def test_a_layer_on_two_devices_says_how_much_is_where(placement):
    split = placement.op_device.copy()
    split[placement.problem.graph.index["gradient_tape/net/a/mul/grad"]] = 1
    moved = search_placement(placement.problem, placer="single", budget=5, baselines=())
    object.__setattr__(moved, "op_device", split)
    row = layer_facts(moved)[0]
    assert row.cells() == ("a", "6", "GPU:0 50 %, GPU:1 50 %", "8.00 s", "500 B", "140 B")


def test_text_has_the_table_only_if_asked(placement):
    assert "kept for gradients" not in placement.summary()
    text = placement.summary(layers=True)
    assert re.search(r"a\s+6\s+GPU:0\s+8.00 s\s+500 B\s+140 B", text)
    assert re.search(r"in\s+4\s+GPU:1\s+2.00 s\s+700 B\s+0 B", text)


def test_html_has_the_table_closed(placement):
    outline = Outline(placement_html(placement))
    assert outline.open == []
    assert ("details", {}) in outline.tags
    assert "Layers (3)" in outline.words


def test_json_has_every_layer_by_device(placement):
    rows = placement_facts(placement)["simulated"]["layers"]
    assert [row["name"] for row in rows] == ["a", "b", "b/in"]
    share = {"ops": 6, "compute_s": 8.0, "variable_bytes": 500, "kept_bytes": 140}
    assert rows[0]["devices"] == {"GPU:0": share}


def test_the_picture_has_a_column_for_each_innermost_layer_and_one_for_the_rest(placement):
    titles = re.findall(r"<title>(.*?)</title>", layers_picture(placement))
    assert titles == ["a: 8.00 s, GPU:0", "b/in: 2.00 s, GPU:1", "(no layer): 0 s, no time"]


def test_rows_of_a_split_step_are_the_layers_of_the_unsplit_one():
    """With all copies: forward results that gradients of any slice read are kept."""
    rows, before = ({row.name: row for row in layer_facts(_placed(g))} for g in (splitting.split(), splitting.whole()))
    assert [*rows] == [*before] == ["dense", "out"]
    for name, row in rows.items():
        assert row.total("variable_bytes") == before[name].total("variable_bytes")
        assert row.total("kept_bytes") == before[name].total("kept_bytes")
    assert rows["dense"].total("ops") == before["dense"].total("ops") + 3  # two copies, and a sum


def _placed(graph):
    return search_placement(make_problem(graph, make_topology(2)), placer="single", budget=2, progress=None)
