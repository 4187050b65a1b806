"""One cell of a comparison: a placer, with a seed and a budget, on a graph and a topology."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

from tfplace.comparison.incumbents import incumbents_of, short
from tfplace.core.graph import OpGraph
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.stepcost import STEP_TIME
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import TfplaceError, describe_error, error_location
from tfplace.group.co_placement import merge
from tfplace.group.merge import merge_units
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.options import OF_SLICES
from tfplace.registry import OBJECTIVES, PLACERS
from tfplace.search.budget import Budget
from tfplace.search.clock import Clock, worked_s
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator

CONSTRUCTIVE = (
    "single",
    "expert",
    "heft",
    "etf",
    "m_etf",
    "m_sct",
    "m_topo",
    "critical_path",
    "metis",
    "scotch",
    "min_cut",
    "round_robin",
    "random",
)
"""Placers that make one placement, or a few, and stop."""

SEARCHES = (
    "random_search",
    "hill_climbing",
    "annealing",
    "cross_entropy",
    "brkga",
    "local_search",
    "auto",
)
"""Placers that go on until the budget is used up."""

LEARNED = (
    "policy_gradient",
    "post_ce",
    "post_ppo",
    "post",
    "placeto_scratch",
    "gdp_scratch",
    "seq2seq",
    "hierarchical",
)
"""Policies that learn on the graph they place; see docs/concepts/learned_policies.md."""

AT_ONCE = ("placeto_untrained", "placeto", "gdp")
"""Policies that were trained beforehand and place at once, and the same without their training."""

YARDSTICKS = ("contiguous", "load_search", "exact", "untrained")
"""Placers for throughput or for small graphs (docs/concepts/objectives.md), and what policies draw that do not
learn; not run unless they are named."""

SHARE = 0.95
"""What part of a processor is the whole of one, as far as searches that end by the clock are concerned."""

PIPELINES = ("gpipe", "one_f_one_b", "pipedream", "mixed")
"""Placers of split steps that make the best of a few placements; not run unless they are named."""

_ONE_SEED = {*CONSTRUCTIVE, *OF_SLICES, *PIPELINES} - {"random"}


@dataclass(frozen=True)
class Case:
    """What is placed where.

    Attributes:
      graph: its name.
      topology: a preset's name.
      tight: whether each accelerator has `spare` times its share of what one of them would need for everything, so
        that none can hold it alone; otherwise they have their own memory.
      spare: see `tight`.
      groups: what is placed are at most so many groups of the grouper `merge`; 0 places every unit by itself.
      objective: what is made small; what `step_s` counts here and in whatever is of this case.
    """

    graph: str
    topology: str
    tight: bool = False
    spare: float = 1.5
    groups: int = 0
    objective: str = STEP_TIME

    def __str__(self) -> str:
        memory = f", {'tight' if self.spare == 1.5 else f'{self.spare:g} shares of'} memory" if self.tight else ""
        groups = f", {self.groups} groups" if self.groups else ""
        objective = "" if self.objective == STEP_TIME else f", {self.objective}"
        return f"{self.graph} on {self.topology}{memory}{groups}{objective}"


@dataclass(frozen=True)
class Trained:
    """A policy with weights of one's own, under a name of its own.

    Attributes:
      placer: which policy.
      weights: file; `{family}` in it stands for the family of the graph.
      fine_tune: updates on the graph that is placed.
      options: what else the policy is made with.
    """

    placer: str
    weights: str
    fine_tune: int = 0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def placer_for(self, case: Case) -> Placer:
        """The policy for a graph; it reads its file when it places."""
        weights = self._weights(case.graph)
        made: Placer = PLACERS[self.placer](weights=weights, fine_tune=self.fine_tune, **self.options)
        return made

    def _weights(self, graph: str) -> str:
        return self.weights.replace("{family}", graph.rpartition("_")[0])

    def code(self, graph: str) -> str:
        """Digest of the weights for a graph and of what is done with them: what others find is not what these find.

        Raises:
          InputError: there are no such weights, or they are no weights of this policy.
        """
        from tfplace.learned.training.pretrained import Pretrained

        return Pretrained.find(self._weights(graph), self.placer).digest(f"{self.placer} {self.fine_tune}")[:16]


@dataclass(frozen=True)
class Facts:
    """What is known of a case before anything is placed.

    Attributes:
      case: which one.
      ops: V.
      units: U, what is decided one by one.
      devices: D.
      bound_s: no placement's simulated step, or what else the objective counts, is shorter.
      fingerprint: of the graph.
    """

    case: Case
    ops: int
    units: int
    devices: int
    bound_s: float
    fingerprint: str

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Facts:
        """From plain data of JSON.

        Raises:
          TypeError: a value is of another type.
        """
        return _typed(cls(**{**data, "case": _typed(Case(**data["case"]))}))


@dataclass(frozen=True)
class Run:
    """What one placer found.

    Attributes:
      case: where.
      placer: its name.
      seed: of its random generator.
      step_s: simulated step seconds; None if it found nothing that fits, or could not run.
      over_bytes: what the best placement exceeds the memory by.
      evaluations: placements simulated.
      seconds: by the clock, but for those of compiling kernels; in older results with them.
      cpu_s: the same of the processor; in older results in hundredths.
      trail: (evaluations, seconds, step seconds, stage) of the first and the last placement that fits and was better
        than all before, and of those between that beat the one before by a part of `stride`; but for the last, rounded.
      trouble: why the placer could not run; empty if it could.
      failed: how many of the evaluations were of placements that do not fit, or were given up; not counted in older
        results.
      ran_s: for each of `trail`, and last for the whole run, the step seconds of all placements evaluated until then:
        what it would take to run one step of each; empty in older results.
      code: digest of a placer, or of weights, that are not tfplace's own: what an earlier version of them found is not
        what this one finds. Empty for those that are.
      stride: see `trail`; older results do not tell theirs, which is this.
    """

    case: Case
    placer: str
    seed: int
    step_s: float | None
    over_bytes: int
    evaluations: int
    seconds: float
    cpu_s: float
    trail: tuple[tuple[int, float, float, str], ...] = ()
    trouble: str = ""
    failed: int = 0
    ran_s: tuple[float, ...] = ()
    code: str = ""
    stride: float = 0.01

    def stands(self, code: str = "", budget: Budget | None = None) -> bool:
        """Whether it need not be run again.

        What could not run may be able to by now; the placer may be another; and a search that the clock ended may have
        shared its processor, and so come less far than others.

        Args:
          code: of the placer as it is now.
          budget: that it had; if None, nothing is asked about the processor.
        """
        by_clock = budget is not None and budget.seconds is not None and self.seconds >= budget.seconds
        return not self.trouble and self.code == code and not (by_clock and self.cpu_s < SHARE * self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; of the trail's stages only where each begins, and None until the next."""
        before = (None, *(stage for *_, stage in self.trail))
        pairs = zip(self.trail, before, strict=False)
        trail = [(*found, None if stage == last else stage) for (*found, stage), last in pairs]
        return {**asdict(self), "trail": trail}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Run:
        """The inverse of `to_dict`.

        Raises:
          TypeError, ValueError: a value is of another type, or not one of what it should be.
        """
        trail: list[tuple[int, float, float, str]] = []
        for evaluations, seconds, step_s, stage in data["trail"]:
            named = trail[-1][3] if stage is None and trail else str(stage)
            trail.append((int(evaluations), float(seconds), float(step_s), named))
        ran_s = tuple(map(float, data.get("ran_s", ())))
        return _typed(cls(**{**data, "case": _typed(Case(**data["case"])), "trail": tuple(trail), "ran_s": ran_s}))


