"""Topology: the devices, and the links between them. docs/topology.md describes the file format field by field."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, digest, freeze
from tfplace.core.device import LINK_OVERHEADS, Device, Link
from tfplace.errors import InputError, TopologyError, UnknownNameError, near_names
from tfplace.files import write_whole
from tfplace.registry import SERVICES
from tfplace.units import parse_bandwidth, parse_bytes, parse_flops, parse_seconds

FORMAT = "tfplace-topology/1"
PRESET_DIR = Path(__file__).parent / "presets"


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
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(f"device name {name!r} twice", "unique device names")
        have = {(link.src, link.dst) for link in self.links}
        for a, b in have:
            for end in (a, b):
                if end not in names:
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

    @property
    def device_names(self) -> tuple[str, ...]:
        """[D]."""
        return tuple(d.name for d in self.devices)

    def index(self, name: str) -> int:
        """Device index of `name`.

        Raises:
          UnknownNameError: no such device; lists the known ones.
        """
        if name not in self.device_names:
            raise UnknownNameError("device", name, self.device_names)
        return self.device_names.index(name)

    def match(self, pattern: str) -> list[int]:
        """Indices of the devices whose name is, or matches, `pattern`, such as "GPU:*".

        Raises:
          UnknownNameError: none does; lists the known ones.
        """
        found = [i for i, name in enumerate(self.device_names) if fnmatch.fnmatchcase(name, pattern)]
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
                    **{_field(what): getattr(link, what) for what in LINK_OVERHEADS if getattr(link, what)},
                }
                for link in self.links
            ],
        }

    def save(self, path: str | Path) -> None:
        """Writes the topology as JSON, whole or not at all."""
        write_whole(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def from_dict(cls, data: Any, where: str = "topology") -> Topology:
        """Reads the file format.

        Raises:
          TopologyError: names the field, the value and what was expected.
        """
        _object(data, where, required={"devices"}, optional={"format", "name", "source", "links"})
        if data.get("format", FORMAT) != FORMAT:
            raise TopologyError(f"{where}: format {data['format']!r}", f"format {FORMAT!r}")
        devices = tuple(_device(d, f"{where}: devices[{i}]") for i, d in enumerate(_list(data, "devices", where)))
        names = [d.name for d in devices]
        if not names:
            raise TopologyError(f"{where} with no devices", "at least one device in `devices`")
        links: dict[tuple[str, str], Link] = {}
        for i, entry in enumerate(_list(data, "links", where)):
            for link in _links(entry, names, f"{where}: links[{i}]"):
                links[link.src, link.dst] = link
        return cls(str(data.get("name", "topology")), devices, tuple(links.values()), str(data.get("source", "")))

    @classmethod
    def load(cls, source: str | Path | Topology) -> Topology:
        """A preset's name, a JSON file, or a topology itself.

        Raises:
          TopologyError: the file is wrong.
          UnknownNameError: neither a file nor a preset; lists the presets.
        """
        if isinstance(source, Topology):
            return source
        if not isinstance(source, str | Path) or not str(source):
            raise TopologyError(f"topology {source!r}", "a Topology, a preset's name or a file")
        path = Path(source)
        if path.is_dir() and str(source) in cls.presets():
            return cls.preset(str(source))
        if not path.exists():
            if path.suffix or len(path.parts) > 1:
                raise TopologyError(f"{str(source)!r}, which does not exist", "a topology file or a preset's name")
            return cls.preset(str(source))
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
            raise TopologyError(f"{str(source)!r}, which is not JSON ({error})", "a topology file") from error
        return cls.from_dict(data, where=path.name)

    @classmethod
    def presets(cls) -> tuple[str, ...]:
        """Names of the topologies that come with tfplace."""
        return tuple(sorted(path.stem for path in PRESET_DIR.glob("*.json")))

    @classmethod
    def preset(cls, name: str) -> Topology:
        """A topology that comes with tfplace.

        Raises:
          UnknownNameError: no such preset; lists the known ones.
        """
        if name not in cls.presets():
            raise UnknownNameError("topology", name, cls.presets())
        return cls.load(PRESET_DIR / f"{name}.json")

    @classmethod
    def detect(cls) -> Topology:
        """The devices of the running TensorFlow; rates of unknown products are stated defaults, not measurements."""
        topology: Topology = SERVICES["detect_topology"]()
        return topology

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, devices={list(self.device_names)})"


def _field(attribute: str) -> str:
    """The file's name of a link's overhead, which leaves out the unit: "send_overhead_per_byte"."""
    return attribute.replace("_s", "", 1)


def _object(data: Any, where: str, required: set[str], optional: set[str]) -> None:
    if not isinstance(data, dict):
        raise TopologyError(f"{where}: {type(data).__name__}", "a JSON object")
    for key in sorted(set(data) - required - optional):
        near = near_names(key, required | optional)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        raise TopologyError(f"{where}: unknown field {key!r}", f"fields {sorted(required | optional)}", hint)
    for key in sorted(required - set(data)):
        raise TopologyError(f"{where}: no field {key!r}", f"fields {sorted(required)}")


def _list(data: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    value = data.get(key, [])
    if not isinstance(value, list):
        raise TopologyError(f"{where}: {key} of type {type(value).__name__}", f"{key} as a JSON list")
    return value


def _quantity(entry: Mapping[str, Any], key: str, parse: Any, where: str) -> Any:
    if isinstance(entry[key], str) and entry[key].strip()[-1:].isdigit():
        raise TopologyError(f"{where}: {key} {entry[key]!r}", "a number, or a text with a unit")
    try:
        return parse(entry[key])
    except InputError as error:
        raise TopologyError(f"{where}: {key} {error.received}", error.expected, error.hint) from error


def _device(entry: Any, where: str) -> Device:
    required = {"name", "type", "memory", "flops", "memory_bandwidth", "op_overhead"}
    _object(entry, where, required, {"duplex", "model", "source", "workspace"})
    if not isinstance(entry["flops"], dict):
        raise TopologyError(f"{where}: flops {entry['flops']!r}", 'an object such as {"float32": "9.3TFLOP/s"}')
    return Device(
        name=str(entry["name"]),
        type=str(entry["type"]).upper(),
        memory_bytes=_quantity(entry, "memory", parse_bytes, where),
        flops={k: _quantity(entry["flops"], k, parse_flops, f"{where}: flops") for k in entry["flops"]},
        memory_bandwidth=_quantity(entry, "memory_bandwidth", parse_bandwidth, where),
        op_overhead_s=_quantity(entry, "op_overhead", parse_seconds, where),
        duplex=str(entry.get("duplex", "full")),
        model=str(entry.get("model", "")),
        workspace_bytes=_quantity({"workspace": 0} | dict(entry), "workspace", parse_bytes, where),
    )


def _links(entry: Any, names: Sequence[str], where: str) -> list[Link]:
    """The links one entry stands for: `src` and `dst` may be patterns such as "GPU:*"; later entries win."""
    _object(
        entry, where, {"src", "dst", "bandwidth", "latency"}, {"port", "shared", "source", *map(_field, LINK_OVERHEADS)}
    )
    ends = []
    for key in ("src", "dst"):
        found = [n for n in names if fnmatch.fnmatchcase(n, str(entry[key]))]
        if not found:
            raise TopologyError(f"{where}: {key} {entry[key]!r}", f"a name or pattern among {', '.join(names)}")
        ends.append(found)
    bandwidth = _quantity(entry, "bandwidth", parse_bandwidth, where)
    latency = _quantity(entry, "latency", parse_seconds, where)
    if not bandwidth > 0:
        raise TopologyError(f"{where}: bandwidth {entry['bandwidth']!r}", "a bandwidth above 0")
    shared = tuple(map(str, _list(entry, "shared", where)))
    overheads = {
        what: _quantity({_field(what): 0} | entry, _field(what), parse_seconds, where) for what in LINK_OVERHEADS
    }
    return [
        Link(a, b, bandwidth, latency, str(entry.get("port", "main")), shared, **overheads)
        for a in ends[0]
        for b in ends[1]
        if a != b
    ]
