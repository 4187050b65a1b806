"""What is inside functions that ops keep is counted, named, and refused where it is most of a step."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from tfplace.core.graph import Body, Variable
from tfplace.cost.analytic import analytic_costs
from tfplace.cost.hidden import hidden_notes, hidden_part, refuse_hidden
from tfplace.cost.signature import signature
from tfplace.errors import InputError
from tfplace.testing import make_graph, make_topology

MIB = 2**20


def inner(ops):
    """A chain of that many element-wise ops on 1 MiB."""
    names = ["x", *(f"f{i}" for i in range(ops))]
    return make_graph(
        dict.fromkeys(names, MIB),
        [f"{a} -> {b}" for a, b in itertools.pairwise(names)],
        types={"x": "Placeholder", **dict.fromkeys(names[1:], "Tanh")},
    )


def step(*bodies, variables=()):
    """x -> a -> keeps -> b, of which `keeps` keeps the functions; two handles, one read by `a`, one by `keeps`."""
    graph = make_graph(
        {"v": 8, "w": 8, "x": MIB, "a": MIB, "keeps": MIB, "b": MIB},
        ["x -> a", "v -> a", "a -> keeps", "w -> keeps", "keeps -> b"],
        types={
            "v": "VarHandleOp",
            "w": "VarHandleOp",
            "x": "Placeholder",
            "a": "Tanh",
            "keeps": "MapDefun",
            "b": "Tanh",
        },
    )
    held = tuple(Variable(name, graph.index[name], size) for name, size in variables)
    op = graph.index["keeps"]
    return dataclasses.replace(graph, bodies=tuple(Body(op, runs, g) for runs, g in bodies), variables=held)


def costs(graph):
    return analytic_costs(graph, make_topology(2, speed=[1.0, 0.5]))


def seconds(graph, op):
    return costs(graph).compute_s[graph.index[op]]


def test_an_op_takes_its_functions_as_often_as_they_run():
    once, twice = (seconds(step((runs, inner(3))), "keeps") for runs in (1.0, 2.0))
    assert twice - once == pytest.approx(costs(inner(3)).compute_s.sum(axis=0))
    assert seconds(step((7.0, inner(3)), (2.0, inner(3))), "keeps") - once == pytest.approx(8 * (twice - once))
    assert costs(step((1.0, inner(3)))).provenance[4] == "analytic:function"


def test_an_unknown_function_counts_the_bytes_that_go_in_and_out():
    assert np.all(seconds(step((1.0, None)), "keeps") == seconds(step(), "keeps"))


def test_shares_are_of_what_computes():
    graph = step((1.0, inner(2)))
    on_the_fastest = costs(graph).compute_s.min(axis=1)
    part = hidden_part(graph, costs(graph))
    assert part.seconds == pytest.approx(on_the_fastest[graph.index["keeps"]] / on_the_fastest[[3, 4, 5]].sum())
    assert part.ops == (graph.index["keeps"],)


@pytest.mark.parametrize(("sizes", "refused"), [((10, 9), False), ((9, 10), True)])
def test_variables_count_that_nothing_else_touches(sizes, refused):
    graph = step((1.0, None), variables=zip("vw", sizes, strict=True))
    assert hidden_part(graph, costs(graph)).variable_bytes == sizes[1] / 19
    if not refused:
        refuse_hidden(graph, costs(graph))
        return
    with pytest.raises(InputError) as error:
        refuse_hidden(graph, costs(graph))
    assert "keeps" in error.value.received and error.value.hint


def test_what_takes_most_of_the_seconds_is_refused():
    with pytest.raises(InputError):
        refuse_hidden(step((9.0, inner(3))), costs(step((9.0, inner(3)))))


def test_notes_name_what_is_hidden_and_are_silent_otherwise():
    assert hidden_notes(step(), costs(step())) == ()
    (known,) = hidden_notes(step((1.0, inner(1))), costs(step((1.0, inner(1)))))
    (python,) = hidden_notes(step((1.0, None)), costs(step((1.0, None))))
    assert "'keeps'" in known and "'keeps'" in python
    assert "Python" in python and "Python" not in known


def test_ops_with_different_functions_have_different_signatures():
    signatures = {signature(step((runs, inner(n))), 4) for runs, n in [(1.0, 1), (1.0, 2), (3.0, 1)]}
    assert len(signatures | {signature(step((1.0, inner(1))), 4)}) == 3
