"""Topology: the devices, and the links between them. docs/reference/topology.md has the file format."""

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
    """Devices and a link for every ordered pair of them.

    Attributes:
      name: for reports.
      devices: [D], in the order in which placements number them.
      links: one per ordered pair.
      source: where the numbers come from.
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
        """[D]."""
        return tuple(d.name for d in self.devices)

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """[D] number of each device's host: devices whose names have one job and task, or none, are in one host."""
        tasks: dict[str, int] = {}
        return tuple(tasks.setdefault(task_of(name), len(tasks)) for name in self.device_names)

    def part(self, devices: Sequence[int], name: str) -> Topology:
        """Some of the devices, with the links between them.

        Args:
          devices: their indices, in the order in which the part numbers them.
          name: of the part.
        """
        kept = {self.device_names[d] for d in devices}
        links = tuple(link for link in self.links if link.src in kept and link.dst in kept)
        return Topology(name, tuple(self.devices[d] for d in devices), links, self.source)

    def index(self, name: str) -> int:
        """Device index of `name`.

        Raises:
          UnknownNameError: no such device; lists the known ones.
        """
        if name not in self._index:
            raise UnknownNameError("device", name, self.device_names)
        return self._index[name]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: d for d, name in enumerate(self.device_names)}

    def match(self, pattern: str) -> list[int]:
        """Indices of the devices whose name is, or matches, `pattern`, such as "GPU:*".

        Raises:
          UnknownNameError: none does; lists the known ones.
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
        """[D, D] bytes per second from row to column; infinite on the diagonal."""
        return self._matrix("bandwidth", np.inf)

    @cached_property
    def latency_s(self) -> FloatArray:
        """[D, D] seconds from row to column; 0 on the diagonal."""
        return self._matrix("latency_s", 0.0)

    @cached_property
    def link_overheads(self) -> FloatArray:
        """[4, D, D] the links' overheads in the order of `LINK_OVERHEADS`, from row to column; 0 on the diagonal."""
        return freeze(np.stack([self._matrix(what, 0.0) for what in LINK_OVERHEADS]))

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        """[C] names of everything a transfer can occupy: each device's ports, out and in, and the shared channels."""
        return self._channels[0]

    @cached_property
    def channels(self) -> IntArray:
        """[D, D, K] channels a transfer from row to column occupies, padded with -1."""
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
        """Changes when any device or link changes; not with the name."""
        return digest(
            [json.dumps({k: v for k, v in self.to_dict().items() if k in ("devices", "links")}, sort_keys=True)]
        )

    # ---- reading and writing -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The file format's content, numbers in bytes, seconds and their ratios."""
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
        """Writes the topology as JSON, whole or not at all."""
        SERVICES["save_topology"](self, path)

    @classmethod
    def from_dict(cls, data: Any, where: str = "topology") -> Topology:
        """Reads what `to_dict` gives, or a file holds.

        Raises:
          TopologyError: names the field, the value and what was expected.
        """
        topology: Topology = SERVICES["topology_from_dict"](data, where)
        return topology

    @classmethod
    def load(cls, source: str | Path | Topology) -> Topology:
        """A preset's name, a JSON file, or a topology itself.

        Raises:
          TopologyError: the file is wrong.
          UnknownNameError: neither a file nor a preset; lists the presets.
        """
        topology: Topology = SERVICES["load_topology"](source)
        return topology

    @classmethod
    def presets(cls) -> tuple[str, ...]:
        """Names of the topologies that come with tfplace."""
        names: tuple[str, ...] = SERVICES["topology_presets"]()
        return names

    @classmethod
    def preset(cls, name: str) -> Topology:
        """A topology that comes with tfplace.

        Raises:
          UnknownNameError: no such preset; lists the known ones.
        """
        topology: Topology = SERVICES["load_preset"](name)
        return topology

    @classmethod
    def detect(cls) -> Topology:
        """The devices of the running TensorFlow; rates of unknown products are stated defaults, not measurements."""
        topology: Topology = SERVICES["detect_topology"]()
        return topology

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, devices={list(self.device_names)})"


def field_of(attribute: str) -> str:
    """The file's name of a link's overhead, which leaves out the unit: "send_overhead_per_byte"."""
    return attribute.replace("_s", "", 1)
