import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tfplace.core.placement import Placement
from tfplace.errors import PlacementError
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology


def make(op_device=(0, 1, 0), graph=None, problem=None):
    graph = graph or make_graph({"a": 4, "b": 4, "c": 0}, ["a -> b", "b -> c"])
    problem = problem or make_problem(graph, make_topology(2), 1.0)
    devices = np.array(op_device, np.int32)
    sim = Simulator(problem)
    return Placement(
        op_names=graph.op_names,
        device_names=problem.topology.device_names,
        op_device=devices,
        cost=sim.devices(devices),
        bound_s=3.0,
        placer="test",
        seed=7,
        graph_fingerprint=graph.fingerprint,
        topology_fingerprint=problem.topology.fingerprint,
        topology_name=problem.topology.name,
        baselines={f"single GPU:{d}": sim(np.full(problem.num_units, d)) for d in (0, 1)},
        versions={"tfplace": "0"},
        problem=problem,
    )


def test_a_placement_goes_through_json_unchanged():
    placement = make()
    again = Placement.from_json(placement.to_json(), problem=placement.problem)
    assert again.to_json() == placement.to_json()
    assert again.devices == {"a": "GPU:0", "b": "GPU:1", "c": "GPU:0"}
    assert again.cost.key == placement.cost.key
    assert again.timeline().finish_s.max() == placement.cost.step_s


def with_phases(order="1f1b", phases=(0, -1, 2)):
    return replace(make(), phases=np.array(phases, np.int32), order=order)


def test_phases_go_through_json_and_follow_their_ops():
    placement = with_phases()
    data = json.loads(placement.to_json())
    data["ops"] = dict(reversed(data["ops"].items()))
    again = Placement.from_json(json.dumps(data), problem=placement.problem)
    assert again.phases.tolist() == [0, -1, 2] and again.order == "1f1b"
    assert again.to_json() == placement.to_json()


def test_a_placement_without_phases_is_free_and_its_file_is_as_ever():
    placement = make()
    assert placement.phases is None and placement.order == "free"
    assert not {"phases", "order"} & set(json.loads(placement.to_json()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"order": "gpipe"}, "order 'gpipe' without phases"),
        ({"phases": np.zeros(3, np.int32)}, "order 'free' with phases"),
        ({"phases": np.zeros(2, np.int32), "order": "gpipe"}, r"phases of shape \(2,\)"),
        ({"phases": np.zeros(3), "order": "gpipe"}, "type float64"),
        ({"phases": np.array([0, -2, 1]), "order": "gpipe"}, "phase -2"),
    ],
)
def test_phases_that_are_none_are_refused(fields, message):
    with pytest.raises(PlacementError, match=message):
        replace(make(), **fields)


def test_a_file_is_written_whole(tmp_path):
    placement = make()
    placement.save(tmp_path / "placement.json")
    assert [p.name for p in tmp_path.iterdir()] == ["placement.json"]
    text = (tmp_path / "placement.json").read_text()
    assert Placement.from_json(text).devices == placement.devices


def test_a_file_is_loaded_as_its_text_is_read(tmp_path):
    placement = make()
    path = tmp_path / "placement.json"
    placement.save(path)
    assert Placement.load(str(path)).to_json() == placement.to_json()
    bound = Placement.load(path, problem=placement.problem)
    assert bound.timeline().finish_s.max() == placement.cost.step_s
    other = make_graph({"a": 4})
    with pytest.raises(PlacementError, match="2 ops only in the first"):
        Placement.load(path, graph=other)


def test_a_placement_is_loaded_as_itself():
    placement = make()
    assert Placement.load(placement) is Placement.load(placement, graph=placement.problem.graph) is placement
    with pytest.raises(PlacementError, match="only in the first"):
        Placement.load(placement, graph=make_graph({"a": 4}))


def test_a_file_that_is_no_placement_is_refused_by_its_name(tmp_path):
    with pytest.raises(PlacementError, match=r"no_such.json' \(No such file.*Placement.save\(\)"):
        Placement.load(tmp_path / "no_such.json")
    with pytest.raises(PlacementError, match=r"\(Is a directory\)"):
        Placement.load(tmp_path)
    for content, message in ((b"\xff\xfe", "x.json', which is not text"), (b"{}", "x.json', which is not a placement")):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(PlacementError, match=message):
            Placement.load(tmp_path / "x.json")


@pytest.mark.parametrize("name", ["pl.json", Path("out/placement.json")])
def test_a_path_instead_of_text_is_told_where_it_belongs(name):
    with pytest.raises(PlacementError, match=r"Placement\.load\(path\) reads a file"):
        Placement.from_json(name)
    with pytest.raises(PlacementError) as caught:
        Placement.from_json("[]")
    assert "load" not in str(caught.value)


def test_the_order_of_ops_in_a_file_does_not_matter():
    placement = make()
    data = json.loads(placement.to_json())
    data["ops"] = dict(reversed(data["ops"].items()))
    again = Placement.from_json(json.dumps(data), problem=placement.problem)
    assert again.op_device.tolist() == [0, 1, 0]


def edited(**changes):
    return json.dumps({**json.loads(make().to_json()), **changes})


