"""`tfplace worker`: one TensorFlow worker in the foreground, for clusters that span machines."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import NoReturn

from tfplace.cli.checks import flag_value
from tfplace.cli.click_options import command
from tfplace.cli.console import complain, say
from tfplace.cli.flags import Flags
from tfplace.engines.cores import own_cores
from tfplace.errors import ClusterError, InputError
from tfplace.option_fields import option
from tfplace.units import parse_bytes

NAME = "tfplace worker"

_TRUST = "It obeys whoever reaches it: use it in trusted networks only."
_RESTARTS = 5
_SOON_S = 5.0


@dataclass(frozen=True, kw_only=True)
class WorkerFlags(Flags):
    """Where the worker listens, and what of this machine it uses."""

    port: int = option(
        0, "Where it listens", unset="a free port, which it prints", kind=int, form="PORT", least=0, most=65535
    )
    host: str = option("127.0.0.1", "Name or address others find it by; a loopback address is deaf to others")
    cores: str = option("", "Cores to pin it to, such as 0 or 2,3", unset="none", form="CORE,CORE")
    memory_limit: str = option("", "Memory it may allocate once started, such as 4GiB", unset="no limit", form="SIZE")
    inter_op: int = option(4, "Threads that run ops side by side", kind=int, form="NUMBER", least=1)
    intra_op: int = option(1, "Threads within an op", kind=int, form="NUMBER", least=1)
    gpus: str = option("", "GPUs it uses, as CUDA_VISIBLE_DEVICES has them", unset="none", form="GPU,GPU")


@command(WorkerFlags, codes=_TRUST)
def worker_command(flags: WorkerFlags) -> None:
    """Runs one TensorFlow worker until it is interrupted.

    Raises:
      InputError: a wrong flag.
      ClusterError: the worker does not start, or ends again and again.
    """
    from tfplace.measurement.backends.processes import WorkerProcesses
    from tfplace.measurement.backends.worker import Settings

    settings = Settings(
        host=flags.host,
        port=flags.port,
        cores=tuple(_cores(flags.cores)),
        memory_limit=_memory_limit(flags.memory_limit) if flags.memory_limit else None,
        inter_op=flags.inter_op,
        intra_op=flags.intra_op,
        gpus=flags.gpus,
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
        raise ClusterError(f"a worker that ended {_RESTARTS} times within {_SOON_S:g} s", "a worker that keeps running")
    except KeyboardInterrupt:
        return
    finally:
        processes.close()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _memory_limit(text: str) -> int:
    limit = flag_value("memory_limit", text, parse_bytes)
    if not limit:
        raise InputError(f"--memory_limit={text}", "more than 0 bytes")
    return limit


def _cores(text: str) -> list[int]:
    try:
        cores = [int(core) for core in text.split(",") if core]
    except ValueError as error:
        raise InputError(f"--cores={text}", "numbers of cores, such as 0 or 2,3") from error
    own = own_cores()
    if not {*cores} <= {*own}:
        raise InputError(f"--cores={text}", f"cores among {', '.join(map(str, own))}")
    return cores
