"""Placement files: JSON with a device for every op, what was predicted, and fingerprints of what it is for."""

from __future__ import annotations

import json
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import AUTO
from tfplace.core.placement import FREE, Placement
from tfplace.core.stepcost import StepCost
from tfplace.errors import PlacementError
from tfplace.files import parse_json

FORMAT = "tfplace-placement/1"


def to_json(placement: Placement) -> str:
    """A placement as JSON text."""
    return json.dumps(
        {
            "format": FORMAT,
            "graph_fingerprint": placement.graph_fingerprint,
            "topology_fingerprint": placement.topology_fingerprint,
            "topology": placement.topology_name,
            "placer": placement.placer,
            "seed": placement.seed,
            "versions": dict(placement.versions),
            "bound_s": placement.bound_s,
            "cost": placement.cost.to_dict(),
            "simulated": None if placement.simulated is None else placement.simulated.to_dict(),
            "baselines": {k: v.to_dict() for k, v in placement.baselines.items()},
            "notes": list(placement.notes),
            "problem_fingerprint": placement.problem_fingerprint,
            "devices": list(placement.device_names),
            "ops": dict(zip(placement.op_names, placement.op_device.tolist(), strict=True)),
            **_phases(placement),
            **({} if placement.compile == AUTO else {"compile": placement.compile}),
        },
        indent=1,
    )


def _phases(placement: Placement) -> dict[str, Any]:
    """The order and the phases of the ops that have one; nothing of a free placement."""
    if placement.phases is None:
        return {}
    numbers = zip(placement.op_names, placement.phases.tolist(), strict=True)
    return {"order": placement.order, "phases": {op: phase for op, phase in numbers if phase >= 0}}


def load(source: str | Path) -> Placement:
    """Reads a placement file.

    Raises:
      PlacementError: no such file, or not a placement.
    """
    if not isinstance(source, str | Path):
        raise PlacementError(f"a {type(source).__name__} for a placement", "a Placement, or a placement file")
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlacementError(
            f"placement {str(path)!r} ({error.strerror})",
            "a placement file",
            "Placement.save() and `tfplace place --out` write such files.",
        ) from error
    except UnicodeDecodeError as error:
        raise PlacementError(f"{str(path)!r}, which is not text", "a placement file, which is JSON") from error
    return _read(text, f"{str(path)!r}, which")


def from_json(text: str) -> Placement:
    """Reads the text of a placement file.

    Raises:
      PlacementError: not a placement.
    """
    return _read(text, "text that", "Placement.load(path) reads a file." if _names_a_file(text) else "")


def _read(text: str, what: str, hint: str = "") -> Placement:
    """The placement that a text is; errors say `what` is none, such as "text that"."""
    try:
        data = parse_json(text)
        if data["format"] != FORMAT:
            raise PlacementError(f"format {data['format']!r}", f"format {FORMAT!r}")
        return Placement(
            op_names=tuple(data["ops"]),
            device_names=tuple(map(_text, _list(data["devices"]))),
            op_device=np.array([_whole(d) for d in data["ops"].values()], np.int32),
            cost=_cost(data["cost"], len(data["devices"])),
            bound_s=_number(data["bound_s"]),
            placer=_text(data["placer"]),
            seed=_whole(data["seed"]),
            graph_fingerprint=_text(data["graph_fingerprint"]),
            topology_fingerprint=_text(data["topology_fingerprint"]),
            topology_name=_text(data["topology"]),
            baselines={k: _cost(v, len(data["devices"])) for k, v in data["baselines"].items()},
            versions={k: _text(v) for k, v in data["versions"].items()},
            simulated=None if data.get("simulated") is None else _cost(data["simulated"], len(data["devices"])),
            notes=tuple(map(_text, _list(data.get("notes", [])))),
            problem_fingerprint=_text(data.get("problem_fingerprint", "")),
            phases=_read_phases(data["phases"], data["ops"]) if "phases" in data else None,
            order=_text(data.get("order", FREE)),
            compile=_text(data.get("compile", AUTO)),
        )
    except PlacementError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise PlacementError(
            f"{what} is not a placement ({type(error).__name__}: {error})", f"JSON in format {FORMAT!r}", hint
        ) from error


def _cost(data: Any, devices: int) -> StepCost:
    cost = StepCost.from_dict(data)
    if len(cost.peak_bytes) != devices:
        raise ValueError(f"costs of {len(cost.peak_bytes)} devices")
    return cost


def _read_phases(phases: Any, ops: Any) -> IntArray:
    """[V] the phases that a file names, -1 for ops of which it names none."""
    if unknown := sorted(set(phases) - set(ops)):
        raise ValueError(f"phases of {', '.join(unknown[:3])}, which have no device")
    return np.array([_whole(phases.get(op, -1)) for op in ops], np.int32)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not text: {value!r:.80}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"not a number: {value!r}")
    return index(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"not a number: {value!r:.80}")
    return float(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"not a list: {value!r:.80}")
    return value


def _names_a_file(text: object) -> bool:
    """Whether a path was given where JSON was expected."""
    if isinstance(text, str):
        return "\n" not in text and text.lstrip()[:1] not in ("{", "[") and bool(Path(text).suffix)
    return isinstance(text, Path)
