"""A few steps of training compiled, a few op by op, and the faster way from then on."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfplace.core.compilation import AUTO, NONE, XLA
from tfplace.core.graph import OpGraph
from tfplace.execution.placed import Placed
from tfplace.formatting import format_seconds

STEPS = 4
"""Steps each way that count, after a first one that compiles or builds what runs."""

CLEARLY = 1.1
"""Times that a compiled step must be slower than one op by op to be given up: less may be the machine's noise, and a
choice that changed from run to run would change the rounding of the numbers."""

_KEEP_A_STATE = ("Random", "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial")
"""How the types of ops begin whose kernels hold a state, which starts over with each program that is built."""


class Trial:
    """Steps of a placed program that compares running it compiled and op by op.

    They are steps of the training itself, so none is lost, and their numbers differ by rounding only.

    Args:
      placed: runs compiled until then.

    Attributes:
      told: what came out, in a line; empty until it is over.
    """

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        self._took: dict[str, list[float]] = {XLA: [], NONE: []}
        self.told = ""

    @staticmethod
    def of(placed: Placed, asked: str) -> Trial | None:
        """The trial of a program that is compiled though nobody insists on it; None where there is nothing to try."""
        undecided = asked == AUTO and placed.clusters is not None
        return Trial(placed) if undecided and not _keeps_a_state(placed.graph) else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the next step; raises what the program raises."""
        if len(self._took[NONE]) > STEPS:  # not before: until the next step it is told where the last one ran
            self._decide()
            return self._placed(*args, **kwargs)
        way = XLA if len(self._took[XLA]) <= STEPS else NONE
        if way == NONE and not self._took[NONE]:
            self._placed.replace(self._placed.placement, compile=NONE)
        began = time.perf_counter()
        result = self._placed(*args, **kwargs)
        _wait_for(result)
        self._took[way].append(time.perf_counter() - began)
        if way == XLA and self._placed.clusters is None:
            self.told = "runs op by op, as it could not be compiled"
        return result

    def _decide(self) -> None:
        compiled_s, plain_s = (min(self._took[way][1:]) for way in (XLA, NONE))
        chosen = NONE if plain_s * CLEARLY < compiled_s else XLA
        self._placed.replace(replace(self._placed.placement, compile=chosen), compile=chosen)
        how = "compiled" if chosen == XLA else "op by op"
        self.told = (
            f"a step takes {format_seconds(compiled_s)} compiled by XLA and {format_seconds(plain_s)} op by op: "
            f"continues {how}"
        )


def _keeps_a_state(graph: OpGraph) -> bool:
    return any(kind.startswith(_KEEP_A_STATE) for kind in graph.op_types)


def _wait_for(result: Any) -> None:
    """Returns when the numbers of a result are there, which devices may still be working on."""
    for leaf in tf.nest.flatten(result, expand_composites=True):
        if isinstance(leaf, tf.Tensor) and leaf.dtype.is_numpy_compatible and leaf.shape.rank == 0:
            leaf.numpy()
