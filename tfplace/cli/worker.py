"""`tfplace worker`: one TensorFlow worker in the foreground, for clusters that span machines."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import NoReturn

from absl import flags

from tfplace.cli.console import complain, say
from tfplace.cli.flagset import asks_for_help, describe_flags, flag_value, read_only_flags
from tfplace.engines.cores import own_cores
from tfplace.errors import ClusterError, InputError
from tfplace.units import parse_bytes

NAME = "tfplace worker"

_TRUST = "It obeys whoever reaches it: use it in trusted networks only."
_RESTARTS = 5
_SOON_S = 5.0


def worker_command(argv: Sequence[str]) -> None:
    """Runs `tfplace worker` with these flags, until a signal ends it.

    Raises:
      InputError: a wrong flag.
      ClusterError: the worker does not start, or ends again and again.
    """
    if asks_for_help(argv):
        say(describe_flags(f"{NAME}: runs one TensorFlow worker until it is interrupted.", _flags(), _TRUST))
        return
    fv = _flags()
    read_only_flags(NAME, fv, argv)
    from tfplace.measurement.backends.processes import WorkerProcesses
    from tfplace.measurement.backends.worker import Settings

    settings = Settings(
        host=fv.host,
        port=fv.port,
        cores=tuple(_cores(fv.cores)),
        memory_limit=flag_value("memory_limit", fv.memory_limit, parse_bytes) if fv.memory_limit else None,
        inter_op=fv.inter_op,
        intra_op=fv.intra_op,
        gpus=fv.gpus,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    processes = WorkerProcesses()
    try:
        worker = processes.launch([settings])[0]
        say(f"tfplace worker at {worker.address}\n")
        quick_ends = 0
        while quick_ends < _RESTARTS:
            start = time.monotonic()
            status = processes.wait(worker.pid)
            complain(f"the worker ended with exit status {status}; starting it again")
            quick_ends = quick_ends + 1 if time.monotonic() - start < _SOON_S else 0
            worker = worker.respawn(processes)
        raise ClusterError(f"a worker that ended {_RESTARTS} times within {_SOON_S:g} s", "one that stays")
    except KeyboardInterrupt:
        return
    finally:
        processes.close()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _flags() -> flags.FlagValues:
    fv = flags.FlagValues()
    number, text = flags.DEFINE_integer, flags.DEFINE_string
    number("port", 0, "Where it listens; by default a free port, which it prints.", 0, 65535, flag_values=fv)
    text(
        "host", "127.0.0.1", "Name or address others find it by; a loopback address is deaf to others.", flag_values=fv
    )
    text("cores", "", "Cores to pin it to, such as 0 or 2,3; by default none.", flag_values=fv)
    text("memory_limit", "", "Memory it may allocate once started, such as 4GiB.", flag_values=fv)
    number("inter_op", 4, "Threads that run ops side by side.", lower_bound=1, flag_values=fv)
    number("intra_op", 1, "Threads within an op.", lower_bound=1, flag_values=fv)
    text("gpus", "", "GPUs it uses, as CUDA_VISIBLE_DEVICES has them; by default none.", flag_values=fv)
    return fv


def _cores(text: str) -> list[int]:
    try:
        cores = [int(core) for core in text.split(",") if core]
    except ValueError as error:
        raise InputError(f"--cores={text}", "numbers of cores, such as 0 or 2,3") from error
    own = own_cores()
    if not {*cores} <= {*own}:
        raise InputError(f"--cores={text}", f"some of the cores {', '.join(map(str, own))}, which there are")
    return cores
