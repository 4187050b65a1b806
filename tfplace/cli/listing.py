"""`tfplace topologies`, `tfplace placers` and `tfplace models`: what there is to choose from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tfplace.cli.console import say
from tfplace.errors import InputError
from tfplace.units import format_bytes


def show(what: str, argv: Sequence[str]) -> None:
    """Prints one of the lists.

    Raises:
      InputError: arguments were given.
    """
    if list(argv) in (["--help"], ["-h"]):
        say(f"tfplace {what} lists the {what}; it takes no flags.\n")
        return
    if argv:
        raise InputError(f"{' '.join(argv)!r} after `tfplace {what}`", "no flags")
    Console().print(_TABLES[what]())


def _topologies() -> Table:
    from tfplace.core.topology import Topology

    table = _table("name", "devices", "memory of a GPU", "float32 of a GPU", "between GPUs")
    for name in Topology.presets():
        topology = Topology.preset(name)
        gpus = [d for d in topology.devices if d.type == "GPU"]
        rates = [link.bandwidth for link in topology.links if {link.src[:3], link.dst[:3]} == {"GPU"}]
        low, high = min(rates) / 1e9, max(rates) / 1e9
        table.add_row(
            name,
            f"1 CPU, {len(gpus)} GPUs",
            format_bytes(gpus[0].memory_bytes),
            f"{gpus[0].flops['float32'] / 1e12:.1f} TFLOP/s",
            f"{low:g} GB/s" if low == high else f"{low:g} to {high:g} GB/s",
        )
    return table


def _placers() -> Table:
    from tfplace.registry import PLACERS

    table = _table("name", "what it does")
    for name in PLACERS:
        table.add_row(name, _first_line(PLACERS[name]))
    return table


def _models() -> Table:
    from models import zoo

    table = _table("name", "what it is", "parameters (--param=NAME=VALUE)")
    for name in zoo.names():
        parameters = ", ".join(f"{k}={v}" for k, v in zoo.parameters(name).items())
        table.add_row(name, zoo.describe(name), parameters)
    return table


_TABLES: dict[str, Callable[[], Table]] = {"models": _models, "placers": _placers, "topologies": _topologies}


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading)
    return table


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]
