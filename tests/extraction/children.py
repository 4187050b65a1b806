"""What a process that reads files does in tests: functions of a module."""

from __future__ import annotations

import os
import pickle
import signal
import sys


def crash(pipe):
    pipe.send(b"")
    pipe.receive()
    sys.stderr.write("F0000 so it is\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGABRT)


def stumble(pipe):
    pipe.send(b"")
    pipe.receive()
    pipe.send(pickle.dumps("KeyError: a mistake of ours"))


def not_start(pipe):
    raise ImportError("no such library")
