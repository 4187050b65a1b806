"""Every option of placing and comparing, once: type, default, help and spelling.

`tfplace.place`, `tfplace.compare`, `PlacementCallback`, the flags of the `tfplace` command, what a run directory
records and the tables in docs/ are made from these fields. A new option is a field here, and its use.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, cast

from tfplace.core.compilation import AUTO as AUTO_COMPILE
from tfplace.core.compilation import COMPILATIONS
from tfplace.core.constraints import Constraints
from tfplace.core.engine import Controllers, Engine
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.slices import AUTO, BATCH_NORMS, PER_SLICE
from tfplace.core.stepcost import SIMULATED, STEP_TIME, THROUGHPUT
from tfplace.core.topology import Topology
from tfplace.engines.choose import FORM, chosen_engine
from tfplace.engines.sockets import worker_addresses
from tfplace.errors import InputError
from tfplace.option_fields import Options, option
from tfplace.registry import EVALUATORS, GROUPERS, OBJECTIVES, SERVICES

if TYPE_CHECKING:
    from distributed import Client

    from tfplace.cost.profile import Profile

BASELINES = ("round_robin", "expert", "heft")
"""Placers reported beside every placement, after each single device."""

OF_SLICES = ("data_parallel",)
"""Placers that join both of these where the step is split: what users would take instead."""

GROUPS = 256
"""How many groups a grouper makes by default."""

COMPARED = {
    STEP_TIME: ("expert", "m_sct", "metis", "annealing", "placeto", "auto"),
    THROUGHPUT: ("expert", "metis", "contiguous", "annealing", "auto"),
}
"""Placers that are compared if no others are named, by objective."""

_MOST_CONTROLLERS = 1000
"""Processes that one machine may be asked for."""


def _digest(options: SearchOptions) -> str | None:
    """Of the weights' content, which may change under its name."""
    if options.weights is None:
        return None
    with Path(options.weights).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_slices(flag: str, text: str) -> int | str | tuple[int, ...]:
    """How many slices, or the examples of each, or AUTO."""
    if text == AUTO:
        return text
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"{flag}={text}", f"{flag}=NUMBER, or the examples of each slice such as {flag}=12,12,4,4")
    return int(text) if len(parts) == 1 else tuple(map(int, parts))


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """How the batch of a step is split before it is placed."""

    title: ClassVar[str] = "Model"

    slices: int | str | Sequence[int] | None = option(
        None,
        "Number of slices of the batch, or the examples of each; every slice is placed by itself. auto finds the best "
        "number when placing",
        unset="none",
        page="concepts/splitting.md",
        form="NUMBER|EXAMPLES,...|auto",
        read=_read_slices,
        recorded=lambda options: list(options.slices) if isinstance(options.slices, tuple) else options.slices,
    )
    batch_norm: str = option(
        PER_SLICE,
        f"Statistics of BatchNorm in a split step: {' or '.join(BATCH_NORMS)} (over the batch)",
        page="concepts/splitting.md",
        form="NAME",
        recorded=lambda options: None if options.slices is None else options.batch_norm,
    )
    pack: bool = option(
        False,
        "Send gradients and variables of a split step packed together; faster for compiled steps, and where messages "
        "are expensive, such as between processes",
        kind=bool,
        page="concepts/splitting.md",
        recorded=lambda options: None if options.slices is None else options.pack,
    )


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(SplitOptions):
    """Devices, costs, rules and budget: the options that placing and comparing share."""

    title: ClassVar[str] = "Problem"

    topology: Topology | str | Path | None = option(
        None,
        "Devices and links: a preset of `tfplace topologies`, or a topology file",
        unset="the devices of this machine",
        page="reference/topology.md",
        form="NAME|FILE",
        recorded=False,
    )
    profile: Profile | str | Path | None = option(
        None,
        "Op times measured by `tfplace profile`",
        unset="estimates from the topology's rates",
        page="concepts/costs.md",
        form="FILE",
        recorded=False,
    )
    compile: str = option(
        AUTO_COMPILE,
        f"How to run the step: {', '.join(COMPILATIONS)}. xla compiles the ops of each device in clusters; auto does "
        "this if the model asks for jit_compile and it is not slower",
        page="concepts/compiling.md",
        form="NAME",
        recorded=lambda options: None if options.compile == AUTO_COMPILE else options.compile,
    )
    constraints: Constraints | None = option(
        None,
        "`tfplace.Constraints`: pin, forbid and colocate ops or layers by name, keep memory free",
        unset="none",
        flag=None,
        recorded=False,
    )
    max_memory: Mapping[str, int | str] | None = option(
        None,
        "Memory limit of a device, or of all that match a pattern, such as GPU:0=10GiB",
        unset="the devices' own memory",
        kind=dict,
        form="DEVICE=SIZE",
        repeated=True,
        recorded=False,
    )
    grouper: str | None = option(
        None,
        f"Place groups of ops; one of {', '.join(GROUPERS)}",
        unset="no groups",
        page="concepts/grouping.md",
        form="NAME",
    )
    groups: int | None = option(
        None,
        "Number of groups to make",
        unset=str(GROUPS),
        kind=int,
        form="NUMBER",
        least=1,
        recorded=lambda options: options.groups if options.grouper else None,
    )
    objective: str = option(
        STEP_TIME,
        f"What to minimize: {' or '.join(OBJECTIVES)} (the largest load of a device in a full pipeline)",
        page="concepts/objectives.md",
        form="NAME",
        recorded=False,
    )
    budget: str | float | int = option(
        "30s",
        "Time to search, such as 30s or 2min, or a number of simulated placements, such as '500 evaluations'",
        form="BUDGET",
        recorded=False,
    )
    engine: str | Engine | Client | None = option(
        None,
        "Run on several workers: processes:NUMBER on this machine, dask for a Dask cluster on this machine, or "
        "dask:ADDRESS of a Dask scheduler",
        python="; also an engine, or a running distributed.Client",
        unset="this process",
        page="how_to/more_than_one_machine.md",
        form=FORM,
        recorded=False,
    )
    progress: Callable[..., None] | bool = option(
        True,
        "Whether to show a bar on a terminal or in a notebook",
        python="; in `place` also a function that is called with the best so far",
        flag=None,
        recorded=False,
    )

    def check(self) -> Self:
        """The same options, with files read and numbers as Python's own.

        No model is read, and TensorFlow is not loaded.

        Raises:
          InputError: an option is invalid, or two options conflict.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ProblemOptions):
    """The options of `tfplace.place`, beside the model."""

    title: ClassVar[str] = "Search"

    placer: str = option(
        "auto",
        "Name of a placer (see `tfplace placers`), or module:class of your own",
        page="concepts/placers.md",
        form="NAME",
    )
    seed: int = option(0, "Random seed", kind=int, form="NUMBER", least=0)
    baselines: Sequence[str] | None = option(
        None,
        "Placers to report beside the result",
        unset=f"{', '.join(BASELINES)}; for a split step {', '.join(OF_SLICES)} and MirroredStrategy, too",
        kind=tuple,
        form="NAME,NAME",
        recorded=False,
    )
    evaluator: str | Evaluator | Callable[[Problem], Evaluator] = option(
        SIMULATED,
        f"How to evaluate a placement: {', '.join(EVALUATORS)}",
        python="; also an evaluator, or a function that makes one for the problem",
        page="how_to/measure.md",
        form="NAME",
        recorded=False,
    )
    init: Placement | str | Path | None = option(
        None,
        "Warm start: a placement, a file of one, or the name of a placer that makes one",
        unset="none",
        page="concepts/placers.md",
        form="FILE|NAME",
        recorded=False,
    )
    run_dir: str | Path | None = option(
        None,
        "Checkpoint directory. Run the same command again to resume",
        unset="none",
        page="how_to/resume.md",
        form="DIRECTORY",
        recorded=False,
    )
    resume: bool = option(
        True, "Resume the search in run_dir; otherwise a run_dir with a search is an error", kind=bool, recorded=False
    )
    controllers: int | Controllers = option(
        0,
        "Processes that train a policy together, on this machine or on the engine; 0 trains in this process",
        page="concepts/learned_policies.md",
        kind=int,
        form="NUMBER",
        least=0,
        recorded=lambda options: options.together and options.together.number,
    )
    asynchronous: bool = option(
        False,
        "Apply each controller's gradient at once instead of the mean of all",
        kind=bool,
        recorded=lambda options: options.together and options.together.asynchronous,
    )
    weights: str | Path | None = option(
        None,
        "Weights of a pretrained policy, from scripts/train_policy.py",
        unset="those that come with tfplace",
        page="concepts/pretrained_policies.md",
        form="FILE",
        recorded=_digest,
    )
    fine_tune: int | None = option(
        None,
        "Updates that a pretrained policy makes on this graph",
        unset="none",
        page="concepts/pretrained_policies.md",
        kind=int,
        form="NUMBER",
        least=0,
    )
    tensorboard: str | Path | None = option(
        None, "Directory for TensorBoard logs", unset="none", form="DIRECTORY", recorded=False
    )

    @property
    def together(self) -> Controllers | None:
        """Who trains a policy together; None for this process alone.

        Raises:
          InputError: no number of processes, or two answers to where they are or whether gradients wait.
        """
        if isinstance(self.controllers, Controllers):
            if self.asynchronous and not self.controllers.asynchronous:
                raise InputError(f"asynchronous=True with {self.controllers}", "Controllers(..., asynchronous=True)")
            if self.engine is not None:
                raise InputError(f"{self.spelled('engine')} with {self.controllers}", "Controllers(engine, ...) alone")
            return self.controllers
        try:
            count = operator.index(self.controllers)
        except TypeError:
            count = -1
        if not 0 <= count <= _MOST_CONTROLLERS:
            expected = f"a number of processes, at most {_MOST_CONTROLLERS}, or tfplace.core.engine.Controllers"
            raise InputError(self.spelled("controllers"), expected)
        if not count:
            return None
        from tfplace.engines.process_workers import ProcessEngine

        engine = ProcessEngine(count) if self.engine is None else chosen_engine(self.engine)
        return Controllers(engine, self.asynchronous, count)

    def check(self) -> Self:
        """See `ProblemOptions.check`.

        Raises:
          InputError: an option is invalid, or two options conflict.
          MissingExtraError: a package that the placer or TensorBoard needs is not installed.
        """
        return cast("Self", SERVICES["check_search"](self))


@dataclass(frozen=True, kw_only=True)
class PlanOptions(SearchOptions):
    """The options of `tfplace.plan`, beside the model."""

    title: ClassVar[str] = "Plan"
    left_out: ClassVar[tuple[str, ...]] = (
        "slices", "pack", "grouper", "groups", "objective", "placer", "baselines", "evaluator", "init",
        "run_dir", "resume", "controllers", "asynchronous", "weights", "fine_tune", "tensorboard",
    )  # fmt: skip

    exact: bool = option(False, "Take only rows with the same numbers as the plain step, up to rounding", kind=bool)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ProblemOptions):
    """The options of `tfplace.compare`, beside the model."""

    title: ClassVar[str] = "Comparison"

    placers: Sequence[str] | None = option(
        None,
        "Names of placers, or module:class of your own",
        unset="; for throughput ".join(map(", ".join, COMPARED.values())),
        page="concepts/placers.md",
        kind=tuple,
        form="NAME,NAME",
    )
    seeds: int = option(3, "Runs of each placer with random choices", kind=int, form="NUMBER", least=1)
    folder: str | Path | None = option(
        None,
        "Directory for the runs, the best placement and the report. Run the same command again to resume",
        unset="none",
        flag="out",
        form="DIRECTORY",
        recorded=False,
    )

    def check(self) -> Self:
        """See `ProblemOptions.check`.

        Raises:
          InputError: an option is invalid, or two options conflict.
        """
        return cast("Self", SERVICES["check_comparison"](self))


@dataclass(frozen=True, kw_only=True)
class FitOptions(SearchOptions):
    """The options of `PlacementCallback`. Its placements are simulated."""

    title: ClassVar[str] = "Fit"
    left_out: ClassVar[tuple[str, ...]] = ("evaluator", "progress")

    verbose: int = option(
        1, "0 prints nothing; 1 prints the plan, the placement, and the ops that TensorFlow moved", recorded=False
    )
    devices: Mapping[str, str] | None = option(
        None, "Topology's device name -> TensorFlow device on this machine", unset="the same names", recorded=False
    )
    placement: Placement | str | Path | None = option(
        None,
        "A placement made earlier for this model and batch, or a file of one, instead of a search",
        unset="none",
        recorded=False,
    )
    exact: bool = option(
        True,
        "Take only rows of the plan with the same numbers as the plain step, up to rounding",
        page="concepts/plans.md",
        recorded=False,
    )
    cluster: str | Sequence[str] | None = option(
        None,
        "Workers whose devices run the step, such as 10.0.0.7:2222,10.0.0.8:2222; start each with `tfplace worker`",
        unset="the devices of this process",
        page="how_to/more_than_one_machine.md",
        recorded=False,
    )

    def check(self) -> Self:
        """See `ProblemOptions.check`.

        Raises:
          InputError: an option is invalid, or two options conflict.
          ClusterError: an address is wrong.
          MissingExtraError: a package that the placer or TensorBoard needs is not installed.
        """
        checked = super().check()
        if checked.cluster is None:
            return checked
        addresses = worker_addresses(checked.cluster)
        if checked.topology is None and checked.placement is None:
            raise InputError(
                f"{self.spelled('cluster')} without a topology",
                "a topology of the workers' devices, or a placement",
                f"Make one with: tfplace calibrate --cluster={','.join(addresses)} --output=topology.json",
            )
        return replace(checked, cluster=addresses)

    @property
    def plans(self) -> bool:
        """Whether a plan decides how `fit` runs: where nothing is asked for that only one search has."""
        usual = type(self)(topology=None)
        of_one_search = (*(name for name in PlanOptions.left_out if name in self.declared()), "placement")
        asked = [name for name in of_one_search if name != "pack" and getattr(self, name) != getattr(usual, name)]
        return asked in ([], ["slices"]) and (self.slices is None or self.slices == AUTO)
