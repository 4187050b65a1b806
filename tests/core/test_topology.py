import copy
import json
import os
from dataclasses import replace

import numpy as np
import pytest

from tfplace.core.device import Link
from tfplace.core.topology import Topology
from tfplace.errors import InputError, TopologyError, UnknownNameError
from tfplace.testing import make_topology

DEVICE = {
    "name": "GPU:0",
    "type": "gpu",
    "memory": "16GiB",
    "flops": {"float32": "9.3TFLOP/s", "float16": "18TFLOP/s"},
    "memory_bandwidth": "732GB/s",
    "op_overhead": "5us",
}
GOOD = {
    "name": "two",
    "devices": [DEVICE, {**DEVICE, "name": "GPU:1", "duplex": "half"}],
    "links": [{"src": "GPU:*", "dst": "GPU:*", "bandwidth": "10GB/s", "latency": "25us"}],
}


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    Topology.from_dict(GOOD).save(path)
    before = path.read_text()

    def torn(file):
        os.ftruncate(file, 20)
        raise ZeroDivisionError

    monkeypatch.setattr("os.fsync", torn)
    with pytest.raises(ZeroDivisionError):
        make_topology(2).save(path)
    assert path.read_text() == before


def changed(*path_and_value):
    """GOOD with one value replaced, or removed where the value is ..."""
    *path, last, value = path_and_value
    data = copy.deepcopy(GOOD)
    inner = data
    for step in path:
        inner = inner[step]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return data


def test_units_are_read():
    topology = Topology.from_dict(GOOD)
    device = topology.devices[0]
    assert (device.type, device.memory_bytes, device.op_overhead_s) == ("GPU", 16 * 2**30, pytest.approx(5e-6))
    assert device.flops == {"float32": 9.3e12, "float16": 18e12}
    assert topology.bandwidth.tolist() == [[np.inf, 10e9], [10e9, np.inf]]
    np.testing.assert_allclose(topology.latency_s, [[0, 25e-6], [25e-6, 0]])
    assert topology.index("GPU:1") == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed("devices", []), "no devices"),
        (changed("devices", ...), "no field 'devices'"),
        (changed("devices", {}), "devices of type dict; expected devices as a JSON list"),
        (changed("links", []), r"no link GPU:0 -> GPU:1.*Add \{\"src\": \"GPU:0\""),
        (changed("links", 0, "bandwidth", 0), "links\\[0\\]: bandwidth 0; expected a bandwidth above 0"),
        (changed("links", 0, "bandwidth", "0GB/s"), "bandwidth '0GB/s'"),
        (changed("links", 0, "bandwidth", "10GiBs"), "bandwidth '10GiBs'.*Known units"),
        (changed("links", 0, "latency", "-1us"), "latency '-1us'.*non-negative"),
        (changed("links", 0, "latency", ...), "no field 'latency'"),
        (changed("links", 0, "latency", "25"), "latency '25'; expected a number, or a text with a unit"),
        (changed("links", 0, "src", "TPU:*"), "src 'TPU:\\*'; expected a name or pattern among GPU:0, GPU:1"),
        (changed("links", 0, "shared", "bus"), "shared of type str"),
        (changed("links", 0, "bandwith", "1GB/s"), "unknown field 'bandwith'.*Did you mean 'bandwidth'"),
        (changed("devices", 0, "memory", "16GiX"), r"devices\[0\]: memory '16GiX'.*\"12GiB\""),
        (changed("devices", 0, "memory", 0), "memory 0 in device 'GPU:0'; expected a finite memory above 0"),
        (changed("devices", 0, "memory", 1e30), r"1e\+30; expected a size of at most 1048576 TiB"),
        (changed("devices", 0, "memory", True), "memory True"),
        (changed("devices", 0, "memory_bandwidth", 0), "memory_bandwidth 0"),
        (changed("devices", 0, "op_overhead", "fast"), "op_overhead 'fast'"),
        (changed("devices", 0, "flops", "9TFLOP/s"), "flops '9TFLOP/s'; expected an object"),
        (changed("devices", 0, "flops", {"float16": 1e12}), 'an entry "float32"'),
        (changed("devices", 0, "flops", {"float32": 0}), "above 0"),
        (changed("devices", 0, "flops", {"float32": 1e12, "flot16": 2e12}), "flops of 'flot16'.*float16"),
        (changed("devices", 0, "name", ""), "device ''; expected a name"),
        (changed("devices", 0, "duplex", "both"), 'duplex \'both\'.*"full" or "half"'),
        (changed("devices", 0, "name", "GPU:1"), "device name 'GPU:1' twice"),
        (changed("devices", 0, "name", ...), r"devices\[0\]: no field 'name'"),
        (changed("devices", 0, "speed", 3), "unknown field 'speed'"),
        (changed("devices", 0, 7), r"devices\[0\]: int; expected a JSON object"),
        (changed("format", "tfplace-topology/9"), "format 'tfplace-topology/9'"),
        ([], "list; expected a JSON object"),
    ],
)
def test_a_wrong_file_is_refused_with_field_value_and_expectation(tmp_path, data, message):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(TopologyError, match=message):
        Topology.load(path)


