"""Profile: op seconds measured on real devices, by signature, and the file they are kept in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from tfplace.core.device import Device
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.files import parse_json, path_of, write_whole

FORMAT = "tfplace-profile/1"

_Row = TypeVar("_Row", "OpTime", "ProfiledStep")


@dataclass(frozen=True)
class OpTime:
    """Measured time of all ops with one signature.

    Attributes:
      seconds: of one execution inside the kernel: the mean over the ops of each op's median over the steps, so that the
        ops' times still add up to the step's.
      spread_s: interquartile range over the steps, the mean over the ops.
      ops: how many ops of the graph had the signature.
      steps: traced steps.
    """

    seconds: float
    spread_s: float
    ops: int
    steps: int


@dataclass(frozen=True)
class ProfiledStep:
    """One graph's step on the device: what the ops' times are compared with.

    Attributes:
      graph: its name.
      fingerprint: its fingerprint.
      measured: when, ISO 8601.
      step_s: median seconds of a step without tracing.
      empty_s: median seconds of a step of one op that does nothing: what a call costs.
      ops_s: seconds inside kernels, all executions of one step.
      executions: of ops in one step.
      compiled_s: median seconds of a step that XLA compiles; 0 if that was not measured.
    """

    graph: str
    fingerprint: str
    measured: str
    step_s: float
    empty_s: float
    ops_s: float
    executions: int
    compiled_s: float = 0.0


@dataclass(frozen=True)
class DeviceProfile:
    """What was measured on one device model under one setting.

    Attributes:
      model: as in `Device.model`.
      type: TensorFlow device type.
      tensorflow: TensorFlow's version.
      threads: how many ops, and threads within an op, ran at once, in words.
      ops: signature -> time.
      steps: graphs whose steps were measured, oldest first.
    """

    model: str
    type: str
    tensorflow: str
    threads: str
    ops: Mapping[str, OpTime]
    steps: tuple[ProfiledStep, ...]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Times are comparable where this is the same."""
        return self.model, self.type, self.tensorflow, self.threads

    @property
    def overhead_s(self) -> float:
        """Seconds the executor adds to every execution: what the steps took beyond the calls and the kernels."""
        rest = sum(s.step_s - s.empty_s - s.ops_s for s in self.steps)
        return max(0.0, rest / sum(s.executions for s in self.steps)) if self.steps else 0.0

    def step(self, fingerprint: str) -> ProfiledStep | None:
        """The measured step of the graph with this fingerprint, if it was one."""
        return next((s for s in self.steps if s.fingerprint == fingerprint), None)

    def updated(self, other: DeviceProfile) -> DeviceProfile:
        """Both; where both have a signature or a graph, `other`'s."""
        steps = {s.fingerprint: s for s in (*self.steps, *other.steps)}
        return DeviceProfile(*self.key, {**self.ops, **other.ops}, tuple(steps.values()))


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """Op seconds by device model and signature.

    Attributes:
      devices: one per device model and setting; of those of one model the last counts.
    """

    devices: tuple[DeviceProfile, ...] = ()

    def of(self, device: Device) -> DeviceProfile | None:
        """What was measured on a device's model; several devices of one model share it."""
        fitting = [p for p in self.devices if p.model == device.model and p.type == device.type]
        return fitting[-1] if fitting else None

    def check(self, topology: Topology) -> None:
        """Nothing, if it knows a device like one of these.

        Raises:
          InputError: nothing of it was measured on such a device.
        """
        if not any(self.of(device) for device in topology.devices):
            raise InputError(
                f"a profile of {', '.join(sorted({repr(p.model) for p in self.devices})) or 'no device'}",
                f"a profile of a device of {topology.name!r}: "
                + ", ".join(sorted({f"{device.model!r} ({device.type})" for device in topology.devices})),
                "A profile applies to devices with the same `model` in the topology. A profile of one core fits "
                "topologies of `tfplace calibrate --workers=N`.",
            )

    def find(self, key: tuple[str, str, str, str]) -> DeviceProfile:
        """What was measured under a setting; empty if nothing was."""
        return next((p for p in self.devices if p.key == key), DeviceProfile(*key, {}, ()))

    def updated(self, mine: DeviceProfile) -> Profile:
        """With `mine` merged into what there is of its setting, which then stands last."""
        rest = tuple(p for p in self.devices if p.key != mine.key)
        return Profile((*rest, self.find(mine.key).updated(mine)))

    def __repr__(self) -> str:
        return f"Profile({', '.join(f'{p.model!r}: {len(p.ops)} signatures' for p in self.devices)})"

    def save(self, path: str | Path) -> None:
        """Writes the profile as JSON, whole or not at all."""
        data = {"format": FORMAT, "devices": [_plain(p) for p in self.devices]}
        write_whole(path, json.dumps(data, indent=1) + "\n")

    @classmethod
    def load(cls, source: str | Path | Profile) -> Profile:
        """Reads a file written by `save`; a profile itself is passed on.

        Raises:
          InputError: no such file, or not a profile; says where it is wrong.
        """
        if isinstance(source, Profile):
            return source
        path = path_of("profile", source)
        try:
            data = parse_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(
                f"profile {str(path)!r} ({error.strerror})", "a profile file", "Write one with tfplace profile."
            ) from error
        except ValueError as error:
            raise InputError(f"{str(path)!r}, which is not JSON ({error})", "a profile file") from error
        return cls.from_dict(data, path.name)

    @classmethod
    def from_dict(cls, data: Any, where: str = "profile") -> Profile:
        """Reads the file's content.

        Raises:
          InputError: names the entry, the value and what was expected.
        """
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        if found != FORMAT:
            hint = "Profiles of other versions of tfplace must be measured again."
            raise InputError(f"{where}: format {found!r}", f"format {FORMAT!r}", hint)
        entries = _get(data, "devices", list, where)
        return cls(tuple(_device(entry, f"{where}: devices[{i}]") for i, entry in enumerate(entries)))


