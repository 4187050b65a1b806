"""`tfplace topologies`, `tfplace placers` and `tfplace models`: what there is to choose from."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from tfplace_zoo import families, zoo

from tfplace.cli.click_options import command
from tfplace.cli.console import show
from tfplace.cli.flags import Flags
from tfplace.errors import InputError, UnknownNameError
from tfplace.formatting import format_bytes


@dataclass(frozen=True, kw_only=True)
class ListFlags(Flags):
    """Lists have none."""


@command(ListFlags)
def topologies_command(flags: ListFlags) -> None:
    """Lists the topologies that come with tfplace."""
    show(_topologies())


@command(ListFlags)
def placers_command(flags: ListFlags) -> None:
    """Lists the placers."""
    show(_placers())


@command(ListFlags, words="[NAME]")
def models_command(flags: ListFlags, names: Sequence[str]) -> None:
    """Lists the models that come with tfplace; `tfplace models NAME` shows one with its parameters.

    Raises:
      InputError: more than one name.
      UnknownNameError: no such model.
    """
    if len(names) > 1:
        raise InputError(f"{' '.join(names)!r} after `tfplace models`", "one name, or none")
    show(_model(names[0]) if names else _models())


def _topologies() -> Table:
    from tfplace.core.topology import Topology

    table = _table("name", "devices", "memory of a GPU", "float32 of a GPU", "between GPUs")
    for name in Topology.presets():
        topology = Topology.preset(name)
        gpus = [d for d in topology.devices if d.type == "GPU"]
        gpu_names = {device.name for device in gpus}
        between = [link.bandwidth / 1e9 for link in topology.links if {link.src, link.dst} <= gpu_names]
        cpus = len(topology.devices) - len(gpus)
        table.add_row(
            name,
            f"{cpus} CPU{'s' if cpus > 1 else ''}, {len(gpus)} GPUs",
            " to ".join(format_bytes(size) for size in _ends(d.memory_bytes for d in gpus)),
            f"{' to '.join(f'{rate:.1f}' for rate in _ends(d.flops['float32'] / 1e12 for d in gpus))} TFLOP/s",
            f"{' to '.join(f'{rate:g}' for rate in _ends(between))} GB/s",
        )
    return table


def _ends(numbers: Iterable[float]) -> list[float]:
    """The least and the largest, once if they are the same."""
    known = sorted(set(numbers))
    return known if len(known) < 2 else [known[0], known[-1]]


def _placers() -> Table:
    from tfplace.registry import PLACERS

    table = _table("name", "what it does")
    for name in PLACERS:
        table.add_row(name, _first_line(PLACERS[name]))
    return table


def _models() -> Table:
    table = _table("name", "what it is", "ops", "groups", "parameters", "memory", "devices", right=range(2, 6))
    facts = zoo.facts()
    for name in zoo.names():
        table.add_row(name, zoo.describe(name), *_sizes(facts.get(name)), _devices(name))
    table.caption = (
        "Of a training step: ops; groups of ops that cannot be split; trained parameters; simulated peak memory with "
        "everything on one GPU. devices: accelerators on which papers place it. `tfplace models NAME` shows what "
        "--param=NAME=VALUE can set.\n"
        f"Families of {families.SIZE} models each: {', '.join(families.names())}, such as "
        "--model=tfplace_zoo.families:member --param=family=ptb --param=index=0."
    )
    table.caption_justify = "left"
    return table


def _model(name: str) -> Table:
    if name not in zoo.names():
        raise UnknownNameError("model", name, zoo.names())
    table = _table(name, zoo.describe(name))
    for what, value in zip(("ops", "groups", "parameters", "memory"), _sizes(zoo.facts().get(name)), strict=True):
        table.add_row(what, value)
    table.add_row("devices", _devices(name))
    for parameter, value in zoo.parameters(name).items():
        table.add_row(f"--param={parameter}=", str(value))
    return table


def _sizes(facts: Mapping[str, Any] | None) -> list[str]:
    """Ops, groups, parameters and memory as text; empty for a model that was not built since it was added."""
    if facts is None:
        return ["", "", "", ""]
    numbers = [f"{facts[what]:,}" for what in ("ops", "groups")]
    return [*numbers, f"{facts['parameters'] / 1e6:,.1f} M", format_bytes(facts["memory_bytes"])]


def _devices(name: str) -> str:
    return ", ".join(map(str, zoo.ENTRIES[name].devices))


def _table(*headings: str, right: Collection[int] = ()) -> Table:
    """An empty table; `right` are the columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i in right else "left")
    return table


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]