def costing(**changes):
    return {**json.loads(make().to_json())["cost"], **changes}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text that is not a placement"),
        ("[]", "not a placement"),
        ("{}", "KeyError: 'format'"),
        (edited(format="tfplace-placement/9"), "format 'tfplace-placement/9'"),
        (edited(ops={"a": 2, "b": 0, "c": 0}), r"a device index out of range; expected 0\.\.1"),
        (edited(ops={"a": 0.5, "b": 0, "c": 0}), "not a placement"),
        (edited(ops={"a": 2**40, "b": 0, "c": 0}), "not a placement"),
        (edited(ops=["a"]), "not a placement"),
        (edited(cost={}), "KeyError: 'step_s'"),
        ("[" * 100_000, "nests too deeply"),
        (edited(seed=0).replace('"seed": 0', '"seed": ' + "9" * 5000), "5000 digits"),
        (edited(devices=["GPU:0", "GPU:0"]), "unique device names"),
        (edited(devices=[0, 1]), "not text: 0"),
        (edited(ops={"a": True, "b": 0, "c": 0}), "not a number: True"),
        (edited(bound_s=float("nan")), "a bound of nan s"),
        (edited(bound_s=-1.0), r"a bound of -1\.0 s"),
        (edited(bound_s=float("inf")), "a bound of inf s"),
        (edited(bound_s=True), "not a number: True"),
        (edited(bound_s="3"), "not a number: '3'"),
        (edited(placer=3), "not text: 3"),
        (edited(graph_fingerprint=None), "not text: None"),
        (edited(notes="x"), "not a list: 'x'"),
        (edited(order="gpipe"), "order 'gpipe' without phases"),
        (edited(order="gpipe", phases={"z": 0}), "phases of z"),
        (edited(order="gpipe", phases={"a": 0.5}), "not a placement"),
        (edited(order="gpipe", phases=[0, 1]), "not a placement"),
        (edited(phases={"a": 0}), "order 'free' with phases"),
        (edited(notes=["\ud800"]), "not a placement"),
        (edited(cost=costing(step_s=float("nan"))), "a step of nan s"),
        (edited(cost=costing(step_s=-1.0)), r"a step of -1\.0 s"),
        (edited(cost=costing(compute_s=[-1.0, 0.0])), r"compute_s of -1\.0"),
        (edited(cost=costing(peak_bytes=[0])), r"peak_bytes of shape \(1,\)"),
        (edited(cost=costing(source="guessed")), "source 'guessed'"),
        (
            edited(simulated=costing(peak_bytes=[1], limit_bytes=[1], compute_s=[1], transfer_s=[1], idle_s=[1])),
            "1 dev",
        ),
    ],
)
def test_what_is_no_placement_is_refused(text, message):
    with pytest.raises(PlacementError, match=message):
        Placement.from_json(text)


def test_a_placement_of_another_graph_is_refused_saying_what_differs():
    other = make_graph({"a": 4, "b": 4, "d": 0}, ["a -> b", "b -> d"])
    with pytest.raises(PlacementError, match=r"1 ops only in the first \(c\); 1 ops only in the second \(d\)"):
        Placement.from_json(make().to_json(), graph=other)
    resized = make_graph({"a": 8, "b": 4, "c": 0}, ["a -> b", "b -> c"])
    with pytest.raises(PlacementError, match="Both have the same 3 op names; shapes, sizes or edges differ"):
        Placement.from_json(make().to_json(), graph=resized)


def test_a_file_with_an_op_removed_is_refused():
    placement = make()
    with pytest.raises(PlacementError, match=r"devices for 2 ops.*1 ops only in the second \(c\)"):
        Placement.from_json(edited(ops={"a": 0, "b": 1}), problem=placement.problem)


def test_a_placement_on_another_topology_is_refused():
    placement = make()
    slower = make_problem(placement.problem.graph, make_topology(2, bandwidth=1e9), 1.0)
    with pytest.raises(PlacementError, match="a placement on topology made"):
        Placement.from_json(placement.to_json(), problem=slower)


def test_a_placement_of_other_costs_or_limits_says_so():
    placement = replace(make(), problem_fingerprint=make().problem.fingerprint)
    text = placement.to_json()
    assert Placement.from_json(text, problem=placement.problem).notes == ()
    less = replace(placement.problem, memory_limit=placement.problem.memory_limit - 1)
    loaded = Placement.from_json(text, problem=less)
    assert "with other costs, limits or rules" in loaded.notes[0]
    assert Placement.load(loaded, problem=less).notes == loaded.notes  # said once


def test_a_placement_with_phases_of_ones_own_has_a_timeline():
    own = replace(make(), phases=np.array([0, 0, 1], np.int32), order="mine")
    assert own.timeline().finish_s.max() == own.cost.step_s


def test_a_loaded_placement_without_its_graph_has_no_timeline():
    with pytest.raises(PlacementError, match=r"Load it with Placement\.load"):
        Placement.from_json(make().to_json()).timeline()


def test_diff():
    placement = make()
    assert placement.diff(make((0, 0, 0))) == {"b": ("GPU:1", "GPU:0")}
    assert placement.diff(placement) == {}
    other = make_graph({"a": 4})
    with pytest.raises(PlacementError, match="two placements of one graph"):
        placement.diff(make([0], other))


def test_best_single_is_the_fastest_that_fits():
    graph = make_graph({"a": 4, "b": 4})
    seconds = np.array([[1.0, 2.0], [1.0, 2.0]])
    placement = make([0, 0], graph, make_problem(graph, make_topology(2), seconds))
    assert placement.best_single[0] == "single GPU:0"
    tight = make([0, 0], graph, make_problem(graph, make_topology(2), seconds, memory_limit=[1, 100]))
    assert tight.best_single[0] == "single GPU:1"
    none = make([0, 0], graph, make_problem(graph, make_topology(2), seconds, memory_limit=[1, 1]))
    assert none.best_single is None


@pytest.mark.parametrize("devices", [(0, 1), (0, 1, 2), (0, -1, 0)])
def test_devices_that_do_not_fit_the_ops_are_refused(devices):
    placement = make()
    with pytest.raises(PlacementError):
        Placement(
            **{
                **{f: getattr(placement, f) for f in placement.__dataclass_fields__},
                "op_device": np.array(devices, np.int32),
            }
        )
