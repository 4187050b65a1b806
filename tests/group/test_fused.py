"""Problems of compiled steps: ops of one kernel are decided together."""

import pytest

import tfplace
from tfplace.cli import PLACED, main
from tfplace.core.constraints import Constraints
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import InputError
from tfplace.testing import make_graph


@pytest.fixture
def graph():
    """An elementwise chain into the update of a variable; a product before it."""
    return make_graph(
        {"w": 8, "x": 4000, "m": 4000, "a": 4000, "b": 4000, "u": ()},
        ["x -> m", "m -> a", "a -> b", "w -> u", "b -> u"],
        types={"x": "Placeholder", "m": "MatMul", "a": "Mul", "b": "Neg", "u": "AssignSubVariableOp"},
        variables={"w": 4000},
        resource={"w": 0, "u": 0},
    )


def units_of(problem):
    names = problem.graph.op_names
    return {"".join(names[v] for v in members) for members in problem.grouping.members}


def test_a_kernel_is_one_unit_with_the_variable_that_it_updates(graph):
    assert units_of(tfplace.formulate(graph, "2xP100")) == {"wu", "x", "m", "a", "b"}
    assert units_of(tfplace.formulate(graph, "2xP100", compile="xla")) == {"wabu", "x", "m"}


def test_rules_come_before_kernels(graph):
    rules = Constraints(pin={"a": "GPU:1"})
    problem = tfplace.formulate(graph, "2xP100", compile="xla", constraints=rules)
    assert units_of(problem) == {"wbu", "x", "m", "a"}
    assert problem.allowed[problem.grouping.unit_of[graph.index["a"]]].sum() == 1


def test_a_compiled_step_is_placed_and_is_no_slower(graph):
    plain = tfplace.place(graph, "2xP100", budget=20, placer="local_search", progress=False)
    compiled = tfplace.place(graph, "2xP100", budget=20, placer="local_search", progress=False, compile="xla")
    assert compiled.predicted.step_s <= plain.predicted.step_s


def test_the_command_places_kernels(graph, tmp_path):
    path = tmp_path / "graph.npz"
    words = ["place", f"--model={path}", "--placer=heft", "--budget=5 evaluations", "--quiet", "--compile=xla"]
    graph.save(path)
    assert main([*words, "--topology=2xP100"]) == PLACED


@pytest.mark.parametrize("wanted", ["XLA", "yes"])
def test_another_way_to_compile_is_refused(graph, wanted):
    with pytest.raises(InputError, match=wanted):
        tfplace.formulate(graph, "2xP100", compile=wanted)
    with pytest.raises(InputError, match=wanted):
        tfplace.place(graph, "2xP100", compile=wanted)


def test_costs_of_your_own_are_not_compiled(graph):
    topology = tfplace.Topology.preset("2xP100")
    with pytest.raises(InputError, match="costs"):
        tfplace.formulate(graph, topology, costs=analytic_costs(graph, topology), compile="xla")
