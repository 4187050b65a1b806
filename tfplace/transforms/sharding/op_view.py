"""OpView: what a rule may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.transforms.sharding.state import Kind, Sharding


@dataclass(frozen=True)
class TensorView:
    """A tensor of a step that was traced with two batch sizes.

    Attributes:
      shape: with the whole batch; -1 for an unknown dimension, None for unknown rank.
      varying: axes whose size depends on the batch; None if the rank is unknown.
      even: whether each varying size is a multiple of the batch size, so that it can be divided as the batch is.
      dtype: name, such as "float32".
    """

    shape: tuple[int, ...] | None
    varying: tuple[int, ...] | None
    even: bool
    dtype: str

    @property
    def rank(self) -> int | None:
        """Number of axes; None if unknown."""
        return None if self.shape is None else len(self.shape)


class OpView:
    """An op, its inputs and how they are divided, as rules see it.

    Args:
      node: the `NodeDef`.
      inputs: its data inputs.
      outputs: its outputs.
      shardings: how each input is read.
      values: elements of each input, with the whole batch and with the other one, where they are known before the run.
      batch: examples of the whole batch.
      local: whether statistics over the batch are to be the slice's own here.
      own_segments: of a sum over rows of a number, whether it adds rows to segments of their own examples.
    """

    def __init__(
        self,
        node: Any,
        inputs: Sequence[TensorView],
        outputs: Sequence[TensorView],
        shardings: Sequence[Sharding],
        values: Sequence[tuple[NDArray[Any], NDArray[Any]] | None],
        *,
        batch: int,
        local: bool = False,
        own_segments: bool = False,
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.outputs = outputs
        self.ins = tuple(shardings)
        self.values = values
        self.batch = batch
        self.local = local
        self.own_segments = own_segments

    @property
    def type(self) -> str:
        """The op's type."""
        return str(self.node.op)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's plain value."""
        if name not in self.node.attr:
            return default
        value = self.node.attr[name]
        kind = value.WhichOneof("value")
        if kind == "s":
            return value.s.decode(errors="replace")
        if kind == "list":
            return tuple(value.list.i) or tuple(value.list.s)
        return getattr(value, kind) if kind else default

    def rank(self, position: int) -> int | None:
        """Rank of an input."""
        return self.inputs[position].rank

    def ints(self, position: int) -> list[int] | None:
        """Elements of an integer input that are known before the run; None if they are not."""
        values = self.values[position]
        return None if values is None else [int(v) for v in np.asarray(values[0]).ravel()]

    def is_fixed(self, position: int, i: int | None = None) -> bool:
        """Whether an integer input, or its element i, is the same for every batch size."""
        values = self.values[position]
        if self.ins[position].is_whole or values is None:
            return self.ins[position].is_whole
        same = np.asarray(values[0]).ravel() == np.asarray(values[1]).ravel()
        return bool(same.all() if i is None else same[i])

    def row_inputs(self) -> list[int]:
        """Positions of the inputs that are rows."""
        return [i for i, s in enumerate(self.ins) if s.is_rows]

    def only(self, *kinds: Kind, among: Sequence[int] | None = None) -> bool:
        """Whether inputs are of these kinds, all or those at some positions."""
        at = range(len(self.ins)) if among is None else among
        return all(self.ins[i].kind in kinds for i in at)
