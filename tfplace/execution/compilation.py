"""Whether a placed step is compiled, and what to do where XLA refuses."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

import tensorflow as tf

from tfplace.core.compilation import AUTO, COMPILATIONS, NONE, XLA, wants_xla
from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError, InputError
from tfplace.execution.cluster_calls import CallGraph
from tfplace.execution.devices import short

_OF_XLA = re.compile(
    r"tf2xla conversion|XLA compilation|unsupported operations when trying to compile|must be a compile-time constant"
)
_NODE = re.compile(r"(?:node:? ?[`{'\"]*|node )(n\d+)\b")


class CompilationError(Exception):
    """XLA has refused a cluster; nothing of the step counts.

    Attributes:
      ops: those that it names; none where it names none.
      reason: its words, one line.
    """

    def __init__(self, ops: frozenset[str], reason: str) -> None:
        super().__init__(reason)
        self.ops = ops
        self.reason = reason


def is_compiled(graph: OpGraph, wanted: str, devices: Iterable[str], found: str = AUTO) -> bool:
    """Whether a step is to be compiled.

    Args:
      graph: the step.
      wanted: "none", "xla", or "auto": as its placement says, or else as the program itself asks with jit_compile.
      devices: full TensorFlow devices that it uses.
      found: what its placement says; see `Placement.compile`.

    Raises:
      InputError: none of these.
      ApplyError: "xla" on a machine or a device that has no XLA.
    """
    if wanted not in COMPILATIONS:
        raise InputError(f"compile={wanted!r}", f"one of {', '.join(COMPILATIONS)}")
    missing = _without_xla(devices)
    if wanted == XLA and missing:
        raise ApplyError(
            f"compile={XLA!r} on {', '.join(missing)}, for which this TensorFlow has no XLA",
            "CPUs and GPUs of a TensorFlow that is built with XLA",
            f"Run op by op: compile={NONE!r}.",
        )
    asked = wants_xla(found if wanted == AUTO else wanted, graph)
    if asked and missing:
        warnings.warn(
            f"{graph.name} runs op by op instead of compiled: this TensorFlow has no XLA for {', '.join(missing)}.",
            stacklevel=5,
        )
    return asked and not missing


def can_compile(devices: Iterable[str]) -> bool:
    """Whether this TensorFlow has XLA for all of some devices, given as full TensorFlow names."""
    return not _without_xla(devices)


def _without_xla(devices: Iterable[str]) -> list[str]:
    built = tf.test.is_built_with_xla()
    return [short(d) for d in devices if not built or tf.DeviceSpec.from_string(d).device_type not in ("CPU", "GPU")]


def refusal_of(error: tf.errors.OpError, called: CallGraph) -> CompilationError | None:
    """What XLA has refused, if it was that which failed.

    Args:
      error: of a step's first run.
      called: the graph that was run.
    """
    message = str(error.message)
    if not _OF_XLA.search(message):
        return None
    named = {*_NODE.findall(message)}
    functions = [numbered for name, numbered in called.numbered.items() if name in message]
    ops = frozenset(op for numbered in functions for number, ops in numbered.items() if number in named for op in ops)
    lines = [line.strip() for line in message.splitlines() if line.strip() and "stack traces" not in line]
    return CompilationError(ops, " ".join(lines[:2])[:300] if lines else type(error).__name__)
