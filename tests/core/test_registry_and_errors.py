import math
import pickle

import pytest

from tfplace import errors
from tfplace.registry import PLACERS, SERVICES, Registry


def test_names_are_imported_when_asked_for():
    registry = Registry("thing", {"here": "math:sqrt", "broken": "no_such_module:x"})
    assert registry["here"] is math.sqrt
    assert list(registry) == ["broken", "here"]
    with pytest.raises(errors.InputError, match=r"thing 'no_such_module:x': No module named"):
        registry["broken"]


def test_a_module_and_what_is_in_it_is_a_name_too():
    registry = Registry("thing", {"here": "math:sqrt"})
    assert "math:exp" in registry
    assert registry["math:exp"] is math.exp
    assert "math:exp" not in list(registry)
    with pytest.raises(errors.InputError, match="thing 'math:nothing': module 'math' has no attribute"):
        registry["math:nothing"]
    with pytest.raises(errors.UnknownNameError):
        registry["math:"]


def test_what_makes_nothing_is_refused():
    registry = Registry("thing", {"number": "math:pi"})
    with pytest.raises(errors.InputError, match=r"thing 'number', 3\.14.*a function that makes a thing"):
        registry["number"]
    with pytest.raises(errors.InputError, match="thing 'mine', 3; expected a class"):
        registry.add("mine", 3)


def test_only_what_is_not_tfplaces_own_has_a_source():
    registry = Registry("thing", {"own": "tfplace.placers.heft:Heft", "built in": "math:sqrt"})
    registry.add("mine", test_what_makes_nothing_is_refused)
    assert registry.source("own") == registry.source("built in") == ""
    assert "def test_what_makes_nothing_is_refused" in registry.source("mine")


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(errors.UnknownNameError, match=r"placer 'heff'; expected one of .*heft.*Did you mean 'heft'\?"):
        PLACERS["heff"]
    with pytest.raises(errors.UnknownNameError, match="placer 3"):
        PLACERS[3]


def test_later_entries_replace_earlier_ones():
    registry = Registry("thing", {"a": "math:sqrt"})
    registry.add("a", len)
    assert registry["a"] is len
    registry.add("a", "math:exp")
    assert registry["a"] is math.exp
    assert "a" in registry
    assert "b" not in registry


def test_the_simulator_is_found_by_name():
    assert SERVICES["simulate_timeline"].__module__ == "tfplace.search.clustered"


def test_an_input_error_says_received_expected_and_hint():
    error = errors.GraphError("a cycle", "no cycle", "Cut it.")
    assert str(error) == "received a cycle; expected no cycle. Cut it."
    assert (error.received, error.expected, error.hint) == ("a cycle", "no cycle", "Cut it.")
    assert isinstance(error, ValueError)
    assert isinstance(error, errors.TfplaceError)
    assert str(errors.GraphError("a", "b")) == "received a; expected b."


def test_infeasible_has_the_numbers_and_numbered_ways_out():
    shortage = errors.Shortage("GPU:0", 3 * 2**30, 2**30, (("kernel", 2**30),))
    error = errors.InfeasibleError("Nothing fits.", [shortage], ["Buy more.", "Want less."])
    assert str(error).splitlines() == [
        "Nothing fits.",
        "  GPU:0: needs 3.00 GiB, may use 1.00 GiB, 2.00 GiB over",
        "      1.00 GiB  kernel",
        "Ways out:",
        "  1. Buy more.",
        "  2. Want less.",
    ]
    assert shortage.over_bytes == 2**31


def test_near_names():
    known = ["conv2d/kernel", "conv2d/bias", "dense/kernel"]
    assert errors.near_names("conv2d/kernle", known)[0] == "conv2d/kernel"
    assert errors.near_names("*bias*", known) == ["conv2d/bias"]
    assert errors.near_names("zzz", known) == []


@pytest.mark.parametrize(
    "error",
    [
        errors.GraphError("a", "b", "c"),
        errors.UnknownNameError("placer", "heff", ["heft"]),
        errors.InfeasibleError("Nothing fits.", [errors.Shortage("GPU:0", 2, 1)], ["Buy more."]),
    ],
)
def test_errors_survive_the_way_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
