"""`tfplace plan`: every way to run a model on some devices, and which to take."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tfplace.cli import source
from tfplace.cli.checks import output_directory
from tfplace.cli.click_options import PLACING_CODES, command
from tfplace.cli.console import present
from tfplace.cli.flags import PlanFlags
from tfplace.cli.problem import ProblemReader, checked
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.explanation import Explanation
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.plan import Plan
from tfplace.core.plan_diff import PlanDiff
from tfplace.core.problem import Problem
from tfplace.core.slices import AUTO
from tfplace.core.topology import Topology
from tfplace.errors import InfeasibleError, InputError, SourceError, SplitError
from tfplace.files import write_whole, writing
from tfplace.options import PlanOptions, SearchOptions
from tfplace.report.explanation_table import explanation_facts, explanation_tables
from tfplace.report.plan_table import plan_facts, plan_tables, verdict
from tfplace.report.progress import Stages
from tfplace.report.screen import plan_screen
from tfplace.simulation.replicas import Hosts

if TYPE_CHECKING:
    from rich.console import RenderableType


@command(PlanFlags, codes=PLACING_CODES)
def plan_command(flags: PlanFlags) -> None:
    """Finds the fastest way to train a model on some devices, and whether it fits.

    Raises:
      InputError, InfeasibleError: see the exit codes in docs/reference/cli.md.
      KeyboardInterrupt: before there was anything to tell.
    """
    flags = checked(flags)
    out = output_directory("out", flags.out)
    if flags.largest_batch:
        _largest_batch(flags, out)
        return
    earlier = None if flags.against is None else Plan.load(flags.against)
    files: dict[str, str] = {}
    with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        plan = _plan(flags, stages)
        beside = Beside(None if earlier is None else earlier.diff(plan), _explained(plan, flags, stages))
        if out is not None:
            files |= _keep(plan, out, stages)
    present(
        flags.json,
        lambda: plan_facts(plan) | beside.facts(),
        lambda: beside.tables(plan_tables(plan) if flags.verbose else plan_screen(plan, files)),
        files,
        listed=flags.verbose,
    )
    if plan.chosen is None:
        raise InfeasibleError(verdict(plan), [], ("Allow more memory, or take a smaller batch.",))


def _keep(plan: Plan, out: Path, stages: Stages) -> dict[str, str]:
    """Writes the plan and its report; what -> where."""
    from tfplace.report.page.directory import REPORT  # with numba, which --help can do without
    from tfplace.report.page.page import plan_page

    stages.stage("writing the plan and its report")
    with writing(out):
        plan.save(out)
    write_whole(out / REPORT, plan_page(plan))
    return {"plan": str(out), "report": str(out / REPORT)}


def _largest_batch(flags: PlanFlags, out: Path | None) -> None:
    """`--largest_batch`."""
    from tfplace.api import find_largest_batch
    from tfplace.report.largest_batch_table import largest_batch_facts, largest_batch_tables

    beside = [name for name in ("run", "explain", "against", "inference", "fetch") if getattr(flags, name)]
    if beside:
        raise InputError(f"--largest_batch and {flags.spelled(beside[0])}", "one of the two")
    model, files = flags.required_model(), dict[str, str]()
    if source.is_file(model):
        raise SplitError(f"the largest batch of the file {model!r}", "a model that tfplace can build for other batches")
    with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        stages.stage("building the model")
        load_tensorflow(gpus=flags.topology is None)
        built = source.find(model)(flags.batch, flags.param or {})
        found = find_largest_batch(built.source, built.batch, flags.narrowed(PlanOptions), stages)
        if out is not None:
            files |= _keep(found.plan, out, stages)
    present(flags.json, lambda: largest_batch_facts(found), lambda: largest_batch_tables(found), files)


class Beside(NamedTuple):
    """What flags ask for beside a plan.

    Attributes:
      changes: from an earlier plan.
      explanation: of this one.
    """

    changes: PlanDiff | None
    explanation: Explanation | None

    def facts(self) -> dict[str, Any]:
        """Plain data."""
        against = {} if self.changes is None else {"against": asdict(self.changes)}
        return against | ({} if self.explanation is None else {"explanation": explanation_facts(self.explanation)})

    def tables(self, plan: RenderableType) -> RenderableType:
        """All of it as `rich` draws it."""
        from rich.console import Group
        from rich.text import Text

        parts = [plan]
        if self.explanation is not None:
            parts += [Text(""), explanation_tables(self.explanation)]
        if self.changes is not None:
            parts += [Text(""), Text(f"against the earlier plan:\n{self.changes}")]
        return Group(*parts)


def _explained(plan: Plan, flags: PlanFlags, stages: Stages) -> Explanation | None:
    if not flags.explain:
        return None
    stages.stage("explaining")
    return plan.explain()


def _plan(flags: PlanFlags, stages: Stages) -> Plan:
    from tfplace.api import place_problem
    from tfplace.search.over_slices import Sizes
    from tfplace.search.planning import make_plan
    from tfplace.search.symmetric import large_box
    from tfplace.search.what_if import TIMES
    from tfplace.sources import made_to_fit

    batch, here = None, flags.topology is None or flags.run > 0
    reader = ProblemReader(stages, gpus=here)

    def read(sizes: Sizes, *, pack: bool = False) -> Problem:
        nonlocal batch
        model = flags.required_model()
        if sizes is not None and source.is_file(model):
            raise SplitError(f"slices of the file {model!r}", "a model that tfplace can build for slices")
        stages.stage("the whole step" if sizes is None else f"slices {sizes}{', packed' * pack}")
        problem, batch = reader.read(replace(flags, slices=sizes, pack=pack), some_slices=True)
        stages.stage("searching")
        return problem

    def larger(sizes: tuple[int, ...] | None) -> Problem:
        model = flags.required_model()
        if source.is_file(model):
            raise SplitError(f"a larger batch of the file {model!r}", "a model that tfplace can build for one")
        stages.stage("a larger batch")
        from tfplace.extraction.batch import as_specs
        from tfplace.transforms.batch_specs import batch_size

        more = TIMES * batch_size(as_specs(batch))
        return reader.read(replace(flags, slices=sizes, batch=more))[0]

    def less(placement: Placement, goes_on: Callable[[], bool]) -> Placement:
        stages.stage(f"making {placement.placer} fit")
        return made_to_fit(placement, goes_on)

    wanted = flags.narrowed(SearchOptions, slices=AUTO, progress=stages.search)
    hosts = None if flags.known_topology is None else large_box(flags.known_topology)
    if hosts is not None and not source.is_file(flags.required_model()):
        return _plan_large(flags, stages, hosts, wanted)
    plan = make_plan(
        read,
        partial(place_problem, both_ways=False),
        wanted,
        less,
        exact=flags.exact,
        larger=larger,
        read_packed=partial(read, pack=True),
    )
    if not flags.run or plan.placement is None:
        return plan
    stages.stage("running the best ways")
    return plan.measure(batch, steps=flags.run)


def _plan_large(flags: PlanFlags, stages: Stages, hosts: Hosts, options: SearchOptions) -> Plan:
    """The plan for equal replicas of a model on many devices."""
    from tfplace.api import place_problem
    from tfplace.cli.reading import read_graph
    from tfplace.search.symmetric import limits_of, make_symmetric_plan
    from tfplace.sources import examples_of, problem_of, resized_batch
    from tfplace.transforms.split import slice_sizes

    stages.stage("building the model")
    load_tensorflow(gpus=False)
    build = source.find(flags.required_model(), flags.shape)
    built = build(flags.batch, flags.param or {})

    def read(examples: int, slices: int) -> OpGraph:
        stages.stage(f"reading a step of {examples} examples" + (f" in {slices} slices" if slices > 1 else ""))
        wanted = replace(flags, slices=slice_sizes(slices, examples))
        try:
            smaller = replace(built, batch=resized_batch(built.source, built.batch, examples))
            return read_graph(smaller, wanted, stages.note)
        except SourceError:  # such as for a batch size that the model is built with
            return read_graph(build(examples, flags.param or {}), wanted, stages.note)

    def pose(graph: OpGraph, devices: Topology) -> Problem:
        stages.stage("simulating replicas")
        limits = limits_of(devices, hosts, flags.max_memory or {})
        return problem_of(graph, devices, None, flags.constraints, limits, profile=flags.profile, compile=flags.compile)

    search, examples = partial(place_problem, both_ways=False), examples_of(built.source, built.batch)
    return make_symmetric_plan(read, pose, search, options, hosts, examples=examples, exact=flags.exact)
