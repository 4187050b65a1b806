"""Topology files: JSON, with quantities as numbers or with units, and the presets.

docs/reference/topology.md has every field.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfplace.core.device import LINK_OVERHEADS, Device, Link, task_of
from tfplace.core.topology import FORMAT, Topology, field_of
from tfplace.errors import InputError, TopologyError, UnknownNameError, near_names
from tfplace.files import parse_json, write_whole
from tfplace.io.hosts import MOST_HOSTS, Between, equal_hosts
from tfplace.units import parse_bandwidth, parse_bytes, parse_flops, parse_seconds

PRESET_DIR = Path(__file__).parent / "presets"


def save(topology: Topology, path: str | Path) -> None:
    """Writes a topology as JSON, whole or not at all."""
    write_whole(path, json.dumps(topology.to_dict(), indent=1) + "\n")


def presets() -> tuple[str, ...]:
    """Names of the topologies that come with tfplace."""
    return tuple(sorted(path.stem for path in PRESET_DIR.glob("*.json")))


def preset(name: str) -> Topology:
    """A topology that comes with tfplace.

    Raises:
      UnknownNameError: no such preset; lists the known ones.
    """
    if name not in presets():
        raise UnknownNameError("topology", name, presets())
    return load(PRESET_DIR / f"{name}.json")


def load(source: str | Path | Topology) -> Topology:
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
    if path.is_dir() and str(source) in presets():
        return preset(str(source))
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise TopologyError(f"{str(source)!r}, which does not exist", "a topology file or a preset's name")
        return preset(str(source))
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
    except (ValueError, IsADirectoryError) as error:
        raise TopologyError(f"{str(source)!r}, which is not JSON ({error})", "a topology file") from error
    return from_dict(data, where=path.name)


def from_dict(data: Any, where: str = "topology") -> Topology:
    """Reads the file format.

    Raises:
      TopologyError: names the field, the value and what was expected.
    """
    if isinstance(data, dict) and "hosts" in data:
        return _of_hosts(data, where)
    _object(data, where, required={"devices"}, optional={"format", "name", "source", "links"})
    return _flat(data, where)


def _of_hosts(data: dict[str, Any], where: str) -> Topology:
    """Several equal hosts; see `tfplace.io.hosts`."""
    _object(data, where, required={"hosts"}, optional={"format", "name", "source"})
    _check_format(data, where)
    given, inside = data["hosts"], f"{where}: hosts"
    _object(given, inside, required={"count", "host", "between"}, optional=set())
    count = given["count"]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_HOSTS:
        raise TopologyError(f"{inside}: count {count!r:.80}", f"a whole number of hosts, 1 to {MOST_HOSTS}")
    host = _host(given["host"], f"{inside}: host")
    between = _between(given["between"], host.device_names, f"{inside}: between")
    name, source = _text(data, "name", where, "topology"), _text(data, "source", where, "")
    return equal_hosts(name, host, count, between, source)


def _host(given: Any, where: str) -> Topology:
    if isinstance(given, str):
        host = preset(given)
    else:
        _object(given, where, required={"devices"}, optional={"links", "source"})
        host = _flat(given, where)
    if any(task_of(device) for device in host.device_names):
        raise TopologyError(f"{where}: device {host.device_names[0]!r}", 'names such as "GPU:0", without job and task')
    return host


def _between(given: Any, names: Sequence[str], where: str) -> Between:
    _object(given, where, {"bandwidth", "latency"}, {"port", "nics", "source", *map(field_of, LINK_OVERHEADS)})
    patterns = [str(one) for one in given.get("nics", ["*"])] if isinstance(given.get("nics", []), list) else None
    if not patterns:
        raise TopologyError(f"{where}: nics {given['nics']!r:.80}", 'a list of patterns such as ["GPU:[0-3]", "*"]')
    unknown = [one for one in patterns if not any(fnmatch.fnmatchcase(name, one) for name in names)]
    if unknown:
        raise TopologyError(f"{where}: nics {unknown[0]!r}", f"a name or pattern among {', '.join(names)}")
    nic_of = [next((i for i, one in enumerate(patterns) if fnmatch.fnmatchcase(name, one)), -1) for name in names]
    if -1 in nic_of:
        raise TopologyError(f"{where}: nics {patterns}", f"a pattern that matches {names[nic_of.index(-1)]!r}")
    return Between(tuple(nic_of), **_rates({"port": "nic"} | given, where))


def _flat(data: Mapping[str, Any], where: str) -> Topology:
    _check_format(data, where)
    devices = tuple(_device(d, f"{where}: devices[{i}]") for i, d in enumerate(_list(data, "devices", where)))
    names = [d.name for d in devices]
    if not names:
        raise TopologyError(f"{where} with no devices", "at least one device in `devices`")
    links: dict[tuple[str, str], Link] = {}
    for i, entry in enumerate(_list(data, "links", where)):
        for link in _links(entry, names, f"{where}: links[{i}]"):
            links[link.src, link.dst] = link
    name, source = _text(data, "name", where, "topology"), _text(data, "source", where, "")
    return Topology(name, devices, tuple(links.values()), source)


def _check_format(data: Mapping[str, Any], where: str) -> None:
    if data.get("format", FORMAT) != FORMAT:
        raise TopologyError(f"{where}: format {data['format']!r}", f"format {FORMAT!r}")


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


def _text(entry: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = entry[key] if default is None else entry.get(key, default)
    if not isinstance(value, str) or not value.isprintable():
        raise TopologyError(f"{where}: {key} {value!r:.80}", f"{key} as a text without line breaks")
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
        name=_text(entry, "name", where),
        type=_text(entry, "type", where).upper(),
        memory_bytes=_quantity(entry, "memory", parse_bytes, where),
        flops={k: _quantity(entry["flops"], k, parse_flops, f"{where}: flops") for k in entry["flops"]},
        memory_bandwidth=_quantity(entry, "memory_bandwidth", parse_bandwidth, where),
        op_overhead_s=_quantity(entry, "op_overhead", parse_seconds, where),
        duplex=_text(entry, "duplex", where, "full"),
        model=_text(entry, "model", where, ""),
        workspace_bytes=_quantity({"workspace": 0} | dict(entry), "workspace", parse_bytes, where),
    )


def _links(entry: Any, names: Sequence[str], where: str) -> list[Link]:
    """The links one entry stands for: `src` and `dst` may be patterns such as "GPU:*"; later entries win."""
    _object(
        entry,
        where,
        {"src", "dst", "bandwidth", "latency"},
        {"port", "shared", "source", *map(field_of, LINK_OVERHEADS)},
    )
    ends = []
    for key in ("src", "dst"):
        found = [n for n in names if fnmatch.fnmatchcase(n, _text(entry, key, where))]
        if not found:
            raise TopologyError(f"{where}: {key} {entry[key]!r}", f"a name or pattern among {', '.join(names)}")
        ends.append(found)
    rates = _rates(entry, where)
    shared = tuple(_list(entry, "shared", where))
    if not all(isinstance(channel, str) for channel in shared):
        raise TopologyError(f"{where}: shared {entry['shared']!r:.80}", "shared as a JSON list of texts")
    return [Link(a, b, shared=shared, **rates) for a in ends[0] for b in ends[1] if a != b]


def _rates(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a link's entry says of it besides its ends."""
    bandwidth = _quantity(entry, "bandwidth", parse_bandwidth, where)
    if not bandwidth > 0:
        raise TopologyError(f"{where}: bandwidth {entry['bandwidth']!r}", "a bandwidth above 0")
    latency = _quantity(entry, "latency", parse_seconds, where)
    overheads = {
        what: _quantity({field_of(what): 0} | dict(entry), field_of(what), parse_seconds, where)
        for what in LINK_OVERHEADS
    }
    return {"bandwidth": bandwidth, "latency_s": latency, "port": _text(entry, "port", where, "main"), **overheads}
