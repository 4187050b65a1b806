"""Writes tfplace/io/presets/*.json: a CPU with 2, 4 or 8 GPUs, the papers' and today's, and several such hosts.

Run after any change here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from absl import app

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.files import check_writable, write_whole, writing  # noqa: E402

PRESETS = ROOT / "tfplace/io/presets"
PRODUCTS = json.loads((ROOT / "tfplace/measurement/calibration/products.json").read_text())

OVERHEAD = (
    "Placeto's simulator: 5.7 us between ops on a K80. Kept for newer GPUs: it is TensorFlow's share, not theirs."
)
LATENCY = "25 us as in Placeto's simulator of a K80 machine, kept for newer GPUs: it is TensorFlow's share, not theirs"
CPUS: dict[str, dict[str, Any]] = {
    "Haswell": {
        "model": "Intel Xeon E5-2699 v3",
        "memory": "128GiB",
        "flops": {"float32": "1.325TFLOP/s", "float64": "662GFLOP/s"},
        "memory_bandwidth": "68GB/s",
        "op_overhead": "2us",
        "source": "18 cores x 2.3 GHz x 32 float32 operations per cycle (two AVX2 fused multiply-adds); four channels "
        "of DDR4-2133; Mirhoseini et al. 2017 name an 18-core 2.3 GHz Haswell. Estimates: memory, op_overhead.",
    },
    "Broadwell": {
        "model": "Intel Xeon E5-2698 v4",
        "memory": "256GiB",
        "flops": {"float32": "1.408TFLOP/s", "float64": "704GFLOP/s"},
        "memory_bandwidth": "76.8GB/s",
        "op_overhead": "2us",
        "source": "20 cores x 2.2 GHz x 32 float32 operations per cycle (two AVX2 fused multiply-adds); four channels "
        "of DDR4-2400; GDP names a Broadwell, and this one is half of a DGX-1's host. Estimates: memory, op_overhead.",
    },
    "Rome": {
        "model": "AMD EPYC 7742",
        "memory": "512GiB",
        "flops": {"float32": "4.608TFLOP/s", "float64": "2.304TFLOP/s"},
        "memory_bandwidth": "204.8GB/s",
        "op_overhead": "2us",
        "source": "64 cores x 2.25 GHz x 32 float32 operations per cycle (two AVX2 fused multiply-adds); eight "
        "channels of DDR4-3200; half of a DGX A100's host. Estimate: op_overhead.",
    },
    "Sapphire Rapids": {
        "model": "Intel Xeon Platinum 8480C",
        "memory": "1TiB",
        "flops": {"float32": "7.168TFLOP/s", "float64": "3.584TFLOP/s"},
        "memory_bandwidth": "307.2GB/s",
        "op_overhead": "2us",
        "source": "56 cores x 2.0 GHz x 64 float32 operations per cycle (two AVX-512 fused multiply-adds); eight "
        "channels of DDR5-4800; half of a DGX H100's host. Estimate: op_overhead.",
    },
}
PCIE_7_6 = {
    "bandwidth": "7.6GB/s",
    "latency": "25us",
    "source": "Placeto's simulator of a p2.8xlarge: 7,600 bytes/us and 25 us.",
}
PCIE_12 = {
    "bandwidth": "12GB/s",
    "latency": "25us",
    "source": f"Estimate: three quarters of PCIe 3.0 x16's 15.75 GB/s, as large copies reach; {LATENCY}.",
}
PCIE_25 = {
    "bandwidth": "25GB/s",
    "latency": "25us",
    "source": "Measured peak of an A100's PCIe 4.0 x16 (the authors of BaM, github.com/ZaidQureshi/bam/issues/54); "
    f"{LATENCY}.",
}
PCIE_54 = {
    "bandwidth": "54GB/s",
    "latency": "25us",
    "source": "Estimate: p2pBandwidthLatencyTest measures 53 to 56 GB/s between RTX PRO 6000 on PCIe 5.0 x16 "
    f"(github.com/voipmonitor/rtx6kpro); {LATENCY}.",
}
HOP = "25 us as within a host and 14 us, NCCL's constant for a hop over a network (nccl, src/graph/tuning.cc)"
ETHERNET_100 = {
    "bandwidth": "12GB/s",
    "latency": "39us",
    "source": "One 100 Gbit/s card for all GPUs of a host: 12.5 GB/s, of which NCCL expects 12 (src/graph/topo.h). "
    f"Over plain TCP users measured 4 to 6 (github.com/NVIDIA/nccl/issues/450). Latency: {HOP}.",
}
INFINIBAND_HDR = {
    "bandwidth": "24GB/s",
    "latency": "39us",
    "nics": ["CPU:0", *(f"GPU:{i}" for i in range(8))],
    "source": "A 200 Gbit/s HDR InfiniBand card for each GPU, as in a DGX A100's data sheet; 24 GB/s between hosts "
    f"over one is what NCCL's authors expect (github.com/NVIDIA/nccl/issues/412). Latency: {HOP}. Estimate: a card of "
    "the CPU's own.",
}
# name: hosts, the preset of each, and what joins them
HOSTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "2x8xV100": (2, "8xV100-NVLink", ETHERNET_100),
    "8x8xV100": (8, "8xV100-NVLink", ETHERNET_100),
    "8x8xA100-NVLink": (8, "8xA100-NVLink", INFINIBAND_HDR),
}
MIXED = ("V100-PCIe", "P100")
# NVLinks between two GPUs: doubled between all four of a fully connected board, and a DGX-1V's hybrid cube mesh.
MESH = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
}


class Kind(NamedTuple):
    """What boxes of one GPU product are made of."""

    product: str
    cpu: str
    pcie: dict[str, str]
    uplinks: int = 2  # x16 links to the CPU, if there are as many boards
    per_board: int = 1  # a K80 board carries two GPUs behind its own switch
    nvlinks: Callable[[int], list[dict[str, Any]]] = lambda count: []


def paired(count: int) -> list[dict[str, Any]]:
    """A link entry for each direction of each NVLinked pair, on a port of its own."""
    pairs = MESH if count == 8 else {(a, b): 2 for a in range(count) for b in range(a + 1, count)}
    return [
        {
            "src": f"GPU:{src}",
            "dst": f"GPU:{dst}",
            "bandwidth": f"{23.95 * lanes:g}GB/s",
            "latency": "25us",
            "port": f"nvlink{a}-{b}",
            "source": f"{lanes} NVLink 2.0 of 25 GB/s each; 47.9 GB/s measured over two (Dell C4130, "
            f"p2pBandwidthLatencyTest); {LATENCY}.",
        }
        for (a, b), lanes in sorted(pairs.items())
        for src, dst in ((a, b), (b, a))
    ]


def switched(bandwidth: str, source: str) -> Callable[[int], list[dict[str, Any]]]:
    """NVSwitch: one entry for all GPUs, each with one NVLink port that its transfers share."""
    return lambda count: [
        {
            "src": "GPU:*",
            "dst": "GPU:*",
            "bandwidth": bandwidth,
            "latency": "25us",
            "port": "nvlink",
            "source": f"{source}; {LATENCY}.",
        }
    ]


KINDS = {
    "K80": Kind("Tesla K80", "Haswell", PCIE_7_6, per_board=2),
    "P100": Kind("Tesla P100-PCIE-16GB", "Broadwell", PCIE_12),
    "V100-PCIe": Kind("Tesla V100-PCIE-16GB", "Broadwell", PCIE_12),
    "V100-NVLink": Kind("Tesla V100-SXM2-16GB", "Broadwell", PCIE_12, nvlinks=paired),
    "A100-NVLink": Kind(
        "NVIDIA A100",
        "Rome",
        PCIE_25,
        uplinks=4,
        nvlinks=switched(
            "260GB/s",
            "12 NVLink 3.0 of 25 GB/s each through NVSwitch; 519 GB/s measured in both directions together "
            "(p2pBandwidthLatencyTest, github.com/NVIDIA/nccl-tests/issues/100)",
        ),
    ),
    "H100-NVLink": Kind(
        "NVIDIA H100",
        "Sapphire Rapids",
        PCIE_54,
        uplinks=4,
        nvlinks=switched(
            "375GB/s",
            "18 NVLink 4.0 of 25 GB/s each through NVSwitch; 371 to 377 GB/s measured in one direction "
            "(p2pBandwidthLatencyTest, github.com/NVIDIA/nccl/issues/1264)",
        ),
    ),
}


def pcie_links(count: int, kind: Kind) -> list[dict[str, Any]]:
    """As many x16 uplinks to the CPU as the box has (a Xeon E5's 40 lanes give two), GPUs spread evenly over them."""
    uplinks = min(kind.uplinks, max(1, count // kind.per_board))
    per_uplink = count // uplinks
    shared = per_uplink > 1
    behind = [range(u * per_uplink, (u + 1) * per_uplink) for u in range(uplinks)]
    pattern = [f"GPU:[{group[0]}-{group[-1]}]" if shared else f"GPU:{group[0]}" for group in behind]
    ends = [("GPU:*", "GPU:*", [])] if shared else []
    for u in range(uplinks):
        ends += [(pattern[u], "CPU:0", [f"uplink{u}/up"]), ("CPU:0", pattern[u], [f"uplink{u}/down"])]
        ends += [(pattern[u], pattern[v], [f"uplink{u}/up", f"uplink{v}/down"]) for v in range(uplinks) if v != u]
    return [
        {"src": src, "dst": dst, **kind.pcie, "port": "pcie"} | ({"shared": channels} if shared and channels else {})
        for src, dst, channels in ends
    ]


def gpu(product: str) -> dict[str, Any]:
    """What a device's entry says of a product."""
    said = {"model": product} | {k: v for k, v in PRODUCTS[product].items() if k != "match"} | {"op_overhead": "5.7us"}
    return said | {"source": f"{said['source']} op_overhead: {OVERHEAD}"}


def preset(kind: str, count: int) -> dict[str, Any]:
    """The whole file of `count` GPUs of `kind`."""
    made = KINDS[kind]
    links = pcie_links(count, made) + made.nvlinks(count)
    what = "GK210 GPUs, two of which make one Tesla K80 board" if kind == "K80" else made.product
    return box(f"{count}x{kind}", made.cpu, f"{count} {what}", [made.product] * count, links)


def mixed(kinds: tuple[str, str], count: int) -> dict[str, Any]:
    """The whole file of `count` GPUs of each of two kinds with the same host and PCIe, side by side on each uplink."""
    first, second = (KINDS[kind] for kind in kinds)
    name = "+".join(f"{count}x{kind}" for kind in kinds)
    what = f"{count} {first.product} and {count} {second.product}"
    return box(name, first.cpu, what, [first.product, second.product] * count, pcie_links(2 * count, first))


def hosts(name: str) -> dict[str, Any]:
    """The whole file of several equal hosts."""
    count, host, between = HOSTS[name]
    return {
        "format": "tfplace-topology/1",
        "name": name,
        "source": f"{count} hosts, each as the preset {host}, which says where its numbers come from; between them see "
        "the source there.",
        "hosts": {"count": count, "host": host, "between": between},
    }


def box(name: str, cpu: str, what: str, products: list[str], links: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole file of one host with GPUs."""
    return {
        "format": "tfplace-topology/1",
        "name": name,
        "source": f"One {cpu} CPU and {what}. Data sheets, papers' constants and marked estimates: see each "
        "device's and link's source.",
        "devices": [{"name": "CPU:0", "type": "CPU", **CPUS[cpu]}]
        + [{"name": f"GPU:{i}", "type": "GPU", **gpu(product)} for i, product in enumerate(products)],
        "links": links,
    }


def main(argv: list[str]) -> None:
    """Writes every preset."""
    with script(argv):
        boxes = [preset(kind, count) for kind in KINDS for count in (2, 4, 8)]
        for made in [*boxes, *(mixed(MIXED, count) for count in (2, 4)), *map(hosts, HOSTS)]:
            path = PRESETS / f"{made['name']}.json"
            check_writable(path)
            with writing(path):
                write_whole(path, json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    app.run(main)
