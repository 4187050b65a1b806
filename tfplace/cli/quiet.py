"""TensorFlow without its start-up noise."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import import_module
from typing import Any


def load_tensorflow(*, gpus: bool) -> None:
    """Imports TensorFlow, its C++ messages silenced unless the user set TF_CPP_MIN_LOG_LEVEL.

    Without GPUs each op has one thread: sums that are shared among threads come out otherwise on another number of
    cores.

    Some messages are written before TensorFlow reads that variable, so stderr itself is put aside during the import and
    given back, with what was written to it, if the import fails.

    Args:
      gpus: whether GPUs are wanted; planning for a machine that is not this one needs none.
    """
    if gpus:
        # else TensorFlow takes all of their memory at once, and other processes on them fail
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    else:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    if "tensorflow" in sys.modules:
        return
    tensorflow = _imported()
    if not gpus:
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)


def _imported() -> Any:
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return import_module("tensorflow")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            return import_module("tensorflow")
        except Exception:
            aside.seek(0)
            os.write(stderr, aside.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
