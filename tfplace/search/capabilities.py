"""Refuses what a placer does not support, as its class declares. Reading that never loads TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfplace.core.placer import Placer
from tfplace.core.stepcost import MEASURED
from tfplace.errors import InputError, near_names
from tfplace.files import path_of
from tfplace.registry import PLACERS


def check_init(init: str | Path) -> None:
    """Refuses what is neither a placer nor a file.

    Raises:
      InputError: it is not.
    """
    if isinstance(init, str) and init in PLACERS:
        return
    expected = "a placement, a placement file, or a placer"
    hint = "Placement.save() and `tfplace place --out` write files."
    if not isinstance(init, str | Path):
        raise InputError(f"init={init!r}", expected, hint)
    path = Path(init)
    if path.is_dir():
        raise InputError(f"init={str(init)!r}, which is a directory", expected, f"Perhaps {path / 'placement.json'}.")
    if not path.is_file() and (path.suffix or len(path.parts) > 1):
        raise InputError(f"init={str(init)!r}, which does not exist", expected, hint)
    if not path.is_file():
        near = near_names(str(init), PLACERS)
        raise InputError(
            f"init={str(init)!r}",
            f"{expected}: {', '.join(PLACERS)}",
            f"Did you mean {near[0]!r}?" if near else hint,
        )


def check_extra(placer: str) -> None:
    """Says so, before anything takes long, if a package is missing that the placer needs.

    Raises:
      MissingExtraError: it is; says how to install it.
      UnknownNameError: no such placer.
    """
    _found(placer).check_extra()


def check_warm_start(placer: str) -> None:
    """Refuses placers that do not support warm starts.

    Raises:
      InputError: it is one of those.
      UnknownNameError: no such placer.
    """
    if not _found(placer).accepts_starts:
        able = _names(lambda other: other.accepts_starts)
        raise InputError(
            f"init with placer {placer!r}",
            "a placer that supports warm starts",
            f"These placers support warm starts: {able}.",
        )


def check_controllers(placer: str, source: str) -> None:
    """Refuses placers that controllers cannot train, and step times that controllers cannot measure side by side.

    Args:
      placer: its name.
      source: of the evaluator.

    Raises:
      InputError: it is one of those.
      UnknownNameError: no such placer.
    """
    if not _found(placer).supports_controllers:
        able = _names(lambda other: other.supports_controllers)
        raise InputError(
            f"controllers with placer {placer!r}",
            "a placer that supports controllers",
            f"These placers support controllers: {able}.",
        )
    _refuse_measured(source, "controllers")


def check_workers(placer: str, source: str) -> None:
    """Refuses placers that many workers cannot search with, and steps that they cannot measure side by side.

    Args:
      placer: its name.
      source: of the evaluator.

    Raises:
      InputError: it is one of those.
      UnknownNameError: no such placer.
    """
    if not _found(placer).supports_workers:
        able = _names(lambda other: other.supports_workers)
        raise InputError(
            f"an engine with placer {placer!r}",
            "a placer that searches on many workers, or one whose policy controllers train",
            f"These placers search on workers: {able}.",
        )
    _refuse_measured(source, "an engine")


def _refuse_measured(source: str, who: str) -> None:
    if source == MEASURED:
        raise InputError(
            f"{who} with measured steps",
            "an evaluator that computes step times: 'simulated' or 'grappler'",
            "Processes that measure on the same devices at once disturb one another.",
        )


def check_pretrained(placer: str, weights: str | Path | None, fine_tune: int | None) -> None:
    """Refuses placers without pretrained weights, weights that are no file, and fewer than no updates.

    Args:
      placer: its name.
      weights: instead of its own; None for those.
      fine_tune: updates; None for none.

    Raises:
      InputError: it is one of those, there is no such file, or a number below 0.
      UnknownNameError: no such placer.
    """
    if not _found(placer).pretrained:
        able = _names(lambda other: other.pretrained)
        raise InputError(
            f"weights or fine_tune with placer {placer!r}",
            "a placer with pretrained weights",
            f"These placers have pretrained weights: {able}.",
        )
    if weights is not None and not path_of("weights", weights).is_file():
        raise InputError(f"weights {str(weights)!r}, which is not a file", "a file that scripts/train_policy.py wrote")
    if fine_tune is not None and fine_tune < 0:
        raise InputError(f"fine_tune={fine_tune}", "a number of updates, at least 0")


def _found(placer: str) -> type[Placer]:
    found: type[Placer] = PLACERS[placer]
    return found


def _names(able: Callable[[type[Placer]], bool]) -> str:
    return ", ".join(name for name in PLACERS if able(_found(name)))
