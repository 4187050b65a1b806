"""Buckets: which variables and gradients of a split step are sent together.

Variables are put in buckets as the forward pass reads them, so that a bucket's gradients are made one after the other:
they can be sent while the backward pass goes on. These are the buckets of S. Li et al.: PyTorch Distributed, VLDB 2020,
section 3.2.3; Horovod's tensor fusion (A. Sergeev, M. Del Balso, 2018, arXiv:1802.05799, section 4) takes what is there
at a time. A variable's gradient is in its bucket whatever optimizer updates it: were it in another, both would have to
have one owner.
"""

from __future__ import annotations

import math

import tensorflow as tf

from tfplace.transforms.propagation import Division
from tfplace.transforms.two_sizes import TwoSizes

_BUCKET_BYTES = 1 << 18
"""Of tensors that are sent together at most: as much as PCIe carries in the time that a message takes to start."""


class Buckets:
    """The buckets of a step, by name; a larger tensor, and one that would be alone in its bucket, is in none.

    Args:
      two: the step.
      division: of it.
    """

    def __init__(self, two: TwoSizes, division: Division) -> None:
        self._two, self._nodes, self._division = two, two.nodes, division
        self._walk()
        self._fill()
        self._find_targets()
        self._rest: dict[str, tuple[int, int]] = {}  # dtype -> the last bucket of what goes to no variable, its bytes

    def of_value(self, u: int, slot: int) -> str | None:
        """The bucket of what stands once and slices read, if it is a variable's value or made of one."""
        bucket = self._bucket.get(self._made_of[u])
        return None if bucket is None or self._small(u, slot) is None else str(bucket)

    def of_sum(self, u: int, slot: int) -> str | None:
        """The bucket of a sum of slices' terms, unless a slice needs it."""
        shape = self._small(u, slot)
        readers = [(v, position) for of, v, position in self._nodes.consumers[u] if of == slot]
        if shape is None or any(
            self._division.readings[v][position].is_whole if self._division.copied[v] else self._feeds[v]
            for v, position in readers
        ):
            return None
        variable = next((self._target[v] for v, _ in readers if self._target[v] >= 0), -1)
        if variable >= 0:
            return str(self._bucket[variable]) if variable in self._bucket else None
        return self._next(u, slot, shape)

    def _walk(self) -> None:
        """Finds ops that may not run, ops that need no input of the step, and ops that slices need something of."""
        nodes, count = self._nodes, len(self._nodes)
        self._gated, self._early, self._feeds = [False] * count, [False] * count, [False] * count
        for v in nodes.order:
            before = nodes.forward_producers(v)
            self._gated[v] = nodes.types[v] in ("Switch", "RefSwitch") or any(self._gated[u] for u in before)
            self._early[v] = all(self._early[u] for u in before) and not self._division.copied[v]
            self._early[v] &= self._is_handle(v) or nodes.types[v] != "Placeholder"
        for v in reversed(nodes.order):
            needed = self._division.copied[v] or self._feeds[v]
            for u in nodes.forward_producers(v):
                self._feeds[u] = self._feeds[u] or needed

    def _is_handle(self, v: int) -> bool:
        return self._two.dtypes(v)[:1] == ["resource"]

    def _fill(self) -> None:
        """Puts small variables in buckets, in the order in which slices read them; what would be alone is in none."""
        nodes = self._nodes
        self._made_of = [-1] * len(nodes)  # the variable that an op which needs no input of the step is made of
        for v in nodes.order:
            if self._early[v]:
                before = nodes.forward_producers(v)
                made_of = (self._made_of[u] for u in before if self._made_of[u] >= 0)
                self._made_of[v] = v if self._is_handle(v) and not before else next(made_of, -1)
        buckets: list[dict[int, int]] = [{}]  # variable -> bytes
        self._read: set[int] = set()
        for v in nodes.order:
            for u, slot in nodes.data_inputs[v] if self._division.copied[v] else ():
                shape, variable = self._small(u, slot), self._made_of[u]
                if shape is None or variable < 0 or variable in self._read:
                    continue
                self._read.add(variable)
                size = self._bytes(u, slot, shape)
                if sum(buckets[-1].values()) + size > _BUCKET_BYTES:
                    buckets.append({})
                buckets[-1][variable] = size
        self._bucket = {v: i for i, bucket in enumerate(buckets) for v in bucket if len(bucket) > 1}

    def _find_targets(self) -> None:
        """Finds the variable to which what an op makes of sums goes, as itself or as as many elements made of it.

        What goes to a slot goes to the variable that is updated with it.
        """
        nodes = self._nodes
        self._target = [-1] * len(nodes)
        for v in reversed(nodes.order):
            if self._early[v] or self._division.copied[v]:
                continue
            handles = [u for u, _ in nodes.data_inputs[v] if self._is_handle(u)]
            found = [u for u in handles if u in self._read]
            found += [self._target[w] for slot, w, _ in nodes.consumers[v] if self._is_as_large(w, v, slot)]
            found += [self._target[w] for u in handles for _, w, _ in nodes.consumers[u]]
            self._target[v] = next((variable for variable in found if variable >= 0), -1)

    def _is_as_large(self, w: int, v: int, slot: int) -> bool:
        """Whether an op has no result, or one of as many elements as a tensor that it is given."""
        return not self._two.dtypes(w) or self._elements(w, 0) == self._elements(v, slot)

    def _next(self, u: int, slot: int, shape: tuple[int, ...]) -> str:
        """The bucket of a sum that goes to no variable that slices read."""
        dtype, size = self._two.dtypes(u)[slot], self._bytes(u, slot, shape)
        number, held = self._rest.get(dtype, (0, 0))
        if held + size > _BUCKET_BYTES:
            number, held = number + 1, 0
        self._rest[dtype] = number, held + size
        return f"rest{number}"

    def _elements(self, u: int, slot: int) -> int:
        """Of a tensor; -1 if that is not known."""
        shape = self._two.shapes(u, slot)[0]
        return -1 if shape is None or min(shape, default=1) < 0 else math.prod(map(int, shape))

    def _bytes(self, u: int, slot: int, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(tf.dtypes.as_dtype(self._two.dtypes(u)[slot]).size)

    def _small(self, u: int, slot: int) -> tuple[int, ...] | None:
        """The shape of what is small enough."""
        shape, dtype = self._two.shapes(u, slot)[0], tf.dtypes.as_dtype(self._two.dtypes(u)[slot])
        if shape is None or min(shape, default=1) < 1 or self._gated[u] or not dtype.is_floating:
            return None
        return tuple(map(int, shape)) if self._bytes(u, slot, shape) <= _BUCKET_BYTES else None