_TEXTS = ("model", "type", "tensorflow", "threads")


def _plain(profile: DeviceProfile) -> dict[str, Any]:
    """A device's entry; an op's time is the list of its fields, since there are thousands."""
    return {
        **dict(zip(_TEXTS, profile.key, strict=True)),
        "op_fields": [f.name for f in fields(OpTime)],
        "ops": {signature: list(asdict(time).values()) for signature, time in profile.ops.items()},
        "steps": [asdict(step) for step in profile.steps],
    }


def _device(entry: Any, where: str) -> DeviceProfile:
    if not isinstance(entry, dict):
        raise InputError(f"{where}: {type(entry).__name__}", "a JSON object")
    names = [f.name for f in fields(OpTime)]
    if entry.get("op_fields") != names:
        raise InputError(f"{where}: op_fields {entry.get('op_fields')!r}", f"{names}")
    ops = {
        signature: _row(OpTime, row, f"{where}: ops[{signature!r}]")
        for signature, row in _get(entry, "ops", dict, where).items()
    }
    steps = []
    for i, step in enumerate(_get(entry, "steps", list, where)):
        at = f"{where}: steps[{i}]"
        values = [step.get(f.name, _default(f)) for f in fields(ProfiledStep)] if isinstance(step, dict) else step
        steps.append(_row(ProfiledStep, values, at))
    model, kind, tensorflow, threads = (_get(entry, name, str, where) for name in _TEXTS)
    return DeviceProfile(model, kind, tensorflow, threads, ops, tuple(steps))


def _default(field: Field[Any]) -> Any:
    """What files of earlier versions lack is as if it was not measured."""
    return None if field.default is MISSING else field.default


def _get(entry: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    if not isinstance(entry.get(key), kind):
        raise InputError(f"{where}: {key} {entry.get(key)!r:.80}", f"{key} as a JSON {_KINDS[kind]}")
    return entry[key]


_KINDS: dict[type, str] = {str: "text", list: "list", dict: "object"}


def _row(kind: type[_Row], values: Any, where: str) -> _Row:
    """A dataclass of numbers and texts from its fields' values."""
    wanted = fields(kind)
    if not isinstance(values, Sequence) or len(values) != len(wanted):
        raise InputError(f"{where}: {values!r:.80}", f"values of {', '.join(f.name for f in wanted)}")
    for field, value in zip(wanted, values, strict=True):
        text = field.type == "str"
        if isinstance(value, str) != text or (not text and not _is_quantity(value, whole=field.type == "int")):
            expected = (
                "a text" if text else "a whole number above 0" if field.type == "int" else "seconds of at least 0"
            )
            raise InputError(f"{where}: {field.name} {value!r}", expected)
    return kind(*values)


def _is_quantity(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return math.isfinite(value) and value >= (1 if whole else 0)