_Cell = TypeVar("_Cell", Case, Facts, Run)


def _typed(made: _Cell) -> _Cell:
    """What was made of a file's values, which may be anything.

    Raises:
      TypeError: one is of another type.
    """
    of: Any = type(made)  # to mypy, classes of data cannot be hashed
    for name, kind in _types(of).items():
        if not isinstance(getattr(made, name), kind):
            raise TypeError(f"{name}={getattr(made, name)!r}")
    return made


@functools.cache
def _types(kind: type) -> dict[str, Any]:
    """What each attribute may be: also a whole number of seconds, and of tuples nothing more is asked."""
    more = {float: float | int, float | None: float | int | None}
    hints = get_type_hints(kind).items()
    return {name: tuple if get_origin(one) is tuple else more.get(one, one) for name, one in hints}


def seeds_of(placer: str, seeds: int) -> range:
    """The seeds with which a placer is run: one if none of its choices is random."""
    return range(1 if placer in _ONE_SEED else seeds)


def problem_of(graph: OpGraph, case: Case) -> Problem:
    """The problem of a case, with analytic costs."""
    from tfplace.core.constraints import Constraints
    from tfplace.group.problem import formulate

    topology = Topology.preset(case.topology)
    problem = formulate(graph, topology, analytic_costs(graph, topology), Constraints())
    if case.tight:
        problem = tightened(problem, case.spare)
    return merge_units(problem, merge(problem, case.groups)) if case.groups else problem


