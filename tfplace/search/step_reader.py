"""Steps of replicas: each is read once, and what reading takes is foreseen from those that were."""

from __future__ import annotations

from collections.abc import Callable

from tfplace.core.graph import OpGraph
from tfplace.transforms.other_batch import at_batch


class StepReader:
    """What was read so far.

    Args:
      read: examples of a step and the number of its slices -> its graph.
    """

    def __init__(self, read: Callable[[int, int], OpGraph]) -> None:
        self._read = read
        self._graphs: dict[tuple[int, int], OpGraph] = {}

    def read(self, examples: int, slices: int) -> OpGraph:
        """The step with so many examples.

        Raises:
          SplitError: it cannot be split.
        """
        key = examples, slices
        if key not in self._graphs:
            self._graphs[key] = self._read(examples, slices)
        return self._graphs[key]

    def ops(self, slices: int) -> int:
        """Ops of a step in so many slices, about; 0 before anything was read."""
        if not self._graphs:
            return 0
        (_, known), graph = max(self._graphs.items(), key=lambda item: item[0][1])
        assert graph.slices is not None
        sliced = int((graph.slices.slice_of >= 0).sum())
        return graph.num_ops + (slices - known) * sliced // known

    def scaled(self, examples: int) -> OpGraph | None:
        """The whole step by the sizes of two others; None if it was read, or fewer than two were."""
        whole = [graph for (_, slices), graph in sorted(self._graphs.items(), key=lambda item: item[0]) if slices == 1]
        if (examples, 1) in self._graphs or len(whole) < 2:
            return None
        return at_batch(whole[0], whole[-1], examples)
