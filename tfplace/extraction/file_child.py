"""What runs in the process that reads a file; `tfplace.extraction.file_source` is the other end."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from typing import Any

from tfplace.engines.child_process import MessagePipe
from tfplace.errors import TfplaceError


def serve(pipe: MessagePipe) -> None:
    """Says that TensorFlow is loaded, then reads files until there are no more.

    Every question is the pickled arguments of `tfplace.extraction.sources.extract_file`. The answer is a graph, a line
    about it and its serialized MetaGraphDef; or the error that reading it raised; or a traceback.
    """
    from tfplace.extraction.sources import extract_file

    pipe.send(b"")
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(pickle.dumps(_answer(extract_file, pipe.receive())))


def _answer(extract_file: Any, question: bytes) -> Any:
    try:
        path, options = pickle.loads(question)
        graph = extract_file(path, **options)
        return graph, graph.origin.description, graph.metagraph().SerializeToString()
    except TfplaceError as error:
        return error
    except Exception as error:
        return "".join(traceback.format_exception(error))
