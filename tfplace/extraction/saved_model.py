"""SavedModels, checked before TensorFlow loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tfplace.errors import SourceError, TfplaceError, UnknownOpsError, describe_error
from tfplace.extraction.graph_check import check_graph_def
from tfplace.extraction.tf_internals import empty_saved_model, op_def

DEFAULT_SIGNATURE = "serving_default"


def load_saved_model(path: Path, expected: str) -> Any:
    """What `tf.saved_model.load` makes of a directory.

    Args:
      path: of the directory.
      expected: what a source can be, for the message.

    Raises:
      SourceError: no SavedModel, or one that TensorFlow cannot load.
    """
    if not tf.saved_model.contains_saved_model(str(path)):
        raise SourceError(f"directory {path.name!r} without a saved_model.pb", expected)
    for meta in _read(path).meta_graphs:
        _refuse_unknown_ops(meta.graph_def)
        check_graph_def(meta.graph_def)
    try:
        return tf.saved_model.load(str(path))
    except TfplaceError:
        raise
    except Exception as error:  # it raises whatever its parts stumble over
        raise SourceError(
            f"SavedModel {path.name!r}, which TensorFlow cannot load ({describe_error(error)})",
            "a SavedModel that tf.saved_model.load accepts",
            "It may be damaged: save it again.",
        ) from error


def _read(path: Path) -> Any:
    message = empty_saved_model()
    try:
        if (path / "saved_model.pb").exists():
            message.ParseFromString((path / "saved_model.pb").read_bytes())
        else:
            text_format.Parse((path / "saved_model.pbtxt").read_text(encoding="utf-8"), message)
    except (DecodeError, text_format.ParseError, ValueError, RecursionError) as error:
        raise SourceError(
            f"SavedModel {path.name!r}, which is cut off or damaged", "a whole SavedModel", "Save it again."
        ) from error
    return message


def _refuse_unknown_ops(graph_def: Any) -> None:
    functions = {function.signature.name for function in graph_def.library.function}
    used = {node.op for node in graph_def.node}
    used |= {node.op for function in graph_def.library.function for node in function.node_def}
    if unknown := sorted(op for op in used - functions if op_def(op) is None):
        raise UnknownOpsError(unknown)
