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
    tf.errors.OpError: FailureKind.ERROR,
}
_NO_KERNEL = re.compile(
    r"No OpKernel|[Cc]annot assign a device|[Cc]ould not satisfy explicit device|no supported kernel"
)
_LONGEST = 500


def failure_of(error: Exception) -> Failure | None:
    """What an exception of a session means for the placement; None if it is no error of TensorFlow's or of memory."""
    kind = next((kind for known, kind in _KINDS.items() if isinstance(error, known)), None)
    if kind is None:
        return None
    message = " ".join(str(getattr(error, "message", error)).split())[:_LONGEST]
    if kind is FailureKind.ERROR and _NO_KERNEL.search(message):
        kind = FailureKind.NO_KERNEL
    device = re.search(r"/job:\w+/replica:\d+/task:\d+/device:\w+:\d+", message)
    return Failure(kind, message or type(error).__name__, device[0] if device else "")