@pytest.mark.parametrize("text", ["", "{", "\x00", '{"devices": [}'])
def test_a_file_that_is_not_json_is_refused(tmp_path, text):
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(TopologyError, match="which is not JSON"):
        Topology.load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(TopologyError, match="which does not exist"):
        Topology.load("no/such/file.json")
    with pytest.raises(TopologyError, match="not JSON"):
        Topology.load(tmp_path)


def test_a_folder_of_its_name_does_not_hide_a_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "4xP100").mkdir()
    assert Topology.load("4xP100").fingerprint == Topology.preset("4xP100").fingerprint


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("inf"), float("nan")])
def test_a_link_that_no_file_could_hold_is_refused_when_it_is_made(bandwidth):
    with pytest.raises(TopologyError, match="a finite bandwidth above 0"):
        Link("a", "b", bandwidth, 0.0)


@pytest.mark.parametrize("source", ["", {}, None, 2])
def test_what_names_no_topology_is_refused(source):
    with pytest.raises(TopologyError, match=f"topology {source!r}; expected a Topology, a preset's name or a file"):
        Topology.load(source)


def test_an_unknown_preset_lists_the_known():
    with pytest.raises(UnknownNameError, match=r"topology '4xP10'.*4xP100.*Did you mean '4xP100'\?"):
        Topology.load("4xP10")


@pytest.mark.parametrize("name", Topology.presets())
def test_presets_load_and_go_through_a_file(name, tmp_path):
    topology = Topology.preset(name)
    assert topology.name == name
    topology.save(tmp_path / "copy.json")
    again = Topology.load(tmp_path / "copy.json")
    assert again.fingerprint == topology.fingerprint
    assert again.to_dict() == topology.to_dict()
    np.testing.assert_array_equal(again.channels, topology.channels)


@pytest.mark.parametrize("name", [5, "", "  ", "GPU:0\n", "a\tb", "\ud800", "GPU:*", "GPU:?", "GPU:[01]"])
def test_a_device_has_a_name_of_text_that_is_no_pattern(name):
    with pytest.raises(TopologyError) as caught:
        replace(Topology.preset("2xP100").devices[0], name=name)
    assert repr(name) in caught.value.received and "name" in caught.value.expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("name",), 3),
        (("name",), "two\nlines"),
        (("source",), ["x"]),
        (("devices", 0, "name"), 3),
        (("devices", 0, "type"), None),
        (("devices", 0, "model"), {"a": 1}),
        (("devices", 0, "duplex"), 3),
        (("links", 0, "src"), 0),
        (("links", 0, "port"), ["main"]),
        (("links", 0, "shared"), [[1]]),
    ],
)
def test_texts_are_texts(path, value):
    with pytest.raises(TopologyError) as caught:
        Topology.from_dict(changed(*path, value))
    assert path[-1] in caught.value.received and "text" in caught.value.expected


