"""The flags of placing and comparing: the options of Python, and those that only the command has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tfplace.cli.click_options import once, pairs
from tfplace.cli.source import SUFFIXES
from tfplace.core.constraints import Constraints
from tfplace.core.stepcost import MEASURED
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.option_fields import Options, option
from tfplace.options import CompareOptions, PlanOptions, ProblemOptions, SearchOptions, SplitOptions


class Flags(Options):
    """Options of a command, which errors spell as flags."""

    def spelled(self, name: str) -> str:
        """A flag with its value, as the user gave it."""
        flag, value = self.declared()[name].flag, getattr(self, name)
        if isinstance(value, Mapping):
            return " ".join(f"--{flag}={left}={right}" for left, right in value.items())
        if isinstance(value, bool):
            value = str(value).lower()
        return f"--{flag}={','.join(map(str, value)) if isinstance(value, tuple) else value}"


def _params(flag: str, texts: Iterable[str]) -> Mapping[str, str]:
    return once(flag, pairs(flag, texts, "NAME=VALUE", first=True))


def _shapes(flag: str, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
    """Dimensions by input; "()" is a scalar's."""
    out = {}
    for name, text in once(flag, pairs(flag, texts, "INPUT=DIM,DIM")).items():
        dimensions = [] if text == "()" else text.split(",")
        if not all(part.strip().isdecimal() for part in dimensions):
            raise InputError(f"{flag}={name}={text}", f'{flag}={name}= and whole numbers such as 8,128, or "()"')
        out[name] = tuple(map(int, dimensions))
    return out