def tightened(problem: Problem, spare: float) -> Problem:
    """The problem with the memory of `Case.tight`."""
    simulator = Simulator(problem)
    accelerators = compute_devices(problem)
    need = max(int(simulator(single_device(problem, d)).peak_bytes[d]) for d in accelerators.tolist())
    limit = problem.memory_limit.copy()
    limit[accelerators] = np.minimum(limit[accelerators], int(spare * need / len(accelerators)))
    return dataclasses.replace(problem, memory_limit=limit)


def facts_of(problem: Problem, case: Case) -> Facts:
    """Counts and the bound; the latter takes seconds for large graphs."""
    graph = problem.graph
    bound_s = OBJECTIVES[case.objective](problem).bound_s
    return Facts(case, graph.num_ops, problem.num_units, problem.num_devices, bound_s, graph.fingerprint)


def run_cell(
    problem: Problem, case: Case, placer: str, budget: Budget, seed: int, *, trained: Trained | None = None
) -> Run:
    """What `run_placer` finds."""
    evaluator = Simulator(problem)
    _ = evaluator.bound_s  # for the page, as `tfplace place` tells it; what it takes is no part of the budget
    return run_placer(Search(problem, budget, seed, evaluator=evaluator), case, placer, seed, trained=trained)


def run_placer(
    search: Search,
    case: Case,
    placer: str,
    seed: int,
    *,
    trained: Trained | None = None,
    excused: tuple[type[BaseException], ...] = (TfplaceError,),
) -> Run:
    """Runs a placer; what it cannot do is part of the result, not an error.

    Args:
      search: a new one of the case's problem, with the placer's budget; has the placement that is found.
      case: where.
      placer: its name.
      seed: of the search.
      trained: what stands behind the name, if it is no placer's own.
      excused: errors that are a part of the result.

    Raises:
      KeyboardInterrupt: what was found by then is the search's.
    """
    clock, cpu = Clock(), _cpu_s()
    trouble = code = ""
    chosen = None
    try:
        code = code_of(placer) if trained is None else trained.code(case.graph)
        method = PLACERS[placer]() if trained is None else trained.placer_for(case)
        chosen = search.run(method, placer, interruptible=False)
    except excused as error:
        trouble = (
            str(error) if isinstance(error, TfplaceError) else f"{describe_error(error)} (see {error_location(error)})"
        )
    took, used = clock.seconds, _cpu_s() - cpu
    if chosen is not None and search.best is None:  # a placer that evaluates nothing
        search.record(chosen, search.evaluator.key(chosen), placer)
    over, step_s = search.best_key or (0, float("inf"))
    kept, stride = incumbents_of(search.history)
    return Run(
        case=case,
        placer=placer,
        seed=seed,
        step_s=step_s if search.best_key is not None and over == 0 else None,
        over_bytes=over,
        evaluations=search.evaluations,
        seconds=round(took, 3),
        cpu_s=round(used, 6),
        trail=tuple((f.evaluations, round(f.seconds, 3), f.key[1], f.stage) for f in kept),
        trouble=trouble,
        failed=search.failed,
        ran_s=tuple(short(seconds) for seconds in (*(f.ran_s for f in kept), search.ran_s)),
        code=code,
        stride=stride,
    )


def code_of(placer: str) -> str:
    """Digest of somebody's own placer; see `Run.code`."""
    source = PLACERS.source(placer)
    return hashlib.sha256(source.encode()).hexdigest()[:16] if source else ""


def _cpu_s() -> float:
    """Of this process and of those it has waited for, such as a solver's, but for those of compiling kernels."""
    others = os.times()
    return worked_s() + others.children_user + others.children_system