@pytest.mark.parametrize("field", ["memory", "memory_bandwidth", "op_overhead", "workspace"])
@pytest.mark.parametrize("digits", [301, 5000])
def test_numbers_of_hundreds_of_digits(field, digits):
    with pytest.raises(TopologyError) as caught:
        Topology.from_dict(changed("devices", 0, field, 10**digits))
    assert field in caught.value.received and "300 digits" in caught.value.received


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("devices", 0, "op_overhead"), 1e308),
        (("devices", 0, "memory_bandwidth"), 1e308),
        (("devices", 0, "memory_bandwidth"), 5e-324),
        (("devices", 0, "flops"), {"float32": 5e-324}),
        (("links", 0, "latency"), 1e308),
        (("links", 0, "bandwidth"), 5e-324),
        (("links", 0, "send_overhead"), 1e308),
        (("links", 0, "receive_overhead_per_byte"), 1e300),
    ],
)
def test_quantities_whose_sums_would_not_be_finite(path, value):
    with pytest.raises(TopologyError) as caught:
        Topology.from_dict(changed(*path, value))
    assert "finite" in caught.value.expected


def test_deeply_nested_files(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(TopologyError) as caught:
        Topology.load(tmp_path / "deep.json")
    assert "deep.json" in caught.value.received and "too deeply" in caught.value.received


HOSTS = {
    "name": "several",
    "hosts": {
        "count": 3,
        "host": {"devices": GOOD["devices"], "links": GOOD["links"]},
        "between": {"bandwidth": "1GB/s", "latency": "50us", "nics": ["GPU:0", "*"], "send_overhead": "2us"},
    },
}


def test_equal_hosts_are_written_once():
    topology = Topology.from_dict(HOSTS)
    assert topology.hosts == (0, 0, 1, 1, 2, 2)
    assert topology.device_names[3] == "/job:worker/task:1/device:GPU:1"
    assert topology.bandwidth[0, 1:4].tolist() == [10e9, 1e9, 1e9]
    assert names_of(topology, 1, 4)[-2:] == ["host0/nic1/out", "host2/nic0/in"]
    assert topology.link_overheads[0, 0, 2] == 2e-6 and topology.link_overheads[0, 0, 1] == 0
    again = Topology.from_dict(topology.to_dict())
    assert again.fingerprint == topology.fingerprint and again.hosts == topology.hosts
    one = topology.part([2, 3], "one host")
    np.testing.assert_array_equal(one.bandwidth, Topology.from_dict(GOOD).bandwidth)
    assert Topology.from_dict(GOOD).hosts == (0, 0)


def of_hosts(*path_and_value):
    *path, last, value = path_and_value
    data = copy.deepcopy(HOSTS)
    inner = data["hosts"]
    for step in path:
        inner = inner[step]
    inner[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**HOSTS, "devices": []}, "unknown field 'devices'"),
        (of_hosts("count", 0), "hosts: count 0; expected a whole number of hosts"),
        (of_hosts("count", 2.0), "count 2.0"),
        (of_hosts("count", 10**6), "count 1000000"),
        (of_hosts("nics", 2), "hosts: unknown field 'nics'"),
        (of_hosts("host", "8xV10"), "topology '8xV10'"),
        (of_hosts("host", "2x8xV100"), "job:worker.*without job and task"),
        (of_hosts("host", {}), "hosts: host: no field 'devices'"),
        (of_hosts("host", "devices", 0, "memory", "much"), r"hosts: host: devices\[0\]: memory 'much'"),
        (of_hosts("between", {"bandwidth": "1GB/s"}), "between: no field 'latency'"),
        (of_hosts("between", "bandwidth", 0), "between: bandwidth 0; expected a bandwidth above 0"),
        (of_hosts("between", "nics", "GPU:0"), "between: nics 'GPU:0'; expected a list of patterns"),
        (of_hosts("between", "nics", []), r"between: nics \[\]; expected a list"),
        (of_hosts("between", "nics", ["GPU:0"]), "a pattern that matches 'GPU:1'"),
        (of_hosts("between", "nics", ["*", "TPU:0"]), "nics 'TPU:0'; expected a name or pattern among"),
    ],
)
def test_wrong_hosts_are_refused_with_field_value_and_expectation(data, message):
    with pytest.raises(InputError, match=message):
        Topology.from_dict(data)


