"""Reads what was built as a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfplace.cli.flags import ReadFlags
from tfplace.cli.source import Source
from tfplace.core.graph import OpGraph
from tfplace.core.slices import checked_slices
from tfplace.transforms.whole_step import WholeStep


def read_graph(
    built: Source, flags: ReadFlags, tell: Callable[[str], None], unsplit: WholeStep | None = None
) -> OpGraph:
    """The graph of what was built.

    Args:
      built: the source.
      flags: how it is read.
      tell: is told that a model has inference only, though it is not what was asked for.
      unsplit: see `tfplace.transforms.split.split_source`.

    Raises:
      SourceError: as `tfplace.extract`.
    """
    from tfplace.sources import extract

    fetches = tuple(flags.fetch) or None
    if built.examples is not None or built.shapes:
        from tfplace.extraction.file_source import read_file

        return read_file(built.source, examples=built.examples, shapes=built.shapes, fetches=fetches)
    training = False if flags.inference else None
    if training is None and not isinstance(built.source, Path):  # which is read without TensorFlow here
        from tfplace.extraction.keras_model import is_keras_model, trains, untrained

        if is_keras_model(built.source) and not trains(built.source):
            tell(untrained(built.source))
            training = False
    slices = checked_slices(flags.slices)
    if slices is not None and unsplit is not None:
        from tfplace.transforms.split import split_source

        return split_source(
            built.source,
            built.batch,
            slices,
            batch_norm=flags.batch_norm,
            pack=flags.pack,
            training=training,
            unsplit=unsplit,
        )
    return extract(
        built.source,
        built.batch,
        slices=slices,
        batch_norm=flags.batch_norm,
        pack=flags.pack,
        training=training,
        fetches=fetches,
    )
