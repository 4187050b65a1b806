"""`tfplace calibrate`: measures devices and links, and writes them as a topology."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from absl import flags
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from tfplace.cli.console import say, show
from tfplace.cli.flagset import (
    asks_for_help,
    check_addresses,
    describe_flags,
    flag_value,
    output_file,
    read_only_flags,
)
from tfplace.cli.quiet import load_tensorflow
from tfplace.cost.calibrate import MAX_BANDWIDTH
from tfplace.errors import InputError
from tfplace.files import writing
from tfplace.formatting import format_bytes, format_seconds
from tfplace.report.progress import Stages
from tfplace.units import parse_bytes

if TYPE_CHECKING:
    from tfplace.core.topology import Topology
    from tfplace.cost.calibrate import LinkFit
    from tfplace.measurement.backends.backend import Backend
    from tfplace.measurement.calibration.calibrate import Calibration

NAME = "tfplace calibrate"

_LARGEST = 2**26
"""Bytes of the largest transfer that is measured."""


def calibrate_flags() -> flags.FlagValues:
    """A fresh set of flags, apart from absl's global ones."""
    fv = flags.FlagValues()
    text, switch = flags.DEFINE_string, flags.DEFINE_bool
    text("output", None, "The topology file to write.", flag_values=fv)
    flags.DEFINE_integer("workers", 2, "Workers to start on this machine, each on a core.", 1, flag_values=fv)
    text("cluster", None, "host:port,host:port of workers to use instead.", flag_values=fv)
    switch("local", False, "Measure the devices of one process, such as its GPUs, instead.", flag_values=fv)
    text("device_model", None, "What to call the devices' product; by default what the system says.", flag_values=fv)
    text("max_size", "64MiB", "The largest transfer; the smallest is 1 KiB, each four times the last.", flag_values=fv)
    flags.DEFINE_integer("side", 448, "Of the matrices multiplied between transfers.", 64, flag_values=fv)
    switch("within_one_way", False, "Shorten the ends' core time to what one transfer takes.", flag_values=fv)
    switch("quiet", False, "No progress on stderr.", flag_values=fv)
    return fv


def calibrate_command(argv: Sequence[str]) -> None:
    """Runs `tfplace calibrate` with these flags.

    Raises:
      InputError: see the exit codes in docs/cli.md.
    """
    if asks_for_help(argv):
        say(describe_flags(f"{NAME}: measures devices and the links between them.", calibrate_flags()))
        return
    fv = calibrate_flags()
    read_only_flags(NAME, fv, argv)
    output = output_file(fv, "topology.json", "The file is what --topology reads.")
    _check_one_way(fv)
    check_addresses("cluster", fv.cluster.split(",") if fv.cluster else ())
    largest = flag_value("max_size", fv.max_size, parse_bytes)
    if not 4096 <= largest <= _LARGEST:
        raise InputError(
            f"--max_size={fv.max_size}", f"at least 4 KiB, for two sizes, and at most {format_bytes(_LARGEST)}"
        )
    with Stages(fv.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        found = _measure(fv, stages, largest)
    tables: list[RenderableType] = [_devices(found.topology), *map(_transfers, found.fits)]
    tables += [_links(found.topology)] if found.fits else []
    try:
        with writing(output):
            found.topology.save(output)
    finally:
        show(Group(*tables))
    say(f"topology   {fv.output}\n")


def _check_one_way(fv: flags.FlagValues) -> None:
    """Refuses flags of which one would have no effect."""
    given = [f"--workers={fv.workers}"] if fv["workers"].present else []
    given += [f"--cluster={fv.cluster}"] if fv.cluster else []
    given += ["--local"] if fv.local else []
    if len(given) > 1:
        raise InputError(" and ".join(given), "one of the two")


def _measure(fv: flags.FlagValues, stages: Stages, largest: int) -> Calibration:
    stages.stage("starting")
    load_tensorflow(gpus=fv.local)
    from tfplace.measurement.calibration.calibrate import calibrate
    from tfplace.measurement.calibration.transfers import SIZES

    backend = _backend(fv)
    try:
        return calibrate(
            backend,
            sizes=[size for size in SIZES if size <= largest],
            side=fv.side,
            within_one_way=fv.within_one_way,
            model=fv.device_model,
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


def _backend(fv: flags.FlagValues) -> Backend:
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.backends.local import LocalDevices

    if fv.cluster:
        return Cluster.connect(fv.cluster.split(","))
    return LocalDevices() if fv.local else Cluster.start(fv.workers)


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