def test_later_links_win_over_earlier_patterns():
    data = copy.deepcopy(GOOD)
    data["links"].append({"src": "GPU:0", "dst": "GPU:1", "bandwidth": "1GB/s", "latency": 0})
    assert Topology.from_dict(data).bandwidth[0, 1] == 1e9
    assert Topology.from_dict(data).bandwidth[1, 0] == 10e9


def names_of(topology, a, b):
    return [topology.channel_names[c] for c in topology.channels[a, b] if c >= 0]


def test_channels_of_full_and_half_duplex_devices_ports_and_shared_ways():
    topology = make_topology(3, duplex=["full", "half", "full"], shared={(0, 2): ["switch"]}, ports={(2, 0): "nvlink"})
    assert names_of(topology, 0, 1) == ["GPU:0/main/out", "GPU:1/main/bus"]
    assert names_of(topology, 1, 2) == ["GPU:1/main/bus", "GPU:2/main/in"]
    assert names_of(topology, 0, 2) == ["GPU:0/main/out", "GPU:2/main/in", "switch"]
    assert names_of(topology, 2, 0) == ["GPU:2/nvlink/out", "GPU:0/nvlink/in"]
    assert topology.channels[0, 0].tolist() == [-1, -1, -1]


def test_the_fingerprint_is_of_devices_and_links_alone():
    topology = Topology.from_dict(GOOD)
    assert Topology.from_dict({**GOOD, "name": "renamed"}).fingerprint == topology.fingerprint
    assert Topology.from_dict(changed("links", 0, "latency", 0)).fingerprint != topology.fingerprint
    assert Topology.from_dict(changed("devices", 0, "memory", "8GiB")).fingerprint != topology.fingerprint


def test_an_unknown_device_lists_the_known():
    with pytest.raises(UnknownNameError, match=r"device 'GPU:7'.*GPU:0, GPU:1"):
        Topology.from_dict(GOOD).index("GPU:7")
    with pytest.raises(UnknownNameError, match="device 7"):
        Topology.from_dict(GOOD).match(7)


def test_overheads_of_links_and_a_workspace_go_through_a_file(tmp_path):
    data = changed("links", 0, "send_overhead", "150us")
    data["links"][0]["receive_overhead_per_byte"] = "0.95ns"
    data["devices"][1]["workspace"] = "1GiB"
    topology = Topology.from_dict(data)
    np.testing.assert_array_equal(topology.link_overheads[0], [[0, 150e-6], [150e-6, 0]])
    np.testing.assert_array_equal(topology.link_overheads[3], [[0, 0.95e-9], [0.95e-9, 0]])
    assert not topology.link_overheads[1:3].any()
    assert [d.workspace_bytes for d in topology.devices] == [0, 2**30]
    topology.save(tmp_path / "copy.json")
    again = Topology.load(tmp_path / "copy.json")
    assert again.to_dict() == topology.to_dict()
    assert again.fingerprint == topology.fingerprint != Topology.from_dict(GOOD).fingerprint


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("devices", 0, "workspace", "16GiB"), "workspace of at least 0, below memory"),
        (("links", 0, "send_overhead", "soon"), "send_overhead 'soon'"),
        (("links", 0, "receive_overhead", -1), "receive_overhead -1"),
    ],
)
def test_wrong_overheads_and_workspaces_are_refused(path, message):
    with pytest.raises(TopologyError, match=message):
        Topology.from_dict(changed(*path))
