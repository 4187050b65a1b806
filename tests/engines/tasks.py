"""What workers are told to do in tests: functions of a module, which can be sent to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from tfplace import version
from tfplace.errors import InputError


def refuse(own, what):
    raise InputError(what, "something else")


def processors(own):
    time.sleep(0.1)
    return tuple(sorted(os.sched_getaffinity(0)))


def pid(own):
    return os.getpid()


def nap(own, seconds):
    time.sleep(seconds)
    return os.getpid()


def slowly_the_first_time(own, path):
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(str(os.getpid()))
        part.rename(path)
        time.sleep(60)
    return "done"


def die(own):
    sys.stderr.write("these are my last words\n")
    sys.stderr.flush()
    os._exit(3)


def raise_unsendable(own):
    class UnsendableError(Exception):
        pass

    raise UnsendableError("as it is")


def raise_with_a_lock(own):
    error = InputError("a thing", "another")
    error.lock = threading.Lock()  # which cannot be sent
    raise error


def start_another_and_wait(own, path):
    if path.exists():
        return "done"
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], close_fds=False)
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    return slowly_the_first_time(own, path)


def made_in(path):
    """Makes a thing, and leaves a file of the process that did."""
    (path / str(os.getpid())).touch()
    return os.getpid()


def own_pid(own):
    time.sleep(0.02)
    assert own == os.getpid()
    return own


def kill_the_dask_worker(own):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def environment(own, *names):
    return tuple(os.environ.get(name) for name in names)


def pretend_version(known):
    version.VERSION = known