def _forbidden(flag: str, texts: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Devices by pattern; those of one pattern add up."""
    out: dict[str, list[str]] = {}
    for pattern, devices in pairs(flag, texts, "PATTERN=DEVICE,..."):
        out.setdefault(pattern, []).extend(devices.split(","))
    return out


def _together(flag: str, texts: Iterable[str]) -> Sequence[Sequence[str]]:
    return tuple(text.split(",") for text in texts)


@dataclass(frozen=True, kw_only=True)
class BuildFlags(Flags):
    """How a model is built and read."""

    title: ClassVar[str] = "Model"

    batch: int | None = option(None, "Examples in one step", unset="the model's own", kind=int, form="NUMBER", least=1)
    param: Mapping[str, str] | None = option(
        None, "A parameter of the model's function", kind=dict, form="NAME=VALUE", repeated=True, read=_params
    )
    shape: Mapping[str, tuple[int, ...]] | None = option(
        None,
        "For files: the dimensions of an input, by its name or its index",
        kind=dict,
        form="INPUT=DIM,DIM",
        repeated=True,
        read=_shapes,
    )
    fetch: tuple[str, ...] = option(
        (), "For graph files: an op that the step must run. For SavedModels: the signature", form="NAME", repeated=True
    )
    inference: bool = option(False, "For Keras models: inference instead of the training step", kind=bool)


@dataclass(frozen=True, kw_only=True)
class ReadFlags(SplitOptions, BuildFlags):
    """How a model is built, its batch split, and its graph read."""

    title: ClassVar[str] = "Model"


@dataclass(frozen=True, kw_only=True)
class ModelFlags(Flags):
    """Which model is placed."""

    title: ClassVar[str] = "Model"

    model: str | None = option(
        None,
        f"A model of the zoo (see `tfplace models`), a SavedModel directory, a file ({', '.join(SUFFIXES)}), or "
        "module:function",
        page="reference/models.md",
        form="MODEL",
    )


@dataclass(frozen=True, kw_only=True)
class RuleFlags(Flags):
    """Where ops may go; `tfplace.Constraints` in Python."""

    title: ClassVar[str] = "Rules"

    pin: Mapping[str, str] | None = option(
        None, "Ops, or layers as layer:NAME, that must be on a device", kind=dict, form="PATTERN=DEVICE", repeated=True
    )
    forbid: Mapping[str, Sequence[str]] | None = option(
        None, "Devices that ops or layers must not be on", form="PATTERN=DEVICE,...", repeated=True, read=_forbidden
    )
    colocate: Sequence[Sequence[str]] = option(
        (), "Ops or layers that stay together", form="PATTERN,PATTERN,...", repeated=True, read=_together
    )
    headroom: float = option(0.0, "Fraction of every device's memory to keep free", kind=float, form="FRACTION")

    @property
    def rules(self) -> Constraints:
        """What they say.

        Raises:
          ConstraintError: a rule is wrong.
        """
        return Constraints(pin=self.pin or {}, forbid=self.forbid or {}, colocate=self.colocate, headroom=self.headroom)


@dataclass(frozen=True, kw_only=True)
class MeasureFlags(Flags):
    """On what steps are measured."""

    title: ClassVar[str] = "Measuring"

    workers: int = option(
        0,
        "Measure on this number of one-core workers of this machine",
        unset="none",
        kind=int,
        form="NUMBER",
        least=0,
        page="reference/workers.md",
    )
    cluster: tuple[str, ...] = option(
        (), "Measure on workers that run already", kind=tuple, form="HOST:PORT,HOST:PORT", page="reference/workers.md"
    )
    step_timeout: str | None = option(None, "Time limit of a measured step", unset="2min", form="TIME")


@dataclass(frozen=True, kw_only=True)
class ReportFlags(Flags):
    """How results are shown."""

    title: ClassVar[str] = "Output"

    json: bool = option(False, "Print one JSON object instead of tables", kind=bool)
    quiet: bool = option(False, "No progress and no notes on stderr", kind=bool)


@dataclass(frozen=True, kw_only=True)
class ProblemFlags(ProblemOptions, RuleFlags, ReadFlags, ModelFlags):
    """What is placed where, and by what rules."""

    def required_model(self) -> str:
        """What --model names.

        Raises:
          InputError: it is not given.
        """
        if not self.model:
            expected = "--model=NAME, PATH or module:function"
            raise InputError("no --model", expected, "See tfplace models for names.")
        return self.model

    @property
    def known_topology(self) -> Topology | None:
        """The topology of checked flags; None for the devices of this machine."""
        return None if self.topology is None else Topology.load(self.topology)


@dataclass(frozen=True, kw_only=True)
class PlanFlags(ReportFlags, PlanOptions, ProblemFlags):
    """The flags of `tfplace plan`."""

    title: ClassVar[str] = "Output"

    out: str | None = option(
        None, "Directory for the plan, its placements and the report", unset="none", form="DIRECTORY"
    )
    run: int = option(
        0,
        "Run the best rows for this number of steps on the devices of this machine, and take the fastest",
        unset="simulate only",
        kind=int,
        form="STEPS",
        least=0,
    )
    explain: bool = option(
        False, "Print why the row is the fastest, what would help most, and where its layers are", kind=bool
    )
    largest_batch: bool = option(
        False,
        "Find the largest batch that fits, starting at --batch. Each size gets a tenth of the budget",
        kind=bool,
    )
    verbose: bool = option(False, "Print every row and note", kind=bool)
    against: str | None = option(
        None, "Directory of an earlier plan: print what changed", unset="none", form="DIRECTORY"
    )


@dataclass(frozen=True, kw_only=True)
class PlaceFlags(ReportFlags, MeasureFlags, SearchOptions, ProblemFlags):
    """The flags of `tfplace place`."""

    title: ClassVar[str] = "Output"

    out: str | None = option(
        None, "Directory for placement, trace, placed graph, topology and report", unset="none", form="DIRECTORY"
    )
    layers: bool = option(False, "Also print the devices, memory and seconds of each layer", kind=bool)
    verbose: bool = option(False, "Print every baseline, device and note", kind=bool)

    @property
    def measures(self) -> bool:
        """Whether steps are measured."""
        return self.evaluator == MEASURED

    @property
    def measures_here(self) -> bool:
        """Whether steps run on the devices of this process, all of which it then has to see."""
        return self.measures and not self.workers and not self.cluster


@dataclass(frozen=True, kw_only=True)
class CompareFlags(ReportFlags, CompareOptions, ProblemFlags):
    """The flags of `tfplace compare`."""
