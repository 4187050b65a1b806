import importlib.util
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from tfplace import Topology

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("K80", "P100", "V100-PCIe", "V100-NVLink", "A100-NVLink", "H100-NVLink")


MIXED = ("2xV100-PCIe+2xP100", "4xV100-PCIe+4xP100")


HOSTS = {"2x8xV100": "8xV100-NVLink", "8x8xV100": "8xV100-NVLink", "8x8xA100-NVLink": "8xA100-NVLink"}


def test_every_kind_comes_in_three_sizes_and_two_kinds_together():
    assert {*Topology.presets()} == {f"{n}x{kind}" for n in (2, 4, 8) for kind in KINDS} | {*MIXED, *HOSTS}


@pytest.mark.parametrize("name", HOSTS)
def test_several_hosts_are_a_preset_each_with_network_cards_between_them(name):
    topology, host = Topology.preset(name), Topology.preset(HOSTS[name])
    count, size = int(name[0]), len(host.devices)
    assert topology.name == name and len(topology.devices) == count * size
    assert topology.hosts == tuple(h for h in range(count) for _ in range(size))
    assert topology.device_names[size + 1] == "/job:worker/task:1/device:GPU:0"
    inside = topology.bandwidth[:size, :size]
    np.testing.assert_array_equal(inside, host.bandwidth)
    np.testing.assert_array_equal(inside, topology.bandwidth[size : 2 * size, size : 2 * size])
    assert topology.bandwidth[1, size + 1] < inside[1, 2]
    first, second, last = "/job:worker/task:0/device:", "/job:worker/task:1/device:", f"/job:worker/task:{count - 1}/"
    one, other = (channels(topology, f"{first}GPU:{i}", f"{second}GPU:{i}") for i in (0, 7))
    shared = {"host0/nic0/out", "host1/nic0/in"}
    assert one & other == (shared if "V100" in name else set())
    assert not channels(topology, f"{first}GPU:0", f"{first}CPU:0") & channels(
        topology, f"{last}device:GPU:0", f"{last}device:CPU:0"
    )
    data = json.loads((ROOT / f"tfplace/io/presets/{name}.json").read_text())
    assert data["source"] and data["hosts"]["between"]["source"]


@pytest.mark.parametrize("name", sorted({*Topology.presets()} - {*HOSTS}))
def test_preset_loads_with_sources(name):
    topology = Topology.preset(name)
    count = sum(int(part[0]) for part in name.split("+"))
    assert topology.name == name
    assert topology.device_names == ("CPU:0", *(f"GPU:{i}" for i in range(count)))
    data = json.loads((ROOT / f"tfplace/io/presets/{name}.json").read_text())
    assert all(entry["source"] for entry in [data, *data["devices"], *data["links"]])


@pytest.mark.parametrize("count", [2, 4, 8])
def test_newer_gpus_are_faster(count):
    boxes = [Topology.preset(f"{count}x{kind}") for kind in KINDS]
    for slower, faster in itertools.pairwise(boxes):
        a, b = slower.devices[1], faster.devices[1]
        assert a.flops["float32"] < b.flops["float32"]
        assert a.memory_bandwidth <= b.memory_bandwidth
    k80, p100, pcie, *nvlinked = (box.bandwidth[1, 2] for box in boxes)
    assert k80 < p100 == pcie < nvlinked[0] < nvlinked[1] < nvlinked[2]


@pytest.mark.parametrize("name", MIXED)
def test_two_kinds_together_are_side_by_side(name):
    topology = Topology.preset(name)
    gpus = [device.model for device in topology.devices[1:]]
    assert gpus[0] != gpus[1]
    assert gpus == gpus[:2] * (len(gpus) // 2)
    alone = Topology.preset(f"{len(gpus)}xP100")
    np.testing.assert_array_equal(topology.bandwidth, alone.bandwidth)


def channels(topology, src, dst):
    row = topology.channels[topology.index(src), topology.index(dst)]
    return {topology.channel_names[c] for c in row if c >= 0}


def test_uplinks_are_shared_and_nvlinks_are_not():
    pcie = Topology.preset("4xP100")
    assert channels(pcie, "GPU:0", "CPU:0") & channels(pcie, "GPU:1", "GPU:2") == {"uplink0/up"}
    assert not channels(pcie, "GPU:0", "GPU:1") & channels(pcie, "GPU:2", "GPU:3")
    nvlink = Topology.preset("4xV100-NVLink")
    assert not channels(nvlink, "GPU:0", "GPU:1") & channels(nvlink, "GPU:0", "GPU:2")


@pytest.mark.parametrize(("kind", "rate"), [("A100-NVLink", 260e9), ("H100-NVLink", 375e9)])
def test_a_gpu_behind_a_switch_has_one_port_for_all_others_and_another_for_the_cpu(kind, rate):
    topology = Topology.preset(f"8x{kind}")
    between = topology.bandwidth[1:, 1:][~np.eye(8, dtype=bool)]
    assert (between == rate).all()
    others = [channels(topology, "GPU:0", f"GPU:{i}") for i in range(1, 8)]
    assert set.intersection(*others) == {"GPU:0/nvlink/out"}
    cpu = [channels(topology, f"GPU:{i}", "CPU:0") for i in range(8)]
    assert cpu[0] & cpu[1] == {"CPU:0/pcie/in", "uplink0/up"}
    assert cpu[1] & cpu[2] == {"CPU:0/pcie/in"}
    assert not cpu[0] & set.union(*others)


def test_every_gpu_of_the_mesh_has_six_nvlinks():
    topology = Topology.preset("8xV100-NVLink")
    one = 23.95e9
    for gpu in range(1, 9):
        row = topology.bandwidth[gpu, 1:]
        assert sum(round(rate / one) for rate in row[(row > 12e9) & (row < 1e12)]) == 6


def test_files_are_what_the_script_writes():
    spec = importlib.util.spec_from_file_location("make_presets", ROOT / "scripts/make_presets.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for kind in KINDS:
        for count in (2, 4, 8):
            file = ROOT / f"tfplace/io/presets/{count}x{kind}.json"
            assert json.loads(file.read_text()) == script.preset(kind, count), "run scripts/make_presets.py"
