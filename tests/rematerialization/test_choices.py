"""What is chosen to be computed again: by max_memory, by names, and by the square root of the layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tfplace
from tests.transforms.test_recompute import G, chain, named
from tfplace.core.compilation import XLA
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.errors import InfeasibleError, InputError
from tfplace.rematerialization.dropped import Dropped
from tfplace.rematerialization.greedy import greedy
from tfplace.rematerialization.rematerialize import memory_limits, one_device, with_less_memory
from tfplace.rematerialization.sqrt import sqrt_segments
from tfplace.rematerialization.stash import Stash
from tfplace.rematerialization.trial import Trial
from tfplace.testing import make_graph, make_problem, make_topology

SIZE = 2**20
SLOW = ("a3", "a4")


def layers(count: int = 12) -> OpGraph:
    """Results of products, which take over no other memory."""
    return chain(count, types={f"a{i}": "MatMul" for i in range(count)}, size=SIZE)


def problem(graph: OpGraph, devices: int = 1) -> Problem:
    """In which all ops take a second, but for slow ones."""
    return make_problem(
        graph, make_topology(devices), seconds=dict.fromkeys(graph.op_names, 1.0) | dict.fromkeys(SLOW, 100.0)
    )


def again(graph: OpGraph) -> set[str]:
    """Names of ops that are computed again."""
    if graph.recomputes is None:
        return set()
    return {graph.op_names[u] for u in graph.recomputes[graph.recomputes >= 0]}


def test_the_step_fits_and_slow_ops_are_not_computed_again():
    trials = one_device(problem(layers()))
    whole, limit = trials(()), memory_limits(trials, 0.75)
    trial = with_less_memory(trials, None, 0.75)
    assert whole.cost.peak_bytes[0] > limit[0] >= trial.cost.peak_bytes[0]
    assert again(trial.graph)
    assert not again(trial.graph) & set(SLOW)
    assert trial.cost.step_s - whole.cost.step_s == pytest.approx(len(again(trial.graph)))


def test_a_choice_that_may_not_go_on_is_the_best_of_what_was_tried():
    trials, asked = one_device(problem(layers())), []
    limit = memory_limits(trials, 0.5)

    def may_go_on(times: int) -> Trial:
        asked.clear()
        return greedy(trials, limit, lambda: asked.append(0) or len(asked) < times)

    once, often = may_go_on(1), may_go_on(1000)
    assert len(again(once.graph)) > 0
    assert once.cost.peak_bytes[0] < trials(()).cost.peak_bytes[0]
    assert 1 < len(asked) < 1000
    assert often.cost.key == greedy(trials, limit).cost.key
    assert often.cost.peak_bytes[0] < once.cost.peak_bytes[0]


def test_with_enough_memory_nothing_is_computed_again():
    graph = layers()
    assert tfplace.rematerialize(graph, max_memory="1GiB", topology="2xP100") is graph


def test_what_cannot_fit_tells_what_the_best_needs():
    trials = one_device(problem(layers()))
    with pytest.raises(InfeasibleError, match="to recompute") as caught:
        with_less_memory(trials, None, 3 * SIZE)
    (short,) = caught.value.shortages
    assert short.limit_bytes == 3 * SIZE < short.need_bytes < trials(()).cost.peak_bytes[0]


def test_segments_of_the_square_root_of_the_layers_save_most_for_one_more_forward_pass():
    graph = layers(16)
    segments = sqrt_segments(graph)
    assert [[graph.op_names[v] for v in ops] for ops in segments] == [
        ["a0", "a1", "a2"],
        ["a4", "a5", "a6"],
        ["a8", "a9", "a10", "a11"],
    ]
    trials = one_device(problem(graph))
    whole, sqrt = trials(()), trials(segments)
    assert sqrt.cost.peak_bytes[0] < 0.6 * whole.cost.peak_bytes[0]


def test_a_named_segment_keeps_what_the_rest_of_the_forward_pass_reads():
    graph = layers(6)
    assert again(tfplace.rematerialize(graph, segments=["a[123]"], topology="2xP100")) == {"a1", "a2"}
    both = tfplace.rematerialize(graph, segments=[["a0", "a1"], ["a3", "a4"]], topology="2xP100")
    assert again(both) == {"a0", "a3"}


def test_copies_of_a_placed_step_are_where_their_originals_are():
    graph = layers()
    placement = tfplace.place(problem(graph, 2), placer="round_robin", progress=False)
    less = tfplace.rematerialize(placement, segments=["a[0-5]"])
    assert less.problem is not None
    made = less.problem.graph
    assert again(made) == {f"a{i}" for i in range(5)}
    less.check_graph(made)
    for v, u in enumerate(made.recomputes.tolist()):
        if u >= 0:
            assert less.devices[made.op_names[v]] == placement.devices[made.op_names[u]]
    assert tfplace.simulate(less.problem, less).step_s == less.cost.step_s > placement.cost.step_s


def test_a_compiled_placement_costs_what_its_clusters_take():
    plain = problem(layers(), 2)
    compiled = replace(plain, compile=XLA, other_costs=plain.costs)
    placement = tfplace.place(compiled, placer="round_robin", compile=XLA, progress=False)
    less = tfplace.rematerialize(placement, segments=["a[0-5]"])
    assert less.problem.graph.recomputes is not None
    assert tfplace.simulate(less.problem, less).step_s == less.cost.step_s
    assert tfplace.rematerialize(placement, max_memory={}) is placement


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "neither segments nor max_memory"),
        ({"segments": "sqrt", "max_memory": 0.5}, "one of the two"),
        ({"segments": "layers"}, "a list of patterns"),
        ({"segments": 5}, "a list of patterns"),
        ({"segments": ["x", ["a0", None]]}, "a list of patterns"),
        ({"segments": ["x"]}, "nothing can be recomputed"),
        ({"segments": ["a[12]", "a[123]"]}, "in two segments"),
        ({"max_memory": 1.5}, "between 0 and 1"),
    ],
)
def test_wrong_options_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        tfplace.rematerialize(layers(), topology="2xP100", **options)


def test_a_step_is_rematerialized_once():
    less = tfplace.rematerialize(layers(), segments="sqrt", topology="2xP100")
    with pytest.raises(InputError, match="recomputes ops already"):
        tfplace.rematerialize(less, segments="sqrt", topology="2xP100")


def test_a_view_is_dropped_with_what_it_is_a_view_of():
    graph = make_graph(
        {"x": SIZE, "a": SIZE, "view": SIZE, "b": SIZE, G + "b": SIZE, G + "a": SIZE},
        ["x -> a", "a -> view", "view -> b", f"b -> {G}b", f"{G}b -> {G}a", f"view -> {G}a"],
        types={"x": "Placeholder", "a": "MatMul", "view": "Reshape", "b": "MatMul"},
    )
    stash = Stash(graph)
    a, view = named(graph, "a", "view")
    assert stash.kept_bytes[a] == SIZE
    assert stash.kept_bytes[view] == 0
    dropped = Dropped(stash, np.ones(graph.num_ops))
    assert dropped.more_seconds(a) == 2.0
    assert dropped.drop(a, SIZE)
    assert dropped.ops == {a, view}


def test_a_part_makes_no_more_again_at_once_than_it_may():
    graph = layers(6)
    dropped = Dropped(Stash(graph), np.ones(graph.num_ops))
    a0, a1, a2, a3 = named(graph, "a0", "a1", "a2", "a3")
    assert dropped.drop(a0, 2 * SIZE)
    assert dropped.drop(a2, 2 * SIZE)
    assert not dropped.drop(a1, 2 * SIZE), "which would join the two"
    assert dropped.drop(a3, 2 * SIZE)
    assert dropped.ops == {a0, a2, a3}
