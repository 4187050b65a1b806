"""Equal hosts joined by a network: the compact form of a topology file, as devices and links."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tfplace.core.device import LINK_OVERHEADS, Device, Link
from tfplace.core.topology import Topology

MOST_HOSTS = 64
"""More would have hundreds of thousands of links between devices."""


@dataclass(frozen=True)
class Between:
    """What joins two devices of different hosts.

    Attributes:
      nic_of: [D] number of the network card of each device of a host.
      bandwidth: as of a link.
      latency_s: as of a link.
      port: the devices' port that it uses.
      send_overhead_s: as of a link, and so the others.
      send_overhead_s_per_byte: see there.
      receive_overhead_s: see there.
      receive_overhead_s_per_byte: see there.
    """

    nic_of: tuple[int, ...]
    bandwidth: float
    latency_s: float
    port: str = "nic"
    send_overhead_s: float = 0.0
    send_overhead_s_per_byte: float = 0.0
    receive_overhead_s: float = 0.0
    receive_overhead_s_per_byte: float = 0.0


def equal_hosts(name: str, host: Topology, count: int, between: Between, source: str = "") -> Topology:
    """A topology of several hosts that are alike.

    Devices are named as in a cluster, "/job:worker/task:1/device:GPU:0". Transfers between hosts occupy the network
    cards of both: `host1/nic0/out` and `host0/nic0/in`, which devices with one card share.

    Args:
      name: of the topology.
      host: the devices and links within each.
      count: of hosts.
      between: what joins them.
      source: where the numbers come from.
    """
    devices = [_device(device, h) for h in range(count) for device in host.devices]
    links = [_within(link, h) for h in range(count) for link in host.links]
    rates = {what: getattr(between, what) for what in ("bandwidth", "latency_s", "port", *LINK_OVERHEADS)}
    cards = list(zip(host.device_names, between.nic_of, strict=True))
    links += [
        Link(_name(src, a), _name(dst, b), shared=(f"host{a}/nic{i}/out", f"host{b}/nic{j}/in"), **rates)
        for a in range(count)
        for b in range(count)
        if a != b
        for src, i in cards
        for dst, j in cards
    ]
    return Topology(name, tuple(devices), tuple(links), source)


def _name(device: str, host: int) -> str:
    return f"/job:worker/task:{host}/device:{device}"


def _device(device: Device, host: int) -> Device:
    return replace(device, name=_name(device.name, host))


def _within(link: Link, host: int) -> Link:
    """A link of one host, whose shared channels are that host's own."""
    shared = tuple(f"host{host}/{channel}" for channel in link.shared)
    return replace(link, src=_name(link.src, host), dst=_name(link.dst, host), shared=shared)
