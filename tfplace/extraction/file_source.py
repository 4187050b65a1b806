"""Graph files and SavedModels, read in a process of their own, since native code may end it at what a file holds.

That process alone loads TensorFlow: a file is placed without it here. This process reads a file again when its program
is to be run, by then known to be one that TensorFlow can read.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from tfplace.core.graph import OpGraph, Origin
from tfplace.engines.child_process import ChildEndedError, ChildProcess
from tfplace.errors import SourceError, UnknownOpsError
from tfplace.extraction.file_child import serve

_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
"""Shows no warnings, and leaves GPUs, which reading a file does not need, to others."""
_KERAS = (".keras", ".h5")
EXPECTED = "a SavedModel directory, or a MetaGraphDef or GraphDef file (.meta, .pb, .pbtxt)"


@dataclass(frozen=True, eq=False)
class FileOrigin:
    """A graph that was read from a file in another process.

    Attributes:
      path: of the file.
      options: with which it was read; see `read_file`.
      description: one line for people.
      fingerprint: of the graph.
      meta: its step as a serialized MetaGraphDef.
    """

    path: Path
    options: Mapping[str, Any]
    description: str
    fingerprint: str
    meta: bytes

    @cached_property
    def program(self) -> Origin:
        """The origin of the same graph read here, which can be run.

        Raises:
          SourceError: the file has changed since.
        """
        from tfplace.extraction.sources import extract_file

        graph = extract_file(self.path, **self.options)
        if graph.fingerprint != self.fingerprint:
            raise SourceError(
                f"{str(self.path)!r}, which has changed since it was read", "the same file", "Extract it again."
            )
        assert graph.origin is not None  # read from TensorFlow
        return graph.origin

    def metagraph(self, devices: Mapping[str, str] | None = None) -> Any:
        """The flat graph as a MetaGraphDef."""
        import tensorflow as tf

        from tfplace.extraction.metagraph import write_devices

        meta = tf.compat.v1.MetaGraphDef.FromString(self.meta)
        write_devices(meta.graph_def, devices)
        return meta


class FileReader:
    """The process that reads files, started by the first of them and anew after one that ended it.

    Not to be shared by threads. It ends when the context does.
    """

    def __init__(self) -> None:
        self._child: ChildProcess | None = None

    def read(self, path: Path, **options: Any) -> OpGraph:
        """As `read_file`, but of ops only those that every TensorFlow knows."""
        child = self._child = self._child or _started()
        try:
            answer = pickle.loads(child.ask(pickle.dumps((path, options))))
        except ChildEndedError as error:
            self._child = None
            raise SourceError(
                f"{path.name}, which TensorFlow failed to read: its process ended {error}",
                "a file that TensorFlow can read",
                "The file may be damaged: write it again.",
            ) from error
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            raise RuntimeError(f"while {path.name} was read:\n{answer}")
        graph: OpGraph
        graph, description, meta = answer
        return replace(graph, origin=FileOrigin(path, options, description, graph.fingerprint, meta))

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.close()


def _started() -> ChildProcess:
    child = ChildProcess(serve, _ENVIRONMENT)
    try:
        child.ask()  # has loaded TensorFlow, whose failure is not the file's
    except ChildEndedError as error:
        raise RuntimeError(f"the process that reads files did not start: it ended {error}") from error
    return child


def read_file(
    path: Path,
    *,
    batch: Any = None,
    examples: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    fetches: tuple[str, ...] | None = None,
    name: str | None = None,
) -> OpGraph:
    """The graph of a file.

    Args:
      path: of a SavedModel directory or a graph file.
      batch: as for `tfplace.extract`.
      examples: in one step, which fill every first dimension that the file leaves open; instead of a batch.
      shapes: of inputs, by name or position, that leave more open; instead of a batch.
      fetches: as for `tfplace.extract`.
      name: what to call the graph; by default the file's name.

    Raises:
      SourceError: no such file, or none that TensorFlow can read.
    """
    if not path.exists():
        raise SourceError(f"{str(path)!r}, which does not exist", "a model, a SavedModel directory or a graph file")
    if path.suffix in _KERAS:
        raise SourceError(
            f"{path.name}, a saved Keras model", EXPECTED, "Load it first: keras.models.load_model(path)."
        )
    options = {"batch": batch, "examples": examples, "shapes": shapes, "fetches": fetches, "name": name}
    try:
        with FileReader() as reader:
            return reader.read(path, **options)
    except UnknownOpsError as error:
        if not _known_here(error.ops):
            raise
    from tfplace.extraction.sources import extract_file

    return extract_file(path, **options)  # which uses a library of ops that this process alone has loaded


def _known_here(ops: tuple[str, ...]) -> bool:
    if "tensorflow" not in sys.modules:
        return False
    from tfplace.extraction.tf_internals import op_def

    return all(op_def(op) is not None for op in ops)


def program_origin(graph: OpGraph) -> Origin | None:
    """The origin of a graph that is to be run, which of a file is read here first."""
    return graph.origin.program if isinstance(graph.origin, FileOrigin) else graph.origin
