"""Which placers can be told to go on from what, or to work together. Loads nothing until it is asked."""

from __future__ import annotations

from pathlib import Path

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
    expected = "a placement, a file of one, or a placer"
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
    check = getattr(PLACERS[placer], "check_extra", None)
    if check is not None:
        check()


def check_goes_on(placer: str) -> None:
    """Refuses placers that go on from nothing.

    Raises:
      InputError: it is one of those.
      UnknownNameError: no such placer.
    """
    if not goes_on(PLACERS[placer]()):
        able = [name for name in PLACERS if goes_on(PLACERS[name]())]
        raise InputError(f"init with placer {placer!r}", f"one of {', '.join(able)}", "Others go on from nothing.")


def goes_on(placer: object) -> bool:
    """Whether the placer can be given placements to start from."""
    return hasattr(placer, "starts")


def check_controllers(placer: str, source: str) -> None:
    """Refuses placers that nobody can work on together, and step times that nobody can measure together.

    Args:
      placer: its name.
      source: of the evaluator.

    Raises:
      InputError: it is one of those.
      UnknownNameError: no such placer.
    """
    if not _has_controllers(placer):
        able = [name for name in PLACERS if _has_controllers(name)]
        raise InputError(f"controllers with placer {placer!r}", f"one of {', '.join(able)}", "Others work alone.")
    if source == MEASURED:
        raise InputError(
            "controllers with measured steps",
            "an evaluator that computes them, simulated or by Grappler",
            "Controllers that measured on the same devices would disturb one another.",
        )


def check_pretrained(placer: str, weights: str | Path | None, fine_tune: int | None) -> None:
    """Refuses placers that have learned nothing beforehand, weights that are no file, and fewer than no updates.

    Args:
      placer: its name.
      weights: instead of its own; None for those.
      fine_tune: updates; None for none.

    Raises:
      InputError: it is one of those, there is no such file, or a number below 0.
      UnknownNameError: no such placer.
    """
    if not _is_pretrained(placer):
        able = [name for name in PLACERS if _is_pretrained(name)]
        raise InputError(
            f"weights or fine_tune with placer {placer!r}", f"one of {', '.join(able)}", "Others learn from nothing."
        )
    if weights is not None and not path_of("weights", weights).is_file():
        raise InputError(f"weights {str(weights)!r}, which is no file", "one that scripts/train_policy.py wrote")
    if fine_tune is not None and fine_tune < 0:
        raise InputError(f"fine_tune={fine_tune}", "a number of updates, at least 0")


def _is_pretrained(placer: str) -> bool:
    return hasattr(PLACERS[placer](), "weights")


def _has_controllers(placer: str) -> bool:
    return bool(getattr(PLACERS[placer](), "has_controllers", False))
