"""What engines cost: seconds to start, tasks a second, and bytes that are sent, once and for each task.

python -m research.benchmarks.engines                     # a minute; rewrites research/data/engines.json

On this machine, with as many workers as cores: our own processes, and a Dask cluster on loopback. The thing that each
worker makes is a problem of so many megabytes; a task is one placement of it that is not evaluated. Bytes are those
that the client and the scheduler write to their connections, or that go through the pipes of processes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import wait

import numpy as np

from research.benchmarks.common import run

OPS, TASKS, ROUNDS = 20_000, 200, 3

_HERE = "research.benchmarks.engines"  # and not __main__, whose functions workers do not find


def measure(_graphs):
    from tfplace.engines.choose import chosen_engine
    from tfplace.engines.cores import own_cores
    from tfplace.engines.messages import packed
    from tfplace.testing import random_problem

    named = importlib.import_module(_HERE)
    problem = random_problem(np.random.default_rng(0), OPS, 4)
    make = functools.partial(named.same, problem)
    count = len(own_cores())
    found = {
        "processors": count,
        "load": os.getloadavg()[0],
        "problem_bytes": len(packed(make)),
        "ops": OPS,
        "engines": {},
    }
    for text in (f"processes:{count}", "dask"):
        rows = [_once(chosen_engine(text), make, problem, named) for _ in range(ROUNDS)]
        found["engines"][text] = {key: [row[key] for row in rows] for key in rows[0]}
    return found


def _once(engine, make, problem, named):
    devices = problem.allowed.argmax(axis=1).astype(np.int32)
    begin = time.perf_counter()
    with _counted() as sent, contextlib.closing(engine.start(make)) as workers:
        wait([workers.submit(named.nap, 0.5) for _ in range(workers.count)])  # one for each: all have made theirs
        start_s, start_bytes = time.perf_counter() - begin - 0.5, sent()
        begin = time.perf_counter()
        for future in [workers.submit(named.whole, devices) for _ in range(TASKS)]:
            assert future.result() == len(devices)
        tasks_s, tasks_bytes = time.perf_counter() - begin, sent() - start_bytes
    return {
        "start_s": round(start_s, 2),
        "start_bytes": start_bytes,
        "tasks_per_second": round(TASKS / tasks_s, 1),
        "bytes_per_task": round(tasks_bytes / TASKS),
    }


@contextlib.contextmanager
def _counted() -> Iterator:
    """How many bytes this process has written to connections of Dask and pipes of processes since."""
    from distributed.comm.tcp import TCP

    from tfplace.engines.child_process import MessagePipe

    count = 0
    write, send = TCP.write, MessagePipe.send

    async def written(self, *message, **more):
        nonlocal count
        size = await write(self, *message, **more)
        count += size
        return size

    def piped(self, message):
        nonlocal count
        send(self, message)
        count += len(message)

    TCP.write, MessagePipe.send = written, piped
    try:
        yield lambda: count
    finally:
        TCP.write, MessagePipe.send = write, send


def same(problem):
    return problem


def nap(problem, seconds):
    time.sleep(seconds)


def whole(problem, devices):
    return len(problem.check(devices))


def text(found):
    """A table."""
    rows = [f"{'engine':<14} start  tasks/s  MB to start  KB a task   ({found['problem_bytes'] / 1e6:.1f} MB problem)"]
    for name, row in found["engines"].items():
        start_s, rate, once, each = (
            statistics.median(row[key]) for key in ("start_s", "tasks_per_second", "start_bytes", "bytes_per_task")
        )
        rows.append(f"{name:<14} {start_s:4.1f} s  {rate:7.0f}  {once / 1e6:11.1f}  {each / 1e3:9.1f}")
    return "\n".join(rows)


if __name__ == "__main__":
    run("engines", measure, text)
