"""Who used the processor."""

import os
import subprocess
import sys
import time

import pytest

from tfplace.measurement.protocol.counters import process_seconds
from tfplace.measurement.protocol.interference import ProcessorWatch

SPIN = "print(flush=True)\nwhile True: pass"
TICK_S = 0.01


def _spin_here(seconds):
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        pass


def _let_work(process, seconds):
    """Until a process has had the processor for so long, however many others want it."""
    until = process_seconds(process.pid) + seconds
    while process_seconds(process.pid) < until:
        time.sleep(0.01)


@pytest.fixture
def spinner():
    """A process that keeps the first of our cores busy."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}])\n{SPIN}"], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    yield process, core
    process.kill()
    process.communicate()


@pytest.fixture
def one_core():
    """This process confined to one core."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(own)])
    yield min(own)
    os.sched_setaffinity(0, own)


def _stat(tmp_path, rows, tail="intr 1 2 3\n"):
    lines = ["cpu  " + " ".join(str(sum(c)) for c in zip(*rows, strict=True))]
    lines += [f"cpu{i} " + " ".join(map(str, row)) for i, row in enumerate(rows)]
    (tmp_path / "stat").write_text("\n".join(lines) + "\n" + tail)


def test_sees_another_process_on_a_core_of_ours(spinner):
    process, core = spinner
    watch = ProcessorWatch(cores=[core])
    before = watch.read()
    _let_work(process, 0.3)
    seen = watch.since(before)
    assert seen.foreign_s > 0.1
    assert seen.own_s < 0.1
    assert seen.share > 0.3


def test_what_is_ours_is_not_foreign(spinner):
    process, core = spinner
    ours, theirs = ProcessorWatch(pids=[process.pid], cores=[core]), ProcessorWatch(cores=[core])
    first, second = ours.read(), theirs.read()
    _let_work(process, 0.3)
    mine, others = ours.since(first), theirs.since(second)
    assert mine.own_s - others.own_s > 0.1
    assert others.foreign_s - mine.foreign_s > 0.1


def test_our_own_work_is_not_foreign(one_core):
    watch = ProcessorWatch(cores=[one_core])
    before = watch.read()
    _spin_here(0.3)
    seen = watch.since(before)
    # whatever else runs: a core is used once
    assert seen.own_s > 0.01
    assert seen.own_s + seen.foreign_s < seen.wall_s + 0.03


def test_a_call_tells_of_the_time_since_the_last(tmp_path):
    _stat(tmp_path, [[0, 0, 0, 100, 0, 0, 0, 0, 0, 0]])
    watch = ProcessorWatch(cores=[0], proc=tmp_path, cgroup=tmp_path)
    _stat(tmp_path, [[500, 0, 0, 100, 0, 0, 0, 0, 0, 0]])
    assert watch() > 1
    assert watch() == 0


def test_ticks_that_do_not_exceed_their_own_coarseness_do_not_count(tmp_path):
    _stat(tmp_path, [[0] * 10, [0] * 10])
    watch = ProcessorWatch(cores=[0, 1], proc=tmp_path, cgroup=tmp_path)
    before = watch.read()
    _stat(tmp_path, [[2, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]])
    assert watch.since(before).foreign_s == 0
    _stat(tmp_path, [[2, 1, 1, 0, 0, 1, 1, 0, 0, 0], [30, 0, 0, 0, 0, 0, 0, 0, 0, 0]])
    assert watch.since(before).foreign_s == pytest.approx((36 - 4) * TICK_S, abs=0.02)


def test_idle_waiting_and_other_cores_are_no_use_of_ours(tmp_path):
    _stat(tmp_path, [[0] * 10, [0] * 10])
    watch = ProcessorWatch(cores=[1], proc=tmp_path, cgroup=tmp_path)
    before = watch.read()
    _stat(tmp_path, [[900, 9, 9, 0, 0, 0, 0, 9, 0, 0], [0, 0, 0, 500, 500, 0, 0, 0, 0, 0]])
    assert watch.since(before).share == 0


def test_stolen_time_counts(tmp_path):
    _stat(tmp_path, [[0] * 10])
    watch = ProcessorWatch(cores=[0], proc=tmp_path, cgroup=tmp_path)
    before = watch.read()
    _stat(tmp_path, [[0, 0, 0, 0, 0, 0, 0, 7, 0, 0]])
    seen = watch.since(before)
    assert seen.stolen_s == pytest.approx(7 * TICK_S) and seen.foreign_s == 0
    assert seen.share > 0


def test_accounting_to_the_nanosecond_where_there_is_one(tmp_path):
    (tmp_path / "cpuacct").mkdir()
    usage = tmp_path / "cpuacct" / "cpuacct.usage_percpu"
    usage.write_text("5 7 \n")
    watch = ProcessorWatch(cores=[1], proc=tmp_path / "none", cgroup=tmp_path)
    assert watch.source == "cpuacct to the nanosecond"
    before = watch.read()
    usage.write_text(f"{10**12} {7 + 3 * 10**9} \n")
    assert watch.since(before).foreign_s == pytest.approx(3, abs=0.05)


def _listed(tmp_path, pid, core):
    """A process under a made-up /proc."""
    thread = tmp_path / str(pid) / "task" / str(pid)
    thread.mkdir(parents=True)
    (thread / "stat").write_text(f"{pid} (a ) name) R {' '.join(['0'] * 35)} {core} 0 0\n")


@pytest.mark.parametrize("last_core", [3, 4])
def test_other_processes_clocks_where_there_is_no_accounting(spinner, tmp_path, last_core):
    process, _ = spinner
    _listed(tmp_path, process.pid, last_core)
    watch = ProcessorWatch(cores=[3], proc=tmp_path, cgroup=tmp_path)
    assert watch.source == "other processes' clocks"
    before = watch.read()
    _let_work(process, 0.3)
    assert (watch.since(before).foreign_s > 0.05) == (last_core == 3)


def test_our_own_processes_clocks_are_not_others(spinner, tmp_path):
    process, _ = spinner
    _listed(tmp_path, process.pid, 0)
    watch = ProcessorWatch(pids=[process.pid], cores=[0], proc=tmp_path, cgroup=tmp_path)
    before = watch.read()
    _let_work(process, 0.2)
    seen = watch.since(before)
    assert seen.foreign_s == 0 and seen.own_s > 0.05


def test_a_system_that_does_not_tell(tmp_path):
    nowhere = tmp_path / "none"
    watch = ProcessorWatch(pids=[2**22 + 1], proc=nowhere, cgroup=nowhere)
    assert "does not tell" in watch.source
    assert watch() == 0
