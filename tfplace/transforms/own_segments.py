"""Which sums over rows of a number add each example's rows to segments of the example's own.

The gradient of `tf.gather(x, positions, batch_dims=1)` adds rows at positions in all of a flattened batch: those in the
example, to which a constant adds where the example begins. That positions are in the example is what the gather itself
requires: on CPUs it fails elsewhere. On GPUs it gives zeros, and the gradient goes to another example; a slice leaves
out what would go to another slice.
"""

from __future__ import annotations

import numpy as np

from tfplace.transforms.two_sizes import TwoSizes

SEGMENT_SUM = "UnsortedSegmentSum"

_SAME_ORDER = ("ExpandDims", "Identity", "Reshape", "Squeeze")
_SUMS = ("Add", "AddV2")


def keeps_to_examples(two: TwoSizes, v: int) -> bool:
    """Whether UnsortedSegmentSum v, of rows that lie example by example, adds each to a segment of its example.

    Its numbers are constants plus what a gather looks up, which is at least 0 and less than the size of that axis.

    Args:
      two: the step.
      v: with as many segments for each example, in the order of examples.
    """
    nodes, examples = two.nodes, two.batches[0]
    segments, at = two.shapes(v, 0)[0], nodes.data_inputs[v][1]
    while nodes.types[at[0]] in _SAME_ORDER:
        at = nodes.data_inputs[at[0]][0]
    shape = two.shapes(*at)[0]
    if segments is None or shape is None or min((*shape, segments[0])) < 0:
        return False
    offset = np.zeros(shape, np.int64)
    while (size := _looked_up(two, *at)) is None:
        inputs = nodes.data_inputs[at[0]]
        known = {i: value for i, (u, _) in enumerate(inputs) if (value := two.value(u)) is not None}
        if nodes.types[at[0]] not in _SUMS or len(known) != 1:
            return False
        ((i, constant),) = known.items()
        offset = offset + constant
        at = inputs[1 - i]
    if offset.size % examples:
        return False
    each, lowest = segments[0] // examples, offset.reshape(examples, -1)
    first = each * np.arange(examples)[:, None]
    return bool((first <= lowest).all() and (lowest + size <= first + each).all())


def _looked_up(two: TwoSizes, u: int, slot: int) -> int | None:
    """Size of the shortest axis along which a tensor is looked up; None if it is not, or only in unknown sizes."""
    sizes = []
    for out, reader, position in two.nodes.consumers[u]:
        if out != slot or position != 1 or two.nodes.types[reader] != "GatherV2":
            continue
        params, _, axis = two.nodes.data_inputs[reader]
        shape, along = two.shapes(*params)[0], two.value(axis[0])
        if shape is not None and along is not None and shape[int(along)] >= 0:
            sizes.append(shape[int(along)])
    return min(sizes, default=None)
