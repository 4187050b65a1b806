"""Topology: devices and the links between them. For the file format, see docs/reference/topology.md."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, digest, freeze
from tfplace.core.device import LINK_OVERHEADS, Device, Link, task_of
from tfplace.errors import TopologyError, UnknownNameError
from tfplace.registry import SERVICES

FORMAT = "tfplace-topology/1"


@dataclass(frozen=True, eq=False)
class Topology:
    """Devices, and a link for every ordered pair of them.

    Attributes:
      name: name for reports.
      devices: [D] devices; placements number them in this order.
      links: one link for every ordered pair of devices.
      source: where the numbers come from.

    Raises:
      TopologyError: no devices, a device name twice, or a missing, unknown or repeated link.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.devices:
            raise TopologyError(f"topology {self.name!r} with no devices", "at least one device in `devices`")
        names = [d.name for d in self.devices]
        for name, count in Counter(names).items():
            if count > 1:
                raise TopologyError(f"device name {name!r} twice", "unique device names")
        have = {(link.src, link.dst) for link in self.links}
        known = set(names)
        for a, b in have:
            for end in (a, b):
                if end not in known:
                    raise TopologyError(f"link {a} -> {b}", f"devices among {', '.join(names)}", f"No device {end!r}.")
        if len(have) != len(self.links):
            raise TopologyError(f"topology {self.name!r} with two links between one pair", "one link per ordered pair")
        for a in names:
            for b in names:
                if a != b and (a, b) not in have:
                    raise TopologyError(
                        f"no link {a} -> {b}",
                        "a link for every ordered pair",
                        f'Add {{"src": "{a}", "dst": "{b}", ...}}.',
                    )

    @cached_property
    def device_names(self) -> tuple[str, ...]:
        """[D] names of the devices."""
        return tuple(d.name for d in self.devices)

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """[D] host number of each device. Devices whose names have the same job and task, or none, share a host."""
        tasks: dict[str, int] = {}
        return tuple(tasks.setdefault(task_of(name), len(tasks)) for name in self.device_names)

    def part(self, devices: Sequence[int], name: str) -> Topology:
        """A topology of some of the devices, with the links between them.

        Args:
          devices: device indices; the new topology numbers the devices in this order.
          name: name of the new topology.
        """
        kept = {self.device_names[d] for d in devices}
        links = tuple(link for link in self.links if link.src in kept and link.dst in kept)
        return Topology(name, tuple(self.devices[d] for d in devices), links, self.source)

    def index(self, name: str) -> int:
        """The index of a device.

        Raises:
          UnknownNameError: no such device. The error lists the known ones.
        """
        if name not in self._index:
            raise UnknownNameError("device", name, self.device_names)
        return self._index[name]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: d for d, name in enumerate(self.device_names)}

    def match(self, pattern: str) -> list[int]:
        """Indices of the devices whose names match `pattern`, such as "GPU:*".

        Raises:
          UnknownNameError: no device matches. The error lists the known ones.
        """
        found = [i for i, name in enumerate(self.device_names) if fnmatch.fnmatchcase(name, str(pattern))]
        if not found:
            raise UnknownNameError("device", pattern, self.device_names)
        return found

    @cached_property
    def _link_of(self) -> dict[tuple[int, int], Link]:
        return {(self.index(link.src), self.index(link.dst)): link for link in self.links}

    def _matrix(self, attribute: str, own: float) -> FloatArray:
        out = np.full((len(self.devices),) * 2, own)
        for pair, link in self._link_of.items():
            out[pair] = getattr(link, attribute)
        return freeze(out)

    @cached_property
    def bandwidth(self) -> FloatArray:
        """[D, D] bandwidth in bytes per second, from row to column; infinite on the diagonal."""
        return self._matrix("bandwidth", np.inf)

    @cached_property
    def latency_s(self) -> FloatArray:
        """[D, D] latency in seconds, from row to column; 0 on the diagonal."""
        return self._matrix("latency_s", 0.0)

    @cached_property
    def link_overheads(self) -> FloatArray:
        """[4, D, D] overheads of the links, in the order of `LINK_OVERHEADS`, from row to column; 0 on the diagonal."""
        return freeze(np.stack([self._matrix(what, 0.0) for what in LINK_OVERHEADS]))

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        """[C] names of the channels that transfers can occupy: each device's ports, out and in, and shared channels."""
        return self._channels[0]

    @cached_property
    def channels(self) -> IntArray:
        """[D, D, K] channels that a transfer from row to column occupies, padded with -1."""
        return self._channels[1]

    @cached_property
    def _channels(self) -> tuple[tuple[str, ...], IntArray]:
        ids: dict[str, int] = {}
        rows: dict[tuple[int, int], list[int]] = {}
        for (a, b), link in self._link_of.items():
            ends = []
            for device, way in ((self.devices[a], "out"), (self.devices[b], "in")):
                side = way if device.duplex == "full" else "bus"
                ends.append(f"{device.name}/{link.port}/{side}")
            rows[a, b] = [ids.setdefault(name, len(ids)) for name in dict.fromkeys([*ends, *link.shared])]
        width = max((len(r) for r in rows.values()), default=1)
        out = np.full((len(self.devices), len(self.devices), width), -1, np.int32)
        for pair, row in rows.items():
            out[pair][: len(row)] = row
        return tuple(ids), freeze(out)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the devices and links. It does not depend on the name."""
        return digest(
            [json.dumps({k: v for k, v in self.to_dict().items() if k in ("devices", "links")}, sort_keys=True)]
        )

    # ---- reading and writing -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The content of a topology file. Numbers are in bytes, seconds and bytes or operations per second."""
        return {
            "format": FORMAT,
            "name": self.name,
            "source": self.source,
            "devices": [
                {
                    "name": d.name,
                    "type": d.type,
                    "model": d.model,
                    "memory": d.memory_bytes,
                    "flops": dict(d.flops),
                    "memory_bandwidth": d.memory_bandwidth,
                    "op_overhead": d.op_overhead_s,
                    "duplex": d.duplex,
                    **({"workspace": d.workspace_bytes} if d.workspace_bytes else {}),
                }
                for d in self.devices
            ],
            "links": [
                {
                    "src": link.src,
                    "dst": link.dst,
                    "bandwidth": link.bandwidth,
                    "latency": link.latency_s,
                    "port": link.port,
                    "shared": list(link.shared),
                    **{field_of(what): getattr(link, what) for what in LINK_OVERHEADS if getattr(link, what)},
                }
                for link in self.links
            ],
        }

    def save(self, path: str | Path) -> None:
        """Writes the topology to a JSON file. The write is atomic."""
        SERVICES["save_topology"](self, path)

    @classmethod
    def from_dict(cls, data: Any, where: str = "topology") -> Topology:
        """Makes a topology from the result of `to_dict`, or from the content of a file.

        Args:
          data: the content, a dict.
          where: name of the source, for error messages.

        Raises:
          TopologyError: a field is wrong. The error says which field, its value, and what was expected.
        """
        topology: Topology = SERVICES["topology_from_dict"](data, where)
        return topology

    @classmethod
    def load(cls, source: str | Path | Topology) -> Topology:
        """Loads a preset or a JSON file. A topology is returned as it is.

        Raises:
          TopologyError: the file is wrong. The error says what was expected.
          UnknownNameError: neither a file nor a preset. The error lists the presets.
        """
        topology: Topology = SERVICES["load_topology"](source)
        return topology

    @classmethod
    def presets(cls) -> tuple[str, ...]:
        """Names of the presets, the topologies that come with tfplace."""
        names: tuple[str, ...] = SERVICES["topology_presets"]()
        return names

    @classmethod
    def preset(cls, name: str) -> Topology:
        """Loads a topology that comes with tfplace.

        Raises:
          UnknownNameError: no such preset. The error lists the known ones.
        """
        topology: Topology = SERVICES["load_preset"](name)
        return topology

    @classmethod
    def detect(cls) -> Topology:
        """Describes the devices of the running TensorFlow, with rates from tables and defaults. Nothing is measured."""
        topology: Topology = SERVICES["detect_topology"]()
        return topology

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, devices={list(self.device_names)})"


def field_of(attribute: str) -> str:
    """The name of a link's overhead in files, without the unit, such as "send_overhead_per_byte"."""
    return attribute.replace("_s", "", 1)
