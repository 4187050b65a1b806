"""TensorFlow's errors as typed failures of a placement."""

from __future__ import annotations

import re

import tensorflow as tf

from tfplace.core.stepcost import Failure, FailureKind

_KINDS: dict[type[Exception], FailureKind] = {
    MemoryError: FailureKind.OUT_OF_MEMORY,
    tf.errors.ResourceExhaustedError: FailureKind.OUT_OF_MEMORY,
    tf.errors.DeadlineExceededError: FailureKind.TIME_OUT,
    tf.errors.UnavailableError: FailureKind.WORKER_LOST,
    tf.errors.AbortedError: FailureKind.WORKER_LOST,  # a worker that restarted does not know the session any more
    tf.errors.OpError: FailureKind.ERROR,
}
_NO_KERNEL = re.compile(
    r"No OpKernel|No registered '\w+' OpKernel|[Cc]annot assign a device|[Cc]ould not satisfy explicit device"
    r"|no supported kernel"
)
# What the server logged lately, about other steps too.
_LOGS = re.compile(r"Recent warning and error logs:.*?(?=\n[A-Z_]+: From |\n=+|\Z)", re.DOTALL)
# Where the graph was built, which here is where it was imported; it may come several times, for several errors in one.
_TRACE = re.compile(r"^(Graph execution error:|Detected at node .*|    File .*|Node: .*|=+)$")
_STATUS = re.compile(r"^[A-Z_]+: (?=From )")
_REPORTED_BY = re.compile(r"^From /job:\w+/replica:\d+/task:\d+:$")
_DEVICE = re.compile(r"/job:\w+/replica:\d+/task:\d+/device:\w+:\d+")
_TASK = re.compile(r"(?:remote target|From) (/job:(?!chief)\w+/replica:\d+/task:\d+)")
_TYPE = re.compile(r"for '(\w+)' devices")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_LONGEST = 300


def failure_of(error: Exception) -> Failure | None:
    """What an exception of a session means for the placement; None if it is no error of TensorFlow's or of memory."""
    kind = next((kind for known, kind in _KINDS.items() if isinstance(error, known)), None)
    if kind is None:
        return None
    said = _LOGS.sub("", str(getattr(error, "message", error)))
    if kind is FailureKind.ERROR and _NO_KERNEL.search(said):
        kind = FailureKind.NO_KERNEL
    return Failure(kind, _one_line(said) or type(error).__name__, _device(said))


def _one_line(said: str) -> str:
    """The first line that says what happened, and at which op."""
    lines = (_STATUS.sub("", line.rstrip()) for line in said.splitlines())
    telling = [line for line in lines if line.strip() and not (_TRACE.match(line) or _REPORTED_BY.match(line))]
    first = " ".join(telling[0].split())[:_LONGEST] if telling else ""
    node = _NODE.search(said)
    return f"{first} (op {node[1]})" if node and node[1] not in first else first


def _device(said: str) -> str:
    """The device named, or else the task that a call failed to, or that reported the error."""
    said_before_list = said.partition("but available devices are")[0]
    if device := _DEVICE.search(said_before_list):
        return device[0]
    tasks = sorted(_TASK.finditer(said), key=lambda match: match[0].startswith("From"))
    if not tasks:
        return ""
    kind = _TYPE.search(said)
    return f"{tasks[0][1]}/device:{kind[1] if kind else 'CPU'}:0"
