"""A traced function whose ops and variables are on workers, perhaps of other hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.errors import LostWorkerError
from tfplace.execution.clusters import Cluster
from tfplace.execution.devices import canonical
from tfplace.execution.function import FunctionProgram
from tfplace.execution.hosts import Hosts
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.extraction.bodies import PYTHON
from tfplace.extraction.flatten import FlatFunction

_PYTHON_HERE = "calls Python, which is in this process"


class RemoteProgram(FunctionProgram):
    """A `FunctionProgram` on workers. If one of them is lost, it ends with one error, and can be placed again.

    Args:
      graph: the OpGraph.
      flat: the function it came from.
      hosts: the workers.
    """

    def __init__(self, graph: OpGraph, flat: FlatFunction, hosts: Hosts) -> None:
        super().__init__(graph, flat)
        self._hosts = hosts
        types = zip(graph.op_names, graph.op_types, strict=True)
        self.fixed |= {op: (canonical("CPU:0"), _PYTHON_HERE) for op, kind in types if kind in PYTHON}

    def place(
        self, devices: Mapping[str, str], waits: Waits = NO_WAITS, clusters: Sequence[Cluster] | None = None
    ) -> None:
        """See `FunctionProgram.place`.

        Raises:
          ClusterError: a worker does not answer.
          LostWorkerError: a worker is lost; the variables are as they were here before.
        """
        self._hosts.join(self)
        with self._forgotten_if_lost():
            super().place(devices, waits, clusters)

    def restore(self) -> None:
        """See `FunctionProgram.restore`.

        Raises:
          LostWorkerError: see `place`.
        """
        with self._forgotten_if_lost():
            super().restore()
        self._hosts.leave(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `FunctionProgram.__call__`; the results are on this process's devices.

        Raises:
          LostWorkerError: see `place`.
        """
        with self._forgotten_if_lost():
            return tf.nest.map_structure(_here, super().__call__(*args, **kwargs), expand_composites=True)

    @contextlib.contextmanager
    def _forgotten_if_lost(self) -> Iterator[None]:
        try:
            with self._hosts.watched():
                yield
        except LostWorkerError:
            self._function, self.placed = None, False
            raise


def _here(result: Any) -> Any:
    """A tensor, fetched: whoever reads it does not wait for a worker."""
    with tf.device("CPU:0"):
        return tf.identity(result) if tf.is_tensor(result) else result


class WatchedTests:
    """A model's test function, which ends with the same error if a worker is lost; until `end`.

    Args:
      model: a Keras 3 or tf_keras model, of which some variables are on workers.
      hosts: the workers.
    """

    def __init__(self, model: Any, hosts: Hosts) -> None:
        self._model, self._hosts = model, hosts
        self._own = model.test_function
        model.test_function = self._test

    def _test(self, iterator: Any) -> Any:
        try:
            with self._hosts.watched():
                return self._own(iterator)
        except LostWorkerError:
            self.end()  # Keras calls no callback
            raise

    def end(self) -> None:
        """Gives the model its function back."""
        self._model.test_function = self._own
