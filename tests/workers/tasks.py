"""What workers are told to do in tests: functions of a module, which can be sent to them."""

from __future__ import annotations

import os
import sys
import time

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
