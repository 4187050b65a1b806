"""A ring all-reduce as ops and tensors (P. Patarasu and X. Yuan, JPDC 2009), which moves 2 (n - 1) / n of a buffer.

Each of n replicas holds a buffer in n chunks. In n - 1 steps every replica sends a chunk to the next one, which adds
its own (reduce-scatter); in n - 1 more the sums go round (all-gather). NCCL adds a part of a chunk while it is sent the
next part; here a chunk is sent, and then added. Chunks are views of the buffer, and a sum takes over the memory of what
was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfplace.core.buffers import ALIGNMENT
from tfplace.transforms.mirrored_graph import MirroredGraph, Tensor, copy_name

Read = tuple[int, int]
"""An op that is written, and which of its outputs."""


def exchange(out: MirroredGraph, sums: Mapping[int, Sequence[int]], name: str) -> None:
    """Has every replica get the sums that ops of the split graph make, by one buffer for each dtype.

    One op for each sum takes it out of the buffer. MirroredStrategy splits the whole buffer by one op, and has two
    reshapes for each gradient.

    Args:
      out: what is written.
      sums: op -> tensors of slices that it adds up, whose ops are all written.
      name: of the exchange.
    """
    of_dtype: dict[str, list[int]] = {}
    for v in sums:
        of_dtype.setdefault(out.made_by(v).dtype, []).append(v)
    for dtype, ops in of_dtype.items():
        terms = [[_term(out, v, sums[v], r) for v in ops] for r in range(out.replicas)]
        if out.replicas == 1:
            for v, (op, _) in zip(ops, terms[0], strict=True):
                out.stand_in(v, 0, op)
            continue
        sizes = [out.made_by(v).size_bytes for v in ops]
        lines = -(-sum(sizes) // (ALIGNMENT * out.replicas))
        each = ALIGNMENT // out.made_by(ops[0]).item_bytes
        chunk = Tensor(dtype, (lines, each), lines * ALIGNMENT)
        reduced = _ring(out, f"{name}/{dtype}", chunk, terms)
        begin = 0
        for v, size in zip(ops, sizes, strict=True):
            of = range(begin // chunk.size_bytes, -(-(begin + size) // chunk.size_bytes))
            for r in range(out.replicas):
                reads = [reduced[r][c] for c in of]
                own = copy_name(f"{name}/{out.name_of(v)}", r)
                out.stand_in(v, r, out.add(own, "ConcatV2", reads, [out.made_by(v)], r))
            begin += size


def _term(out: MirroredGraph, v: int, terms: Sequence[int], r: int) -> Read:
    """What a replica has of a sum: the tensor of its slice, or the sum of its slices' tensors."""
    own = out.of_replica(terms, r)
    if len(own) == 1:
        return own[0]
    return out.add(copy_name(f"summed/{out.name_of(v)}", r), "AddN", own, [out.made_by(v)], r), 0


def _ring(out: MirroredGraph, name: str, chunk: Tensor, terms: list[list[Read]]) -> list[list[Read]]:
    """[n][n] the chunks of the sum on every replica.

    Args:
      out: what is written.
      name: of the exchange.
      chunk: one of n.
      terms: [n] what each replica puts into its buffer.
    """
    n = out.replicas
    rows, columns = chunk.shape or (0, 0)
    whole = Tensor(chunk.dtype, (n * rows, columns), n * chunk.size_bytes)
    own = []
    for r in range(n):
        packed = out.add(copy_name(f"{name}/packed", r), "ConcatV2", terms[r], [whole], r)
        own.append(out.add(copy_name(f"{name}/chunks", r), "SplitV", [(packed, 0)], [chunk] * n, r))
    last: list[Read] = [(own[c], c) for c in range(n)]
    for step in range(1, n):
        for c in range(n):
            r = (c + step) % n
            last[c] = out.add(copy_name(f"{name}/sum{c}", r), "AddV2", [last[c], (own[r], c)], [chunk], r), 0
    reduced = [list(last) for _ in range(n)]
    for step in range(n - 1):
        for c in range(n):
            r = (c + step) % n
            last[c] = out.add(copy_name(f"{name}/chunk{c}", r), "Identity", [last[c]], [chunk], r), 0
            reduced[r][c] = last[c]
    return reduced
