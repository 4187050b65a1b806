import pytest

from tfplace import Topology
from tfplace.measurement.calibration.detect import cpu_devices, gpu_devices, links_between
from tfplace.measurement.calibration.machine import Machine, read_machine

MACHINE = Machine("a test processor", cores=8, clock_hz=2e9, flops_per_cycle=32, memory_bytes=16 * 2**30)


@pytest.mark.tensorflow
def test_detects_the_running_logical_devices(logical_cpus):
    topology = Topology.detect()
    assert list(topology.device_names) == logical_cpus
    assert "shared equally by 4" in topology.source
    assert len({d.flops["float32"] for d in topology.devices}) == 1
    assert Topology.detect().fingerprint == topology.fingerprint


def test_logical_cpus_share_the_machine():
    whole, _ = cpu_devices(["CPU:0"], MACHINE)
    parts, note = cpu_devices(["CPU:0", "CPU:1"], MACHINE)
    assert whole[0].flops["float32"] == pytest.approx(8 * 2e9 * 32)
    assert sum(d.flops["float32"] for d in parts) == pytest.approx(whole[0].flops["float32"])
    assert sum(d.memory_bytes for d in parts) == whole[0].memory_bytes
    assert "same cores" in note


def test_a_known_gpu_takes_its_data_sheet():
    (gpu,), note = gpu_devices(["GPU:0"], {"device_name": "Tesla V100-SXM2-16GB"}, [None])
    assert gpu.flops["float32"] == 15.7e12
    assert gpu.memory_bytes == 16160 * 2**20
    assert "data sheet" in note


def test_an_unknown_gpu_takes_stated_defaults():
    (gpu,), note = gpu_devices(["GPU:0"], {"device_name": "Some Chip 9000"}, [2048])
    assert gpu.model == "Some Chip 9000"
    assert gpu.memory_bytes == 2 * 2**30
    assert "not a known product: default rates" in note


def test_links_join_every_pair():
    cpus, _ = cpu_devices(["CPU:0"], MACHINE)
    gpus, _ = gpu_devices(["GPU:0", "GPU:1"], {}, [1024, 1024])
    links = links_between(cpus + gpus)
    assert len(links) == 6
    Topology("test", tuple(cpus + gpus), links)


def test_reads_processor_and_memory_from_proc(tmp_path):
    (tmp_path / "cpuinfo").write_text(
        "model name : Chip @ 2.30GHz\ncpu MHz : 1200.0\nsiblings : 4\ncpu cores : 2\nflags : fpu avx avx2 fma\n"
    )
    (tmp_path / "meminfo").write_text("MemTotal:       1048576 kB\n")
    (tmp_path / "memory.max").write_text("536870912\n")
    machine = read_machine(tmp_path, tmp_path)
    assert machine.clock_hz == pytest.approx(2.3e9)
    assert machine.flops_per_cycle == 32
    assert machine.memory_bytes == 512 * 2**20


def test_a_machine_that_says_nothing_gets_defaults(tmp_path):
    machine = read_machine(tmp_path, tmp_path)
    assert machine.clock_hz == 3e9
    assert machine.memory_bytes == 8 * 2**30
    assert machine.cores >= 1


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("", {"memory.max": "max\n", "memory/memory.limit_in_bytes": "1000"}),
        ("0::/job/step\n", {"memory.max": "max", "job/memory.max": "1000", "job/step/memory.max": "max"}),
        ("3:cpu,cpuacct:/\n5:memory:/docker/1\n", {"memory/docker/1/memory.limit_in_bytes": "1000"}),
        ("5:memory:/docker/1\n", {"memory.max": "1000", "memory/docker/1/memory.limit_in_bytes": str(2**62)}),
    ],
)
def test_the_least_of_all_limits_counts(tmp_path, groups, files):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(groups)
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_machine(tmp_path, tmp_path).memory_bytes == 1000
