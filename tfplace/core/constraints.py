"""Constraints: what the user says about where ops may go."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tfplace.errors import ConstraintError, near_names
from tfplace.units import parse_bytes


@dataclass(frozen=True)
class Constraints:
    """The user's own rules, by op-name pattern (shell wildcards: `*`, `?`, `[...]`).

    Attributes:
      pin: pattern -> the device its ops must be on.
      forbid: pattern -> devices its ops must not be on.
      colocate: lists of patterns; all ops matching any pattern of one list go together.
      max_memory: device -> bytes (or "10GiB") that may be used there, instead of the device's own memory. A device may
        be a pattern; what two of them say of one device has to be the same.
      headroom: fraction of every device's memory kept free.
    """

    pin: Mapping[str, str] = field(default_factory=dict)
    forbid: Mapping[str, Sequence[str]] = field(default_factory=dict)
    colocate: Sequence[Sequence[str]] = ()
    max_memory: Mapping[str, int | str] = field(default_factory=dict)
    headroom: float = 0.0

    def __post_init__(self) -> None:
        for what in ("pin", "forbid", "max_memory"):
            if not isinstance(getattr(self, what), Mapping):
                raise ConstraintError(f"{what} {getattr(self, what)!r}", f"a dict, {_FORMS[what]}")
        wrong: list[object] = [device for device in self.pin.values() if not isinstance(device, str)]
        wrong += [devices for devices in self.forbid.values() if not _names(devices)]
        if wrong:
            raise ConstraintError(f"a rule with {wrong[0]!r}", f"{_FORMS['pin']}, {_FORMS['forbid']}")
        if not isinstance(self.headroom, int | float) or not 0 <= self.headroom < 1:
            raise ConstraintError(f"headroom {self.headroom}", "a fraction of at least 0 and below 1")
        for patterns in (self.colocate, *self.colocate):
            if isinstance(patterns, str):
                raise ConstraintError(f"colocate with the text {patterns!r}", "lists of patterns", "[[...], [...]].")
        for device, size in self.max_memory.items():
            parse_bytes(size)
            if parse_bytes(size) == 0:
                raise ConstraintError(f"max_memory of 0 bytes for {device!r}", "more than 0 bytes")


_FORMS = {
    "pin": "pin={pattern: device}",
    "forbid": "forbid={pattern: device or [device, ...]}",
    "max_memory": 'max_memory={device: "10GiB"}',
}


def _names(devices: object) -> bool:
    return isinstance(devices, Collection) and all(isinstance(device, str) for device in devices)


def match_ops(pattern: str, op_names: Sequence[str]) -> list[int]:
    """Indices of the ops whose name matches `pattern`.

    Raises:
      ConstraintError: nothing matches; lists near names.
    """
    found = [i for i, name in enumerate(op_names) if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        near = near_names(pattern, op_names)
        hint = "Near names: " + ", ".join(near) if near else f"The first op is {op_names[0]!r}."
        raise ConstraintError(
            f"a constraint on {pattern!r}, which matches no op", "a pattern that matches op names", hint
        )
    return found
