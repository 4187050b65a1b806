import dataclasses

import numpy as np
import pytest

from tests.splitting import DIFFERENCES, split
from tfplace.core.constraints import match_ops
from tfplace.core.slices import Difference, Slices, checked_slices
from tfplace.errors import GraphError, SplitError


def slices(sizes, differences=()):
    return Slices(sizes, np.zeros(1, np.int32), ("a",), (), differences)


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ((8,) * 4, "4 slices of 8 examples: same numbers up to summation order"),
        ((1, 1), "2 slices of 1 example: same numbers up to summation order"),
        ((12,), "1 slice of 12 examples: same numbers up to summation order"),
        ((12, 12, 4), "3 slices of 12, 12 and 4 examples: same numbers up to summation order"),
        ((2,) * 5 + (1,) * 5, "10 slices of 1 to 2 examples: same numbers up to summation order"),
    ],
)
def test_one_line_says_the_sizes_and_what_changes(sizes, line):
    assert str(slices(sizes)) == line


def test_the_line_names_what_has_other_numbers():
    line = str(slices((2, 2), DIFFERENCES))
    assert line.startswith("2 slices of 2 examples: differs: BatchNorm statistics are per slice")
    assert "(norm)" in line and "each slice draws its own random numbers (drop/random)" in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": ()}, "one or more slices"),
        ({"sizes": (3, 0)}, "at least 1 example"),
        ({"slice_of": np.array([0, 1], np.int32)}, "2 ops that copy 1"),
        ({"slice_of": np.array([2], np.int32)}, "-1 to 1"),
        ({"slice_of": np.array([-2], np.int32)}, "-1 to 1"),
    ],
)
def test_nonsense_is_refused(change, message):
    with pytest.raises(GraphError, match=message):
        dataclasses.replace(slices((2, 2)), **change)


def test_differences_of_unknown_kinds_are_refused():
    with pytest.raises(GraphError, match="kind 'taste'; expected one of statistics, draws"):
        Difference("taste", ())


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, None),
        (1, None),
        (np.int64(1), None),
        (4, 4),
        ((12, 4), (12, 4)),
        ([np.int32(3)], (3,)),
        (np.array([2, 1]), (2, 1)),
    ],
)
def test_what_users_ask_for_is_in_numbers_of_python(given, found):
    assert checked_slices(given) == found
    assert checked_slices(checked_slices(given)) == found


ARRAYS = np.array(2), np.array([]), np.array([2.0, 2.0]), np.array([[2, 2]]), np.array([True])


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "4", "", (), (3, 0), (3, 1.0), [True, 2], *ARRAYS])
def test_what_is_no_number_of_slices_is_refused(wrong):
    with pytest.raises(SplitError) as refused:
        checked_slices(wrong)
    assert refused.value.received == f"slices={wrong!r}"


def test_graphs_that_differ_only_in_slices_are_other_content():
    graph = split()
    others = [
        dataclasses.replace(graph, slices=None),
        split(differences=()),
        split(sizes=(8, 8)),
        dataclasses.replace(graph, slices=dataclasses.replace(graph.slices, gathered=())),
        dataclasses.replace(graph, slices=dataclasses.replace(graph.slices, original=graph.op_names)),
        dataclasses.replace(graph, slices=dataclasses.replace(graph.slices, slice_of=0 * graph.slices.slice_of)),
    ]
    assert len({graph.content, *(other.content for other in others)}) == 7
    assert {graph.fingerprint} == {other.fingerprint for other in others}
    assert split().content == graph.content


def test_rules_mean_all_copies_by_the_name_of_the_unsplit_step_and_one_by_its_own():
    graph = split()
    named = {pattern: [graph.op_names[v] for v in match_ops(pattern, graph)] for pattern in ("net/out/*", "slice1/*")}
    assert named["net/out/*"] == ["net/out/v", "net/out/Read", "slice0/net/out/mul", "slice1/net/out/mul"]
    assert len(named["slice1/*"]) == 5 and all(name.startswith("slice1/") for name in named["slice1/*"])
