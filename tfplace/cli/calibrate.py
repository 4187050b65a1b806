"""`tfplace calibrate`: measures devices and links, and writes them as a topology."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from tfplace.cli.checks import check_addresses, flag_value, output_file
from tfplace.cli.click_options import command
from tfplace.cli.console import say, show
from tfplace.cli.flags import Flags
from tfplace.cli.quiet import load_tensorflow
from tfplace.cost.calibrate import MAX_BANDWIDTH
from tfplace.errors import InputError
from tfplace.files import writing
from tfplace.formatting import format_bytes, format_seconds
from tfplace.option_fields import option
from tfplace.report.progress import Stages
from tfplace.units import parse_bytes

if TYPE_CHECKING:
    from tfplace.core.topology import Topology
    from tfplace.cost.calibrate import LinkFit
    from tfplace.measurement.backends.backend import Backend
    from tfplace.measurement.calibration.calibrate import Calibration

NAME = "tfplace calibrate"

_WORKERS = 2
_LARGEST = 2**26
"""Bytes of the largest transfer that is measured."""


@dataclass(frozen=True, kw_only=True)
class CalibrateFlags(Flags):
    """Which devices are measured, how, and where it goes."""

    output: str | None = option(None, "The topology file to write", form="FILE")
    workers: int | None = option(
        None, "Workers to start on this machine, each on a core", unset=str(_WORKERS), kind=int, form="NUMBER", least=1
    )
    cluster: tuple[str, ...] = option((), "Workers to use instead", kind=tuple, form="HOST:PORT,HOST:PORT")
    local: bool = option(False, "Measure the devices of one process, such as its GPUs, instead", kind=bool)
    device_model: str | None = option(
        None, "What to call the devices' product", unset="what the system says", form="NAME"
    )
    max_size: str = option(
        "64MiB", "The largest transfer; the smallest is 1 KiB, each four times the last", form="SIZE"
    )
    side: int = option(448, "Side of the matrices multiplied between transfers", kind=int, form="NUMBER", least=64)
    within_one_way: bool = option(False, "Shorten the ends' core time to what one transfer takes", kind=bool)
    quiet: bool = option(False, "No progress on stderr", kind=bool)


@command(CalibrateFlags)
def calibrate_command(flags: CalibrateFlags) -> None:
    """Measures devices and the links between them, and writes them as a topology.

    Raises:
      InputError: see the exit codes in docs/reference/cli.md.
    """
    output = output_file(flags.output, "topology.json", "The file is what --topology reads.")
    _check_one_way(flags)
    check_addresses("cluster", flags.cluster)
    largest = flag_value("max_size", flags.max_size, parse_bytes)
    if not 4096 <= largest <= _LARGEST:
        raise InputError(
            f"--max_size={flags.max_size}", f"at least 4 KiB, for two sizes, and at most {format_bytes(_LARGEST)}"
        )
    with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        found = _measure(flags, stages, largest)
    tables: list[RenderableType] = [_devices(found.topology), *map(_transfers, found.fits)]
    tables += [_links(found.topology)] if found.fits else []
    try:
        with writing(output):
            found.topology.save(output)
    finally:
        show(Group(*tables))
    say(f"topology   {flags.output}\n")


def _check_one_way(flags: CalibrateFlags) -> None:
    """Refuses flags of which one would have no effect."""
    given = [] if flags.workers is None else [flags.spelled("workers")]
    given += [flags.spelled("cluster")] if flags.cluster else []
    given += ["--local"] if flags.local else []
    if len(given) > 1:
        raise InputError(" and ".join(given), "one of the two")


def _measure(flags: CalibrateFlags, stages: Stages, largest: int) -> Calibration:
    stages.stage("starting")
    load_tensorflow(gpus=flags.local)
    from tfplace.measurement.calibration.calibrate import calibrate
    from tfplace.measurement.calibration.transfers import SIZES

    backend = _backend(flags)
    try:
        return calibrate(
            backend,
            sizes=[size for size in SIZES if size <= largest],
            side=flags.side,
            within_one_way=flags.within_one_way,
            model=flags.device_model,
            progress=_teller(stages),
        )
    finally:
        backend.close()


def _teller(stages: Stages) -> Callable[[str, float], None]:
    """Makes a stage of each new text."""
    last = ""

    def tell(text: str, fraction: float) -> None:
        nonlocal last
        if text != last:
            last = text
            stages.stage(f"{text} ({fraction:.0%} done)")

    return tell


def _backend(flags: CalibrateFlags) -> Backend:
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.backends.local import LocalDevices

    if flags.cluster:
        return Cluster.connect(flags.cluster)
    return LocalDevices() if flags.local else Cluster.start(flags.workers or _WORKERS)


def _devices(topology: Topology) -> Table:
    headings = ("device", "float32", "float64", "memory bandwidth", "op overhead", "memory", "workspace")
    table = _table(", ".join(dict.fromkeys(d.model for d in topology.devices)), *headings)
    for d in topology.devices:
        rates = [f"{d.flops[dtype] / 1e9:.0f} GFLOP/s" for dtype in ("float32", "float64")]
        memory = map(format_bytes, (d.memory_bytes, d.workspace_bytes))
        table.add_row(d.name, *rates, f"{d.memory_bandwidth / 1e9:.1f} GB/s", format_seconds(d.op_overhead_s), *memory)
    return table


def _transfers(fit: LinkFit) -> Table:
    from tfplace.measurement.calibration.calibrate import describe_fit

    heading = f"{fit.link.src} -> {fit.link.dst}"
    table = _table(heading, "size", "one way", "fitted", "residual", "sender's core", "receiver's core", "model in all")
    for row in describe_fit(fit):
        table.add_row(*row)
    return table


def _links(topology: Topology) -> Table:
    table = _table("Links", "link", "wire's latency", "wire's limit", "sending", "receiving")
    for link in topology.links:
        table.add_row(
            f"{link.src} -> {link.dst}",
            format_seconds(link.latency_s),
            f"{link.bandwidth / 1e9:.3g} GB/s" if link.bandwidth < MAX_BANDWIDTH else "none",
            f"{format_seconds(link.send_overhead_s)} + {link.send_overhead_s_per_byte * 1e9:.2f} ns/B",
            f"{format_seconds(link.receive_overhead_s)} + {link.receive_overhead_s_per_byte * 1e9:.2f} ns/B",
        )
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left")
    return table
