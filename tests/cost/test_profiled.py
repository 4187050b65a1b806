"""Costs from measurements: what is measured, what is scaled, and what says so."""

import dataclasses

import pytest

from tests.cost.test_profile import KEY, step
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.cost.profile import DeviceProfile, OpTime, Profile
from tfplace.cost.profiled import profiled_costs, profiled_share, step_ratio
from tfplace.cost.signature import signatures
from tfplace.errors import InputError
from tfplace.testing import make_graph, make_topology

MODEL = KEY[0]


@pytest.fixture
def graph():
    """Two elementwise ops of one signature, one of another, a product, and a constant that may be copied."""
    return make_graph(
        {"k": 8, "x": 4096, "p": 4096, "q": 4096, "big": 400_000, "m": 4096},
        ["x -> p", "p -> q", "k -> q", "q -> big", "q -> m"],
        types={"k": "Const", "x": "Placeholder", "p": "Exp", "q": "Exp", "big": "Exp", "m": "MatMul"},
        replicable=["k"],
        trips={"q": 5.0},
    )


def topology(*models):
    plain = make_topology(len(models), types=["CPU"] * len(models))
    devices = tuple(dataclasses.replace(d, model=m) for d, m in zip(plain.devices, models, strict=True))
    return Topology("t", devices, plain.links)


def measured(graph, seconds, steps=()):
    """Times for the ops named in `seconds`."""
    texts = signatures(graph)
    ops = {texts[graph.index[name]]: OpTime(s, 0.0, 2 if name == "p" else 1, 10) for name, s in seconds.items()}
    return DeviceProfile(*KEY, ops, tuple(steps))


def row(costs, graph, name):
    return costs.compute_s[graph.index[name]], costs.provenance[graph.index[name]]


def test_measured_numbers_with_trips_and_overhead(graph):
    profile = Profile((measured(graph, {"p": 3e-6, "x": 1e-6}, [step("another graph")]),))
    costs = profiled_costs(graph, topology(MODEL), profile)
    overhead = 2e-6
    assert row(costs, graph, "p")[0][0] == pytest.approx(3e-6 + overhead)
    assert row(costs, graph, "x") == (pytest.approx([1e-6 + overhead]), "profiled")
    assert row(costs, graph, "p")[1] == "profiled:pooled over 2"
    assert row(costs, graph, "k")[0][0] == 0.0


def test_ops_of_one_signature_share_their_time_each_with_its_trips():
    graph = make_graph(
        {"x": 8, "p": 8, "q": 8},
        ["x -> p", "x -> q"],
        types={"x": "Placeholder", "p": "Exp", "q": "Exp"},
        trips={"q": 5.0},
    )
    costs = profiled_costs(graph, topology(MODEL), Profile((measured(graph, {"p": 3e-6}),)))
    assert costs.compute_s[graph.index["q"], 0] == pytest.approx(5 * costs.compute_s[graph.index["p"], 0])
    assert costs.provenance[graph.index["q"]] == "profiled:pooled over 2"


def test_the_rest_is_analytic_times_the_ratio_of_its_class(graph):
    plain = analytic_costs(graph, topology(MODEL)).compute_s[:, 0]
    v = graph.index["p"]
    costs = profiled_costs(graph, topology(MODEL), Profile((measured(graph, {"p": 3 * plain[v]}),)))
    seconds, words = row(costs, graph, "big")
    assert seconds[0] == pytest.approx(3 * plain[graph.index["big"]])
    assert words == "analytic:elementwise x3"
    seconds, words = row(costs, graph, "m")
    assert seconds[0] == plain[graph.index["m"]]
    assert words == "analytic:matmul"


def test_each_device_goes_by_its_model(graph):
    where = topology(MODEL, "unknown", MODEL)
    costs = profiled_costs(graph, where, Profile((measured(graph, {"m": 5e-3}),)))
    plain = analytic_costs(graph, where)
    seconds, words = row(costs, graph, "m")
    assert seconds == pytest.approx([5e-3, plain.compute_s[graph.index["m"], 1], 5e-3])
    first, second, third = where.device_names
    assert words == f"profiled on {first},{third}; analytic:matmul on {second}"
    assert row(costs, graph, "x")[1] == plain.provenance[graph.index["x"]]
    assert profiled_share(costs) == 0.0


def test_what_was_measured_in_different_ways_on_different_devices_counts_as_measured(graph):
    seconds = {"x": 1e-3, "p": 1e-4, "q": 1e-4, "big": 2e-3, "m": 3e-3}
    one = measured(graph, seconds)
    single = {text: dataclasses.replace(time, ops=1) for text, time in one.ops.items()}
    other = dataclasses.replace(one, model="other", ops=single)
    costs = profiled_costs(graph, topology(MODEL, "other"), Profile((one, other)))
    assert row(costs, graph, "p")[1] == "profiled:pooled over 2 on CPU:0; profiled on CPU:1"
    assert profiled_share(costs) == 1.0


def test_a_profile_that_says_nothing_of_any_device_is_refused(graph):
    with pytest.raises(
        InputError, match=f"a profile of no device; expected a profile of a device of .*{MODEL!r} .CPU."
    ):
        profiled_costs(graph, topology(MODEL, MODEL), Profile())
    other = measured(graph, {"x": 1e-3})
    with pytest.raises(
        InputError, match=f"a profile of {MODEL!r}; expected a profile of a device of .*'another' .CPU."
    ):
        profiled_costs(graph, topology("another"), Profile((other,)))


def test_a_graph_whose_own_step_was_measured_adds_up_to_it(graph):
    seconds = {"x": 1e-3, "p": 1e-4, "q": 1e-4, "big": 2e-3, "m": 3e-3}
    own = step(graph.fingerprint, step_s=12e-3, empty_s=1e-3, ops_s=6e-3, executions=9)
    mine = measured(graph, seconds, [step("another", step_s=5.0), own])
    costs = profiled_costs(graph, topology(MODEL), Profile((mine,)))
    assert costs.compute_s[:, 0].sum() == pytest.approx(11e-3)
    assert step_ratio(graph, mine) == pytest.approx(1.0)
    assert profiled_share(costs) == 1.0
    slow = measured(graph, {k: 10 * s for k, s in seconds.items()}, [own])
    assert step_ratio(graph, slow) > 5  # kernels that take longer than the step: said, not hidden
    assert step_ratio(graph, measured(graph, seconds)) is None
