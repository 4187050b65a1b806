"""What child processes do in tests: functions of a module."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def echo(pipe):
    sys.stdout.write("this is no message\n")
    sys.stdout.flush()
    while True:
        try:
            pipe.send(pipe.receive())
        except EOFError:
            return


def found(pipe):
    pipe.receive()
    pipe.send(f"{os.environ['SAID']} {str(Path.cwd()) in sys.path}".encode())


def fail(pipe):
    pipe.receive()
    sys.stderr.write("a warning\n")
    raise ValueError("so it is")


def deaf(pipe):
    """Neither reads nor ends by itself."""
    time.sleep(600)


def tell_and_stay(pipe):
    """Tells its number, and holds on when its pipe is closed."""
    pipe.send(str(os.getpid()).encode())
    time.sleep(600)
