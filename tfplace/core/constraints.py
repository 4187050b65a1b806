"""Constraints: rules of the user for where ops may go."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfplace.core.graph import OpGraph
from tfplace.errors import ConstraintError, near_names
from tfplace.units import parse_bytes


@dataclass(frozen=True)
class Constraints:
    """Rules of the user for where ops may go and how much memory a device may use.

    Rules name ops by patterns with shell wildcards (`*`, `?`, `[...]`). A pattern matches op names or, after "layer:",
    layers. "layer:NAME" means all ops of a layer: forward ops, gradients, variables, optimizer slots, and updates of
    variables. `OpGraph.layers` lists the names. "layer:encoder" includes the layers inside the encoder. Ops of a layer
    without a kernel on any device that the rule allows stay free.

    In a split step, "layer:NAME" and patterns such as "conv1/*" match the copies in all slices. "slice2/*" matches the
    copies in one slice.

    Attributes:
      pin: pattern -> the device that its ops must be on.
      forbid: pattern -> devices that its ops must not be on.
      colocate: lists of patterns; all ops that match a pattern of the same list are on one device.
      max_memory: device -> bytes (or "10GiB") that may be used there, instead of the device's own memory. A device may
        be a pattern. Two patterns that match the same device must give the same limit.
      headroom: fraction of every device's memory to keep free, from 0 up to but not including 1.

    Raises:
      ConstraintError: a rule has the wrong form, or a value is out of range.
      InputError: a size is not a number of bytes.
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
        wrong: list[object] = [
            text for text in (*self.pin, *self.pin.values(), *self.forbid) if not isinstance(text, str)
        ]
        wrong += [devices for devices in self.forbid.values() if not _names(devices)]
        if wrong:
            raise ConstraintError(f"a rule with {wrong[0]!r}", f"{_FORMS['pin']}, {_FORMS['forbid']}")
        if not isinstance(self.headroom, int | float) or not 0 <= self.headroom < 1:
            raise ConstraintError(f"headroom {self.headroom}", "a fraction of at least 0 and below 1")
        for patterns in (self.colocate, *self.colocate):
            if isinstance(patterns, str):
                raise ConstraintError(
                    f"colocate with the text {patterns!r}", "lists of patterns", "Write colocate=[[...], [...]]."
                )
        for device, size in self.max_memory.items():
            parse_bytes(size)
            if parse_bytes(size) == 0:
                hint = f"forbid={{'*': {device!r}}} (--forbid='*={device}') keeps all ops off it."
                raise ConstraintError(f"max_memory of 0 bytes for {device!r}", "more than 0 bytes", hint)

    @property
    def patterns(self) -> frozenset[str]:
        """The patterns of all rules about ops."""
        return frozenset((*self.pin, *self.forbid, *(pattern for patterns in self.colocate for pattern in patterns)))

    def without_missing_slices(self, graph: OpGraph) -> Constraints:
        """The same rules without patterns for ops of slices, such as "slice1/*", that match nothing in the graph."""
        missing = {p for p in self.patterns if _OF_SLICES.match(p) and not _named(p, graph)}
        return replace(
            self,
            pin={pattern: device for pattern, device in self.pin.items() if pattern not in missing},
            forbid={pattern: devices for pattern, devices in self.forbid.items() if pattern not in missing},
            colocate=[[pattern for pattern in patterns if pattern not in missing] for patterns in self.colocate],
        )


_FORMS = {
    "pin": "pin={pattern: device}",
    "forbid": "forbid={pattern: device or [device, ...]}",
    "max_memory": 'max_memory={device: "10GiB"}',
}


def _names(devices: object) -> bool:
    return isinstance(devices, Collection) and all(isinstance(device, str) for device in devices)


LAYER = "layer:"
"""Prefix of a pattern of layers instead of op names. TensorFlow's op names have no colon."""

_OF_SLICES = re.compile(r"slice[\d*?\[]")
_WILDCARD = re.compile(r"[*?]|\[[^\]]*\]")
_NEAR = 5


def match_ops(pattern: str, graph: OpGraph) -> list[int]:
    """Indices of the ops that a pattern matches, by op name or, after "layer:", by layer (see `OpGraph.layers`).

    In a split step, a pattern matches an op by its own name, or by the name of the op of the unsplit step behind it.

    Rules on layers leave out constants that are copied to their readers, since these follow their readers anyway.

    Raises:
      ConstraintError: nothing matches. The error lists similar names.
    """
    if pattern.startswith(LAYER):
        found = {v for name in match_layers(pattern, graph) for v in graph.layers[name].tolist()}
        return sorted(v for v in found if not graph.replicable[v])
    ops = _named(pattern, graph)
    if not ops:
        near = _near_ops(pattern, graph.op_names)
        hint = "Near names: " + ", ".join(near) if near else f"The first op is {graph.op_names[0]!r}."
        raise ConstraintError(
            f"a constraint on {pattern!r}, which matches no op", "a pattern that matches op names", hint
        )
    return ops


def _named(pattern: str, graph: OpGraph) -> list[int]:
    """Indices of the ops that a pattern matches by name."""
    names = zip(graph.op_names, graph.base_names, strict=True)
    return [i for i, both in enumerate(names) if any(fnmatch.fnmatchcase(name, pattern) for name in {*both})]


def match_layers(pattern: str, graph: OpGraph) -> list[str]:
    """Names of the layers that "layer:NAME" matches; if none does, inner layers whose last name part matches.

    Raises:
      ConstraintError: nothing matches. The error lists similar names.
    """
    wanted = pattern.removeprefix(LAYER)
    for inner in ("", "*/"):
        found = [name for name in graph.layers if fnmatch.fnmatchcase(name, inner + wanted)]
        if found:
            return found
    known = list(graph.layers)
    parts = list(dict.fromkeys(part for name in known for part in (name, name.rpartition("/")[2])))
    near = near_names(_plain(wanted), parts, _NEAR) or known[:_NEAR]
    hint = f"Layers: {', '.join(near)}{', ...' if len(known) > len(near) else ''}; OpGraph.layers has them all."
    raise ConstraintError(
        f"a constraint on {pattern!r}, which matches no layer",
        f"a layer of {graph.name!r}",
        hint if known else "Op names show no layers: use patterns of op names.",
    )


def _near_ops(pattern: str, names: Sequence[str]) -> list[str]:
    """Ops whose names contain the pattern's text between wildcards, else those with a similar name or name part."""
    plain = _plain(pattern).lower()
    near = [name for name in names if plain and plain in name.lower()][:_NEAR] or near_names(pattern, names, _NEAR)
    if near or not plain:
        return near
    first: dict[str, str] = {}
    for name in names:
        for part in name.split("/"):
            first.setdefault(part, name)
    return list(dict.fromkeys(first[part] for part in near_names(plain.rpartition("/")[2], first, _NEAR)))


def _plain(pattern: str) -> str:
    """The longest part of a pattern without wildcards.

    >>> _plain("*/conv7_*/Mat?")
    'conv7_'
    """
    return max((text.strip("/") for text in _WILDCARD.split(pattern)), key=len)
